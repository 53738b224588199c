"""Predictions of held-out rows, rebuilt from a run's folder."""

import numpy as np
import pytest
import yaml

from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.evaluate.held_out import predictive_of
from fedlangevin_mpi.models.base import Facts
from fedlangevin_mpi.store.reader import open_run

DSVGD = {"name": "dsvgd", "step_size": 0.1, "particles": 6, "global_iterations": 3, "kde_bandwidth": 0.4}
SVGD = {"name": "svgd", "step_size": 0.1, "particles": 6, "global_iterations": 3}
FEATURES = 20


def opened(make_run, algorithm, coins, **changes):
    """Return a run of a server with held-out rows of twonorm."""
    x = np.random.default_rng(0).normal(size=(3, 1, 6, FEATURES))
    facts = {"facts": {"features": FEATURES, "classes": 2}, "parameters": {"coefficients": [FEATURES]}}
    directory = make_run(x, placement=[[-1]], about={"algorithm": algorithm["name"], "coins": coins}, **facts)
    content = yaml.safe_load((directory / "run.yaml").read_text())
    content |= {"iterations": 3, "chains": 6, "algorithm": algorithm, "model": {"name": "logistic_regression"}}
    content |= {"data": {"name": "twonorm", "test_rows": 30}} | changes
    (directory / "run.yaml").write_text(yaml.safe_dump(content))
    return open_run(directory), x


def test_particles_predict_and_so_does_their_density_estimate(make_run):
    run, x = opened(make_run, DSVGD, "none")
    predictive = predictive_of(run)
    config, facts = make_config(run.config), Facts(FEATURES, 2)
    test = config.data.test_set(1, 1)
    np.testing.assert_array_equal(predictive.x, test.x)
    np.testing.assert_array_equal(predictive.y, test.y)
    expected = config.model.predict_kde(x[-1, 0], test.x, facts, 0.4)
    np.testing.assert_array_equal(predictive.smoothed(x[-1, 0], test.x), expected)
    assert (predictive.predict(x[-1, 0], test.x) != expected).any()


@pytest.mark.parametrize(
    ("algorithm", "coins", "changes"),
    [
        (SVGD, "none", {}),  # no density estimate
        (DSVGD, "per_chain", {}),  # chains, as of a reference
        (DSVGD, "none", {"model": {"name": "softmax_regression", "classes": 2}}),  # not known
    ],
)
def test_otherwise_there_is_no_density_estimate(make_run, algorithm, coins, changes):
    run, _ = opened(make_run, algorithm, coins, **changes)
    if "model" in changes:
        run.dim = 2 * FEATURES
    assert predictive_of(run).smoothed is None


def test_without_held_out_rows_there_are_no_predictions(make_run):
    assert predictive_of(opened(make_run, SVGD, "none", data={"name": "twonorm"})[0]) is None
