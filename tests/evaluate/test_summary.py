from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.evaluate import diagnostics, summary
from fedlangevin_mpi.evaluate.predictive import Predictive, metrics, regression_metrics
from fedlangevin_mpi.evaluate.summary import summarise, write_summary
from fedlangevin_mpi.store.reader import open_run

CONTRACT = [
    *("algorithm", "clients", "ranks", "chains", "dim", "draws", "iterations", "wall_seconds"),
    *("setup_seconds", "compile_seconds", "iterations_per_second", "gradient_evaluations", "communication"),
    *("parameters", "metrics"),
]
PARAMETERS = ["name", "mean", "sd", "hdi_low", "hdi_high", "mcse_mean", "ess_bulk", "ess_tail", "r_hat"]


@pytest.fixture
def x() -> np.ndarray:
    """An autoregressive series in every column: draws 200, clients 2, chains 4, dim 3."""
    noise = np.random.default_rng(3).normal(size=(200, 2, 4, 3))
    for k in range(1, 200):
        noise[k] += 0.7 * noise[k - 1]
    return noise * [1.0, 10.0, 0.1] + [0.0, 5.0, -3.0]


def test_summary_has_the_keys_of_the_contract(make_run, x):
    found = summarise(open_run(make_run(x)))
    assert list(found) == CONTRACT
    assert list(found["parameters"]) == PARAMETERS
    assert {k: found[k] for k in ("clients", "ranks", "chains", "dim", "draws")} == {
        **{"clients": 2, "ranks": 1, "chains": 4},
        **{"dim": 3, "draws": 200},
    }
    assert found["communication"] == {"rounds": 20, "messages": 120, "bytes": 2880, "mpi_bytes": 3000}
    assert (found["iterations"], found["setup_seconds"], found["compile_seconds"]) == (100, 0.25, 0.5)


RING = {
    "path": "ring.yaml",
    "kind": "ring",
    "lambda_2": 0.0,
    "lambda_n": 0.0,
    "fingerprint": "",
    "components": [[0, 1]],
}


def test_a_run_that_gossips_has_its_consensus_distance_over_time(make_run, x, monkeypatch):
    monkeypatch.setattr(summary, "CONSENSUS_DRAWS", 30)
    run = open_run(make_run(x, topologies=[RING]))
    found = summarise(run)["consensus"]
    assert found["iteration"] == list(range(3, 200, 7))
    np.testing.assert_array_equal(found["distance"], run.consensus_distance()[3::7])


@pytest.mark.parametrize("client", [None, 1])
def test_parameters_are_summarised_over_draws_and_chains(make_run, x, monkeypatch, client):
    monkeypatch.setattr(summary, "_SERIES_BYTES", 2 * 200 * 4 * 8)  # two columns at a time
    found = open_run(make_run(x)).summary(client)["parameters"]
    series = (x.mean(1) if client is None else x[:, client]).swapaxes(0, 1)
    expected = {
        "mean": series.mean((0, 1)),
        "sd": series.std((0, 1), ddof=1),
        "hdi_low": diagnostics.hdi(series)[:, 0],
        "hdi_high": diagnostics.hdi(series)[:, 1],
        "mcse_mean": diagnostics.mcse_mean(series, coins_shared=True),
        "ess_bulk": diagnostics.ess_bulk(series, coins_shared=True),
        "ess_tail": diagnostics.ess_tail(series, coins_shared=True),
        "r_hat": diagnostics.r_hat(series),
    }
    assert found["name"] == ["x[0]", "x[1]", "x[2]"]
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-12, err_msg=name)


def test_shared_coins_make_chains_dependent(make_run, x):
    """Chains that move together know no more than one of them."""
    together = np.broadcast_to(x[:, :, :1], x.shape).copy()
    shared = open_run(make_run(together, name="shared")).summary()["parameters"]
    alone = open_run(make_run(together, name="alone", about={"coins": "per_chain"})).summary()["parameters"]
    np.testing.assert_allclose(shared["mcse_mean"], 2 * np.array(alone["mcse_mean"]), rtol=0.1)


def test_constant_parameter_is_written_as_null(make_run, x, tmp_path):
    x[..., 1] = 2.5
    write_summary(tmp_path, open_run(make_run(x)).summary())
    parameters = json.loads((tmp_path / "summary.json").read_text())["parameters"]
    assert (parameters["mean"][1], parameters["sd"][1], parameters["r_hat"][1]) == (2.5, 0.0, None)
    assert [path.name for path in tmp_path.glob("*summary*")] == ["summary.json"]


def test_a_summary_of_arrays_is_written_as_one_of_lists(make_run, x, tmp_path):
    x[0, ..., 1] = np.nan
    run, texts = open_run(make_run(x)), []
    for found in (summary.measured(run), summarise(run)):
        write_summary(tmp_path, found)
        texts.append((tmp_path / "summary.json").read_text())
    assert texts[0] == texts[1]
    with pytest.raises(TypeError, match="allowed: what JSON has, and arrays"):
        write_summary(tmp_path, {"dim": np.int64(1)})


def test_run_that_is_still_going_leaves_open_what_it_cannot_know(make_run, x):
    directory = make_run(x[:0])
    (directory / "statistics.json").unlink()
    found = summarise(open_run(directory), predictive=Predictive(lambda p, f: p, x, x))
    assert found["iterations"] is found["communication"] is found["iterations_per_second"] is None
    assert found["parameters"]["mean"] == found["parameters"]["r_hat"] == [None] * 3
    assert found["metrics"] == {}
    json.dumps(found, allow_nan=False)


def test_many_parameters_are_diagnosed_in_part(make_run, x, monkeypatch):
    monkeypatch.setattr(summary, "_SERIES_BYTES", 200 * 4 * 8)
    monkeypatch.setattr(summary, "DIAGNOSED", 2)
    found = open_run(make_run(x)).summary()["parameters"]
    assert [value is None for value in found["ess_bulk"]] == [False, True, False]
    assert None not in found["mean"] + found["sd"] + found["hdi_low"]


PARTICLES = {"algorithm": "dsvgd", "coins": "none"}


def test_particles_are_summarised_by_the_last_draw_alone(make_run, x):
    run = open_run(make_run(x[:, :1], placement=[[-1]], about=PARTICLES))
    assert run.particles
    found = summarise(run)
    assert list(found) == [*CONTRACT[:-2], "particles", *CONTRACT[-2:]]
    assert (found["particles"], found["draws"]) == (4, 200)
    last = x[-1, 0]
    np.testing.assert_allclose(found["parameters"]["mean"], last.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found["parameters"]["sd"], last.std(0, ddof=1), rtol=1e-12)
    for name in ("mcse_mean", "ess_bulk", "ess_tail", "r_hat"):
        assert found["parameters"][name] == [None] * 3


def test_one_particle_is_a_point(make_run, x):
    found = open_run(make_run(x[:, :1, :1], placement=[[-1]], about=PARTICLES)).summary()["parameters"]
    np.testing.assert_array_equal(found["mean"], x[-1, 0, 0])
    assert found["sd"] == [None] * 3


@pytest.mark.parametrize("coins", ["shared", "per_chain"])
def test_chains_in_a_servers_file_are_chains(make_run, x, coins):
    run = open_run(make_run(x[:, :1], placement=[[-1]], about={"algorithm": "dsgld", "coins": coins}))
    found = summarise(run)
    assert not run.particles
    assert "particles" not in found
    np.testing.assert_allclose(found["parameters"]["mean"], x[:, 0].mean((0, 1)), rtol=1e-12)
    assert None not in found["parameters"]["r_hat"]


def test_particles_predict_together_and_by_their_density_estimate(make_run, x):
    features = np.random.default_rng(0).normal(size=(50, 3))
    labels = (features[:, 1] > 0.3).astype(int)
    run = open_run(make_run(x[:, :1], placement=[[-1]], about=PARTICLES))
    predictive = Predictive(probabilities, features, labels, smoothed=lambda p, f: probabilities(p / 10, f))
    expected = metrics(probabilities(x[-1, 0], features).mean(0), labels)
    smooth = metrics(probabilities(x[-1, 0] / 10, features).mean(0), labels)
    expected |= {f"kde_{name}": value for name, value in smooth.items()}
    assert summarise(run, None, predictive)["metrics"] == pytest.approx(expected, rel=1e-12)


def test_unknown_client_is_refused(make_run, x):
    with pytest.raises(ConfigError, match="client 2 has no draws"):
        open_run(make_run(x)).summary(client=2)


def probabilities(positions: np.ndarray, features: np.ndarray) -> np.ndarray:
    p = 1 / (1 + np.exp(-positions @ features.T))
    return np.stack([1 - p, p], -1)


def test_classifier_is_judged_by_its_mean_predictive(make_run, x):
    features = np.random.default_rng(0).normal(size=(50, 3))
    labels = (features[:, 1] > 0.3).astype(int)
    found = summarise(open_run(make_run(x)), 1, Predictive(probabilities, features, labels))["metrics"]
    expected = metrics(probabilities(x[:, 1].reshape(-1, 3), features).mean(0), labels)
    assert found == pytest.approx(expected, rel=1e-12)


def test_regression_is_judged_by_its_mixture(make_run, x):
    features = np.random.default_rng(0).normal(size=(50, 3))
    targets = features @ [0.0, 5.0, -3.0] + 1
    predictive = Predictive(
        lambda positions, f: positions @ f.T, features, targets, lambda positions: np.full((len(positions), 1), 2.0)
    )
    found = summarise(open_run(make_run(x)), 0, predictive)["metrics"]
    assert found == pytest.approx(regression_metrics(x[:, 0].reshape(-1, 3) @ features.T, targets, 2.0), rel=1e-12)


def test_long_runs_predict_from_draws_evenly_spaced(make_run, x):
    seen = []

    def predict(positions, features):
        seen.append(positions)
        return np.full((len(positions), 1, 2), 0.5)

    summarise(open_run(make_run(x)), 0, Predictive(predict, np.zeros((1, 3)), np.zeros(1), most=100))
    np.testing.assert_array_equal(np.concatenate(seen), x[::8, 0].reshape(100, 3))


def test_some_parameters_can_be_summarised_alone(make_run, x):
    run = open_run(make_run(x))
    all_of_them, some = run.summary()["parameters"], summarise(run, most=2)["parameters"]
    assert some["name"] == all_of_them["name"]
    for name in PARAMETERS[1:]:
        assert some[name] == [all_of_them[name][0], None, all_of_them[name][2]]


def test_one_column_fits_whatever_the_length(x):
    """A column is read alone when a series is longer than what is held at a time."""
    widths = []

    class Recorder(SimpleNamespace):
        def __getitem__(self, index):
            widths.append(index[2])
            return x[:, 0][index]

    found = summary._parameters(Recorder(shape=(10**8, 4, 3)), False, None)
    assert widths == [slice(0, 1, 1), slice(1, 2, 1), slice(2, 3, 1)]
    assert len(found["mean"]) == 3
