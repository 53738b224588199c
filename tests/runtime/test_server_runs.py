"""Runs with a server in one process: what is refused, resumed, and read back."""

import numpy as np
import pytest

from fedlangevin_mpi.algorithms import algorithms
from fedlangevin_mpi.algorithms.natural import mean_of, precision_of, root_of
from fedlangevin_mpi.algorithms.serving import Serving
from fedlangevin_mpi.errors import ConfigError, ShardError, StoppedError, StoreError
from fedlangevin_mpi.evaluate.summary import summarise
from fedlangevin_mpi.runtime.resume import resume
from fedlangevin_mpi.store.reader import open_run
from tests.gaussians import heterogeneous
from tests.servers import gaussian_files, serve

SERVING = {name: kind for name, kind in algorithms().items() if issubclass(kind, Serving)}
LINEAR = {"name": "linear_regression"}
ROWS = {"name": "synthetic_linear", "rows": 20, "features": 2}


def settings(name):
    sizes = {"particles": 5, "global_iterations": 6, "step_size": 0.01}
    return {"name": name} | sizes | ({} if name == "fed_sgd" else {"local_iterations": 3})


def clients_of(name):
    return 1 if SERVING[name].communicates == "never" else 3


@pytest.mark.parametrize("name", SERVING)
def test_every_algorithm_with_a_server_runs_and_is_read_back(tmp_path, name):
    run = serve(tmp_path, settings(name), LINEAR, ROWS, clients_of(name))
    assert run.position(-1).shape == (6, 5, 2)
    assert np.isfinite(run.position(-1)[:]).all()
    assert run.iterations.tolist() == list(range(6))
    assert SERVING[name].summary
    assert SERVING[name].__doc__
    summary = summarise(run)
    assert np.isfinite(summary["parameters"]["mean"]).all()
    expected = 6 if SERVING[name].communicates == "server" else 0
    assert summary["communication"]["rounds"] == expected + (name == "fsgld")


ALL = {"schedule": "all", "damping": 0.3}
TWO = {"schedule": "parallel", "agents_per_iteration": 2}


@pytest.mark.parametrize(("name", "more"), [*((n, {}) for n in SERVING), ("u_dsvgd", ALL), ("u_dsvgd", TWO)])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, name, more):
    algorithm = settings(name) | more
    whole = serve(tmp_path / "whole", algorithm | {"global_iterations": 9}, LINEAR, ROWS, clients_of(name))
    serve(tmp_path, algorithm | {"global_iterations": 4}, LINEAR, ROWS, clients_of(name))
    resume(tmp_path / "run", ["algorithm.global_iterations=9"])
    again = open_run(tmp_path / "run")
    np.testing.assert_array_equal(again.position(-1)[:], whole.position(-1)[:])
    ours, theirs = again.statistics, whole.statistics
    assert ours.gradient_evaluations == theirs.gradient_evaluations
    assert ours.communication.bytes == theirs.communication.bytes


def test_a_run_that_is_stopped_goes_on_where_it_was(tmp_path):
    algorithm = settings("dsvgd") | {"global_iterations": 30}
    output = {"directory": str(tmp_path / "run"), "max_seconds": 1e-6}
    with pytest.raises(StoppedError, match="max_seconds is over: stopped after 1 of 30 iterations"):
        serve(tmp_path, algorithm, LINEAR, ROWS, 3, output=output)
    resume(tmp_path / "run", ["output.max_seconds=null"])
    whole = serve(tmp_path / "whole", algorithm, LINEAR, ROWS, 3)
    np.testing.assert_array_equal(open_run(tmp_path / "run").position(-1)[:], whole.position(-1)[:])


@pytest.mark.parametrize(
    ("algorithm", "more", "message"),
    [
        ({"temperature": 0.0}, {}, r"algorithm.temperature: found 0.0; allowed: greater than 0"),
        ({"temperature": -1.0}, {}, r"algorithm.temperature: found -1.0; allowed: greater than 0"),
        ({"particles": 0}, {}, r"algorithm.particles: found 0; allowed: greater than or equal to 1"),
        ({"kde_bandwidth": 0}, {}, "algorithm.kde_bandwidth: found 0; allowed: greater than 0"),
        ({"schedule": "permutation"}, {}, "schedule: found 'permutation'; allowed: round_robin, random"),
        ({}, {"iterations": 7}, r"iterations: found 7; allowed: absent, or algorithm.global_iterations \(6\)"),
        ({}, {"chains": 2}, r"chains: found 2; allowed: absent, or algorithm.particles \(5\)"),
        ({}, {"dtype": "float32"}, "dtype: found 'float32'; allowed: float64"),
        ({}, {"initial": {"name": "map"}}, "initial.name: found 'map'; allowed: prior, zeros, module, file"),
        ({}, {"initial": {"name": "zeros"}}, "initial: all 5 particles start at the same point"),
        ({}, {"model": LINEAR | {"prior_scale": float("inf")}}, "initial: all 5 particles start at the same point"),
        ({"name": "svgd"}, {}, "clients: found 3 for algorithm svgd"),
        ({"name": "pvi", "samples": 3}, {}, "algorithm.samples: found 3; allowed: "),
        ({"name": "pvi", "step_size": 1.5}, {}, "algorithm.step_size: found 1.5; allowed: at most 1"),
        ({"name": "pvi", "agents_per_iteration": 2}, {}, "agents_per_iteration: found 2 with schedule round_robin"),
        ({"name": "pvi", "schedule": "parallel", "agents_per_iteration": 4}, {}, "found 4; allowed: at most 3"),
        ({"name": "dsgld", "delays": [1.0, 2.0]}, {}, "algorithm.delays: found 2 numbers; allowed: one a client, 3"),
        ({"name": "fed_sgd", "local_iterations": 2}, {}, "algorithm.local_iterations: found 2; allowed: 1"),
    ],
)
def test_what_cannot_be_run_is_refused(tmp_path, algorithm, more, message):
    with pytest.raises(ConfigError, match=message):
        serve(tmp_path, settings("dsvgd") | algorithm, more.pop("model", LINEAR), ROWS, 3, **more)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("start", "said"), [("zeros", 1), ("prior", 0)])
def test_a_start_that_pvi_does_not_take_is_said_to_change_nothing(tmp_path, caplog, start, said):
    serve(tmp_path, settings("pvi"), LINEAR, ROWS, 3, initial={"name": start})
    assert caplog.text.count("initial: zeros changes nothing: q of pvi starts as the prior") == said


def test_pvi_wants_a_gaussian_prior(tmp_path):
    uniform = {"name": "gaussian_mixture", "prior": {"name": "uniform", "low": -6.0, "high": 6.0}}
    with pytest.raises(
        ConfigError,
        match="model: found a prior that is not Gaussian; allowed: a Gaussian one",
    ):
        serve(tmp_path, settings("pvi"), uniform, {"name": "toy_mixture_1d"}, 2)
    flat = {"name": "logistic_regression", "prior_scale": float("inf")}
    with pytest.raises(ConfigError, match="model: found a prior that is flat"):
        serve(tmp_path, settings("pvi"), flat, {"name": "breast_cancer"}, 2)


def test_an_agent_without_data_is_named(tmp_path):
    for k, rows in enumerate((5, 0)):
        np.savez(tmp_path / f"client-{k}.npz", x=np.ones((rows, 2)), y=np.ones(rows))
    files = {"name": "files", "path": str(tmp_path / "client-{client}.npz")}
    with pytest.raises(ShardError, match=r"client 1 .*client-1.npz\): array 'x' is empty"):
        serve(tmp_path, settings("dsvgd"), LINEAR, files, 2)


@pytest.mark.parametrize("name", ["svgd", "u_dsvgd", "dsvgd"])
@pytest.mark.parametrize("optimizer", ["adagrad", "plain"])
@pytest.mark.parametrize("particles", [1, 2])
def test_few_particles_in_one_dimension_stay_finite(tmp_path, name, optimizer, particles):
    algorithm = settings(name) | {"particles": particles, "optimizer": optimizer}
    run = serve(tmp_path, algorithm, LINEAR, ROWS | {"features": 1}, clients_of(name))
    assert np.isfinite(run.position(-1)[:]).all()


@pytest.mark.parametrize("name", ["svgd", "u_dsvgd", "dsvgd"])
def test_coinciding_particles_move_together(tmp_path, name):
    start = np.array([[0.0, 1.0], [0.0, 1.0], [2.0, -1.0]])
    np.savez(tmp_path / "start.npz", position=start)
    initial = {"name": "file", "path": str(tmp_path / "start.npz")}
    run = serve(tmp_path, settings(name) | {"particles": 3}, LINEAR, ROWS, clients_of(name), initial=initial)
    last = run.position(-1)[-1]
    assert np.isfinite(last).all()
    np.testing.assert_allclose(last[0], last[1], rtol=1e-10)


def test_warmup_and_thin_choose_draws(tmp_path):
    means, precisions = heterogeneous(2, 2)
    data = gaussian_files(tmp_path, means, precisions)
    run = serve(tmp_path, settings("dsgld") | {"global_iterations": 11}, "gaussian", data, 2, warmup=3, thin=4)
    assert run.iterations.tolist() == [6, 10]


def test_minibatches_are_rows_of_the_agent_scaled_to_all_of_them(tmp_path):
    """A batch that is at least every agent's rows is the full gradient, in any order of rows."""
    full = serve(tmp_path / "full", settings("dsvgd"), LINEAR, ROWS, 3).position(-1)[:]
    batched = serve(tmp_path / "batched", settings("dsvgd") | {"batch_size": 50}, LINEAR, ROWS, 3).position(-1)[:]
    np.testing.assert_allclose(batched, full, rtol=1e-6)
    small = serve(tmp_path / "small", settings("dsvgd") | {"batch_size": 5}, LINEAR, ROWS, 3).position(-1)[:]
    assert np.abs(small - full).max() > 1e-3


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_natural_parameters_are_kept_with_the_draws_made_of_them(tmp_path, covariance):
    algorithm = settings("pvi") | {"covariance": covariance, "particles": 400, "global_iterations": 3}
    serve(tmp_path, algorithm, LINEAR, ROWS, 3)
    resume(tmp_path / "run", ["iterations=5"])
    run = open_run(tmp_path / "run")
    kept, drawn = run.natural_parameters(), run.position(-1)[:]
    assert kept.shape == (5, 2 if covariance == "diagonal" else 3, 2)
    for eta, draws in zip(kept, drawn, strict=True):
        root = np.linalg.cholesky(precision_of(eta))
        assert np.abs((draws.mean(0) - mean_of(eta, root_of(eta))) @ root).max() < 4 / np.sqrt(400)
    with pytest.raises(StoreError, match=r"holds no draws/natural_parameters, as the algorithm"):
        serve(tmp_path / "other", settings("dsvgd"), LINEAR, ROWS, 3).natural_parameters()


def test_a_resume_does_not_read_the_start_again(tmp_path):
    np.savez(tmp_path / "start.npz", position=np.arange(10.0).reshape(5, 2))
    initial = {"name": "file", "path": str(tmp_path / "start.npz")}
    whole = serve(tmp_path / "whole", settings("dsvgd"), LINEAR, ROWS, 3, initial=initial)
    serve(tmp_path, settings("dsvgd") | {"global_iterations": 2}, LINEAR, ROWS, 3, initial=initial)
    (tmp_path / "start.npz").unlink()
    resume(tmp_path / "run", ["iterations=6"])
    np.testing.assert_array_equal(open_run(tmp_path / "run").position(-1)[:], whole.position(-1)[:])
