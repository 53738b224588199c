"""`fedlangevin exact`: the law that a config's sampler has on its own data."""

import json

import numpy as np
import pytest

import fedlangevin_mpi
from fedlangevin_mpi.algorithms.natural import mean_of, precision_of, root_of
from fedlangevin_mpi.cli import main
from fedlangevin_mpi.config import make_config, to_yaml
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.evaluate import exact, exact_gossip
from fedlangevin_mpi.evaluate.distances import gaussian_w2
from fedlangevin_mpi.evaluate.exact_gossip import Gossip
from fedlangevin_mpi.evaluate.exact_report import exact_report, print_exact_report, quadratic_potentials
from fedlangevin_mpi.evaluate.exact_travelling import dsgld
from fedlangevin_mpi.report import contents
from tests.gaussians import heterogeneous, write_shards

RING = np.array([[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]) / 3


@pytest.fixture
def gaussian(tmp_path):
    means, precisions = heterogeneous(4, 2)

    def config(algorithm, **more):
        values = {
            "clients": 4,
            "iterations": 1,
            "algorithm": {"step_size": 0.1} | algorithm,
            "model": {"name": "gaussian"},
            "data": {"name": "files", "path": write_shards(tmp_path / "shards", means, precisions)},
        }
        return values | more

    return means, precisions, config


ALGORITHMS = {
    "de_sgld": ({"temperature": 0.5}, lambda m, H, W: exact_gossip.de_sgld(m, H, W, 0.1, temperature=0.5)),
    "de_sghmc": ({"friction": 3.0}, lambda m, H, W: exact_gossip.de_sghmc(m, H, W, 0.1, friction=3.0)),
    "dgd": ({}, lambda m, H, W: exact_gossip.dgd(m, H, W, 0.1)),
    "gradient_tracking": ({}, lambda m, H, W: exact_gossip.gradient_tracking(m, H, W, 0.1)),
    "extra_sgld": ({}, lambda m, H, W: exact_gossip.extra_sgld(m, H, W, 0.1)),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_law_of_an_algorithm_that_gossips(name, gaussian):
    means, precisions, config = gaussian
    options, law_of = ALGORITHMS[name]
    report = exact_report(make_config(config({"name": name} | options, topology="ring.yaml")), [RING])
    law = law_of(means, precisions, RING)
    target = exact.posterior(means, precisions, options.get("temperature", 1.0))
    average = exact.average(law, 4)
    np.testing.assert_allclose(report["average"]["mean"], average.mean, rtol=1e-9)
    np.testing.assert_allclose(report["average"]["covariance"], average.covariance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(report["posterior"]["covariance"], target.covariance, rtol=1e-9)
    third = exact.marginal(law, 2, 4)
    np.testing.assert_allclose(report["per_client"][2]["mean"], third.mean, rtol=1e-9)
    assert report["per_client"][2]["w2"] == pytest.approx(gaussian_w2(third, target))


@pytest.mark.parametrize(("schedule", "order"), [("cyclic", "cyclic"), ("random", "random")])
def test_the_law_of_a_schedule(schedule, order, gaussian):
    means, precisions, config = gaussian
    options = {"name": "de_sgld", "schedule": schedule, "communication_interval": 2}
    report = exact_report(make_config(config(options, topology=["a.yaml", "b.yaml"])), [RING, np.eye(4)])
    law = exact.average(exact_gossip.de_sgld(means, precisions, Gossip([RING, np.eye(4)], order, 2), 0.1), 4)
    np.testing.assert_allclose(report["average"]["covariance"], law.covariance, rtol=1e-9)


def test_linear_regression_has_the_posterior_of_all_rows():
    values = {
        "seed": 5,
        "clients": 3,
        "iterations": 1,
        "algorithm": {"name": "fald", "step_size": 0.01},
        "model": {"name": "linear_regression", "noise_scale": 0.5, "prior_scale": 2.0},
        "data": {"name": "synthetic_linear", "rows": 8, "features": 2, "intercept": True, "standardize": "pooled"},
    }
    config = make_config(values)
    x, y = [], []
    shards = config.data.shards(range(3), 3, 5)
    standardization = config.data.standardization(config.data.moments(shards))
    for shard in shards:
        x.append(config.data.design_matrix(shard.arrays["x"], standardization))
        y.append(shard.arrays["y"])
    rows, targets = np.concatenate(x), np.concatenate(y)
    precision = rows.T @ rows / 0.25 + np.eye(3) / 4
    report = exact_report(config)
    np.testing.assert_allclose(report["posterior"]["covariance"], np.linalg.inv(precision), atol=1e-12)
    np.testing.assert_allclose(report["posterior"]["mean"], np.linalg.solve(precision, rows.T @ targets / 0.25))
    np.testing.assert_allclose(quadratic_potentials(config)[1][1], x[1].T @ x[1] / 0.25 + np.eye(3) / 12, rtol=1e-9)


@pytest.mark.parametrize("name", ["pvi", "sgld"])
def test_the_posterior_of_a_server_keeps_the_prior_at_any_temperature(name, tmp_path):
    values = {
        "clients": 1 if name == "sgld" else 3,
        "seed": 5,
        "algorithm": {"name": name, "temperature": 0.25},
        "model": {"name": "linear_regression", "prior_scale": 0.3},
        "data": {"name": "synthetic_linear", "rows": 5, "features": 2},
        "output": {"directory": str(tmp_path / "run")},
    }
    if name == "pvi":  # exact after everybody's turn
        values["algorithm"] |= {"global_iterations": 3}
        run = fedlangevin_mpi.run(make_config(values))
        eta = run.natural_parameters()[-1]
        mean, covariance = mean_of(eta, root_of(eta)), np.linalg.inv(precision_of(eta))
    else:
        values |= {"iterations": 1}
        values["algorithm"] |= {"step_size": 0.01}
        (shard,) = make_config(values).data.shards([0], 1, 5)
        x, y = shard.arrays["x"], shard.arrays["y"]
        covariance = 0.25 * np.linalg.inv(x.T @ x + np.eye(2) / 0.09)
        mean = covariance @ x.T @ y / 0.25
        run = fedlangevin_mpi.run(make_config(values))
    law = contents.exact_posterior(run)
    np.testing.assert_allclose(law.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(law.covariance, covariance, rtol=1e-9)


@pytest.mark.parametrize(
    ("algorithm", "taus", "conducive"),
    [
        ({"name": "dsgld", "local_iterations": 6}, [6, 6, 6, 6], False),
        ({"name": "dsgld", "local_iterations": 6, "delays": [1.0, 2.0, 6.0, 1.0]}, [6, 3, 1, 6], False),
        ({"name": "fsgld", "local_iterations": 3, "schedule": "random"}, [3, 3, 3, 3], True),
    ],
)
def test_the_law_of_chains_that_travel(algorithm, taus, conducive, gaussian, capsys):
    means, precisions, config = gaussian
    values = config({"step_size": 0.01, "global_iterations": 1, "temperature": 0.5} | algorithm)
    del values["iterations"]
    report = exact_report(make_config(values))
    law = dsgld(means, precisions / 0.5, 0.01, taus, conducive)
    np.testing.assert_allclose(report["average"]["mean"], law.mean, rtol=1e-9)
    np.testing.assert_allclose(report["average"]["covariance"], law.covariance, rtol=1e-9)
    target = exact.posterior(means, precisions, 0.5)
    assert report["average"]["w2"] == pytest.approx(gaussian_w2(law, target), rel=1e-9)
    assert report["per_client"] == []
    print_exact_report(report)
    printed = capsys.readouterr().out
    assert "law of a chain at the end of a round" in printed
    assert "of a client" not in printed


def test_a_client_with_few_rows_and_a_flat_prior_pulls_as_its_rows_do():
    values = {
        "clients": 2,
        "iterations": 1,
        "algorithm": {"name": "fald", "step_size": 0.01},
        "model": {"name": "linear_regression", "prior_scale": float("inf")},
        "data": {"name": "synthetic_linear", "rows": 2, "features": 3},
    }
    config = make_config(values)
    means, precisions = quadratic_potentials(config)
    for shard, mean, precision in zip(config.data.shards(range(2), 2, 0), means, precisions, strict=True):
        np.testing.assert_allclose(precision @ mean, shard.arrays["x"].T @ shard.arrays["y"], atol=1e-10)


def test_the_command_finds_the_matrices_of_the_topology(gaussian, tmp_path, capsys):
    means, precisions, config = gaussian
    (tmp_path / "ring.yaml").write_text("kind: ring\n")
    values = config({"name": "de_sgld"}, topology=str(tmp_path / "ring.yaml"))
    (tmp_path / "config.yaml").write_text(to_yaml(values))
    with pytest.raises(SystemExit, match="0"):
        main(["exact", str(tmp_path / "config.yaml"), "--json"])
    report = json.loads(capsys.readouterr().out)
    law = exact.average(exact_gossip.de_sgld(means, precisions, RING, 0.1), 4)
    np.testing.assert_allclose(report["average"]["mean"], law.mean, rtol=1e-9)
    with pytest.raises(SystemExit, match="0"):
        main(["exact", str(tmp_path / "config.yaml")])
    assert f"W2 to the posterior: {report['average']['w2']:.4g} of the average" in capsys.readouterr().out


def test_what_has_no_exact_law_is_refused(gaussian):
    _, _, config = gaussian
    schedule = {"name": "fald", "step_size": {"name": "polynomial", "initial": 0.1}}
    with pytest.raises(ConfigError, match=r"algorithm.step_size: found a decaying schedule; allowed: a constant"):
        exact_report(make_config(config(schedule)))
    with pytest.raises(ConfigError, match=r"algorithm.name: found 'fed_avg'; allowed: sgld, fald, vr_fald, dsgld"):
        exact_report(make_config(config({"name": "fed_avg"})))
    travelling = {k: v for k, v in config({"name": "dsgld", "global_iterations": 1}).items() if k != "iterations"}
    with pytest.raises(ConfigError, match=r"algorithm.schedule: found 'round_robin'; allowed: permutation, random"):
        exact_report(make_config(travelling | {"algorithm": travelling["algorithm"] | {"schedule": "round_robin"}}))
    linear = {"model": {"name": "linear_regression"}, "data": {"name": "synthetic_linear"}}
    with pytest.raises(ConfigError, match=r"model.prior_scale: found 1.0; allowed: inf, the law of dsgld has none"):
        exact_report(make_config(travelling | linear))
    logistic = {"model": {"name": "logistic_regression"}, "data": {"name": "synthetic_logistic"}}
    with pytest.raises(
        ConfigError, match="model.name: found 'logistic_regression'; allowed: gaussian, linear_regression"
    ):
        exact_report(make_config(config({"name": "fald"}, **logistic)))
    with pytest.raises(ConfigError, match="algorithm.batch_size: found 3; allowed: absent"):
        exact_report(make_config(config({"name": "fald", "batch_size": 3}, **linear)))
    with pytest.raises(ConfigError, match="clients: missing"):
        exact_report(make_config({k: v for k, v in config({"name": "fald"}).items() if k != "clients"}))
