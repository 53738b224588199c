"""A run beside its reference, and its Stein discrepancy, against the same numbers worked out from the positions."""

import json

import numpy as np
import pytest
import yaml

from fedlangevin_mpi.cli import main
from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.errors import ConfigError, StoreError
from fedlangevin_mpi.evaluate import comparison
from fedlangevin_mpi.evaluate.comparison import compare, stein_discrepancy
from fedlangevin_mpi.evaluate.distances import empirical_w2, sliced_w2
from fedlangevin_mpi.evaluate.predictive import agreement, total_variation
from fedlangevin_mpi.evaluate.stein_discrepancy import squared_stein_discrepancy
from fedlangevin_mpi.models.base import Facts
from fedlangevin_mpi.store.reader import open_run

PARTICLES = {"algorithm": "dsvgd", "coins": "none"}


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(50, 1, 4, 3))


def configured(directory, **changes):
    """Give a run's folder another config."""
    content = yaml.safe_load((directory / "run.yaml").read_text())
    resolved = content["resolved"] | changes.pop("resolved", {})
    (directory / "run.yaml").write_text(yaml.safe_dump(content | changes | {"resolved": resolved}))
    return open_run(directory)


def test_a_shifted_and_wider_run_is_told(make_run, x):
    scale, shift = np.array([1.0, 2.0, 0.5]), np.array([0.0, 0.0, 3.0])
    run, reference = open_run(make_run(scale * x + shift)), open_run(make_run(x, name="reference"))
    found = compare(run, reference)
    mean, sd = x.mean((0, 1, 2)), x.std((0, 1, 2), ddof=1)
    assert found["directory"] == str(reference.directory)
    assert found["max_mean_difference"] == pytest.approx((np.abs(scale * mean + shift - mean) / sd).max())
    assert (found["min_sd_ratio"], found["max_sd_ratio"]) == pytest.approx((0.5, 2.0))
    ours, theirs = (scale * x + shift).reshape(200, 3), x.reshape(200, 3)
    assert found["w2"] == pytest.approx(empirical_w2(ours, theirs))
    assert found["w2_floor"] == pytest.approx(empirical_w2(theirs[:100], theirs[100:]))
    assert found["sliced_w2"] == pytest.approx(sliced_w2(ours, theirs))
    assert "agreement" not in found
    json.dumps(found, allow_nan=False)


def test_a_run_is_at_no_distance_from_itself(make_run, x):
    run = open_run(make_run(x))
    found = compare(run, run)
    assert found["w2"] < 1e-7
    assert found["max_mean_difference"] == 0
    assert found["min_sd_ratio"] == found["max_sd_ratio"] == 1


def test_long_runs_are_compared_at_positions_evenly_spaced(make_run, x, monkeypatch):
    monkeypatch.setattr(comparison, "_W2_POINTS", 40)
    found = compare(open_run(make_run(x + 1)), open_run(make_run(x, name="reference")))
    assert found["w2"] == pytest.approx(np.sqrt(3))
    halves = x[::3].reshape(-1, 3)
    assert found["w2_floor"] == pytest.approx(empirical_w2(halves[:34], halves[34:]))


def test_one_client_and_the_average_differ(make_run, x):
    both = np.concatenate([x, -x + 2], axis=1)
    run, reference = open_run(make_run(both)), open_run(make_run(x, name="reference"))
    assert compare(run, reference, client=0)["w2"] < 1e-7
    assert compare(run, reference)["max_sd_ratio"] < 1e-7


def test_particles_are_compared_by_their_last_draw(make_run, x):
    run = open_run(make_run(x, placement=[[-1]], about=PARTICLES))
    reference = open_run(make_run(x, name="reference"))
    assert compare(run, reference)["w2"] == pytest.approx(empirical_w2(x[-1, 0], x.reshape(200, 3)))


def test_a_single_particle_has_no_standard_deviation(make_run, x):
    run = open_run(make_run(x[:, :, :1], placement=[[-1]], about=PARTICLES))
    found = compare(run, open_run(make_run(x, name="reference")))
    assert found["min_sd_ratio"] is found["max_sd_ratio"] is None
    assert compare(run, run)["w2_floor"] is None


def test_runs_of_other_parameters_and_without_draws_are_refused(make_run, x):
    run, other = open_run(make_run(x)), open_run(make_run(x[..., :2], name="other"))
    with pytest.raises(ConfigError, match=r"reference: found x \(2,\) in .*other; allowed: the parameters of .*run, x"):
        compare(run, other)
    empty = open_run(make_run(x[:0], name="empty"))
    with pytest.raises(StoreError, match="empty: has no draws yet"):
        compare(run, empty)
    with pytest.raises(StoreError, match="empty: has no draws yet"):
        stein_discrepancy(empty)


DATA = {"name": "titanic", "partition": {"name": "iid"}}
TITANIC = {
    "model": {"name": "logistic_regression", "prior_scale": 1.0},
    "data": DATA,
    "resolved": {
        "facts": {"features": 4, "classes": 2},
        "standardization": {"mean": [1.0, 0.9, 0.8], "scale": [1.0, 0.3, 0.4]},
    },
}


def test_predictives_of_the_same_rows_are_compared(make_run):
    w = np.random.default_rng(1).normal(size=(30, 1, 2, 4))
    run = configured(make_run(w), **TITANIC)
    reference = configured(make_run(0.5 * w - [1, 0, 1, 0], name="reference"), **TITANIC)
    config, facts = make_config(run.config), Facts(**run.resolved.facts)
    x = config.data.design_matrix(config.data.test_set(1, 1).x, run.resolved.standardization)
    p, q = (config.model.predict(at.reshape(-1, 4), x, facts).mean(0) for at in (w, 0.5 * w - [1, 0, 1, 0]))
    found = compare(run, reference)
    assert found["agreement"] == pytest.approx(agreement(p, q))
    assert found["total_variation"] == pytest.approx(total_variation(p, q))
    assert 0 < found["agreement"] < 1
    other = configured(make_run(w, name="other"), **TITANIC | {"data": DATA | {"test_fraction": 0.1}})
    assert "agreement" not in compare(run, other)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_stein_discrepancy_is_that_of_the_product_of_all_clients(make_run, x, temperature):
    data = {"name": "synthetic_gaussian", "dim": 3}
    algorithm = {"name": "fald", "step_size": 0.1, "temperature": temperature}
    directory = make_run(np.concatenate([x, x], axis=1), about={"coins": "none"}, placement=[[0, 1]])
    run = configured(directory, data=data, algorithm=algorithm, clients=2)
    shards = make_config(run.config).data.shards([0, 1], 2, 1)
    positions = x.reshape(200, 3)
    scores = -sum((positions - s.arrays["mean"]) @ np.linalg.inv(s.arrays["covariance"]) for s in shards) / temperature
    assert stein_discrepancy(run) == pytest.approx(np.sqrt(squared_stein_discrepancy(positions, scores)))


def test_the_command_prints_and_dumps_both(make_run, x, capsys):
    run = make_run(x, placement=[[-1]], about=PARTICLES)
    configured(run, data={"name": "synthetic_gaussian", "dim": 3})
    reference = make_run(x, name="reference")
    for options in ([], ["--json"]):
        with pytest.raises(SystemExit) as left:
            main(["summary", str(run), "--reference", str(reference), "--stein", *options])
        assert left.value.code == 0
        out = capsys.readouterr().out
        if options:
            found = json.loads(out)
            assert found["reference"] == compare(open_run(run), open_run(reference))
            assert found["metrics"]["stein_discrepancy"] == pytest.approx(stein_discrepancy(open_run(run)))
        else:
            assert "dsvgd, 1 client, 1 rank, 4 particles, 50 draws" in out
            assert f"reference     {reference}\n" in out
            assert "(halves of the reference: " in out
            assert "stein_discrepancy " in out
