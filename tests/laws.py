"""Runs of a sampler on Gaussian clients, and the comparison of their stationary moments with an exact law."""

import numpy as np

from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.evaluate import exact
from fedlangevin_mpi.evaluate.diagnostics import standard_error
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.store.reader import open_run
from tests.gaussians import write_shards, z_scores

STEP = 0.2
ENGINES = {
    "compiled": {"chains": 16, "iterations": 150_000, "coins": "shared"},
    "interpreted": {"chains": 100, "iterations": 10_000, "coins": "per_chain"},
}


def sample(tmp_path, means, precisions, engine, algorithm, seed=3, **more):
    values = {
        "seed": seed,
        "clients": len(means),
        "warmup": 500,
        "thin": 7,
        "engine": engine,
        "algorithm": {"step_size": STEP} | algorithm,
        "model": {"name": "gaussian"},
        "data": {"name": "files", "path": write_shards(tmp_path / "shards", means, precisions)},
        "output": {"directory": str(tmp_path / "run")},
    }
    return open_run(run(make_config(values | ENGINES[engine] | more)))


def assert_law(opened, law, clients):
    """Every client's moments and the average's lie within 4 standard errors, which are small enough to tell."""
    joint = np.concatenate([opened.position(c)[:] for c in range(clients)], axis=-1)
    average = exact.average(law, clients)
    z, _ = z_scores(joint, law)
    z_average, power = z_scores(opened.average()[:], average)
    assert np.abs(z).max() < 4
    assert np.abs(z_average).max() < 4
    assert power.max() < 0.006  # a noise scale that is 2 % off moves every variance by 4 %: six of these and more


def biases(opened, target):
    """Return how many standard errors each coordinate of the average's mean is off the posterior mean."""
    series = opened.average()[:].mean(axis=1)
    return np.abs(series.mean(0) - target.mean) / standard_error(series)
