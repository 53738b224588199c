"""Deep ensembles: members are trained apart, end at modes, and predict together."""

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.algorithms.deep_ensemble import DeepEnsemble
from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.evaluate.held_out import predictive_of
from fedlangevin_mpi.evaluate.predictive import regression_metrics
from fedlangevin_mpi.evaluate.target import target_of
from fedlangevin_mpi.generic import Everything
from fedlangevin_mpi.models.gaussian import GaussianData
from fedlangevin_mpi.runtime.resume import resume
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.runtime.streams import BlockStreams
from fedlangevin_mpi.store.reader import open_run

LENGTH = 50


def config(folder, **more):
    values = {
        "seed": 2,
        "clients": 1,
        "chains": 4,
        "iterations": 400,
        "algorithm": {"name": "deep_ensemble", "step_size": 0.01},
        "model": {"name": "linear_regression", "noise_scale": 0.7, "prior_scale": 2.0},
        "data": {"name": "synthetic_linear", "features": 3, "rows": 40, "test_rows": 15},
        "output": {"directory": str(folder)},
    }
    return make_config(values | more)


def test_it_follows_its_equations():
    mean, precision = np.array([1.0, -2.0]), np.array([[2.0, 0.3], [0.3, 0.5]])
    algorithm = DeepEnsemble(step_size={"name": "polynomial", "initial": 0.1, "power": 0.5}, momentum=0.8)
    theta = np.random.default_rng(1).normal(size=(1, 3, 2))
    x, v, trace = theta[0].copy(), np.zeros((3, 2)), np.empty((LENGTH, *theta.shape))
    draws = algorithm.draws(BlockStreams(3, 0, np.arange(LENGTH), range(1), 1, 3, 2, np.dtype(float), False))
    arguments = GaussianData(mean[None], precision[None]), Everything(1), None, trace, np.arange(LENGTH), 0, LENGTH
    algorithm.kernel(theta, algorithm.state(theta), draws, *arguments)
    for k in range(LENGTH):
        v = 0.8 * v - 0.1 / np.sqrt(1 + k) * (x - mean) @ precision
        x = x + v
        np.testing.assert_allclose(trace[k, 0], x, rtol=1e-12)


def test_members_reach_the_mode_of_a_convex_posterior_and_are_the_only_draw(tmp_path):
    values = config(tmp_path / "run", algorithm={"name": "deep_ensemble", "step_size": 2e-3})
    members = open_run(run(values, comm=MPI.COMM_SELF))
    assert members.draws == 1
    assert members.iterations.tolist() == [399]
    scores = target_of(values).score(members.average()[0].astype(float))
    assert np.abs(scores).max() < 1e-6
    assert np.ptp(members.average()[0], axis=0).max() < 1e-8


def test_a_resume_does_not_add_a_second_end(tmp_path):
    made = run(config(tmp_path / "run"), comm=MPI.COMM_SELF)
    with pytest.raises(ConfigError, match="iterations: found 500; allowed: 400, since deep_ensemble keeps its end"):
        resume(made, ["iterations=500"], comm=MPI.COMM_SELF)
    every = run(config(tmp_path / "every", thin=100), comm=MPI.COMM_SELF)
    resume(every, ["iterations=500"], comm=MPI.COMM_SELF)
    assert open_run(every).iterations.tolist() == [99, 199, 299, 399, 499]


def test_members_of_a_network_with_many_modes_differ_and_predict_together(tmp_path):
    pytest.importorskip("torch")
    model = {"name": "network", "module": "mlp", "options": {"hidden": [20]}, "likelihood": "gaussian"}
    wanted = {"model": model | {"noise_scale": 0.7}, "initial": {"name": "module"}}
    algorithm = {"name": "deep_ensemble", "step_size": 1e-4, "batch_size": 20}
    found = open_run(run(config(tmp_path / "run", algorithm=algorithm, **wanted), comm=MPI.COMM_SELF))
    predictive = predictive_of(found)
    means = predictive.predict(found.average()[0], predictive.x)
    assert means.std(0).min() > 1e-3
    metrics = found.summary(predictive=predictive)["metrics"]
    assert metrics == pytest.approx(regression_metrics(means, predictive.y, 0.7))
    alone = [regression_metrics(member[None], predictive.y, 0.7)["rmse"] for member in means]
    assert metrics["rmse"] < np.mean(alone)  # the error of a mean is below the mean of errors


def test_a_thin_of_the_users_keeps_states_on_the_way(tmp_path):
    assert config(tmp_path, thin=100).draws == 4
    assert config(tmp_path, warmup=100).draws == 1
    assert make_config(config(tmp_path).model_dump()) == config(tmp_path)
