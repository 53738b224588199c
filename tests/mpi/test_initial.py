"""Where chains start."""

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.store.reader import open_run

COMM = MPI.COMM_WORLD


def first_positions(folder, initial, dtype="float64", **more):
    """Return all clients' positions after one step too small to see, `(client, chain, dim)`."""
    values = {
        "seed": 3,
        "clients": 4,
        "chains": 3,
        "iterations": 1,
        "dtype": dtype,
        "initial": initial,
        "algorithm": {"name": "fed_avg", "step_size": 1e-300, "communication_interval": 9},
        "model": {"name": "linear_regression", "prior_scale": 0.5},
        "data": {"name": "synthetic_linear", "features": 2, "rows": 15},
        "output": {"directory": str(folder / "run")},
    }
    config = make_config(values | more)
    opened = open_run(run(config, comm=COMM, force=True))
    return np.stack([opened.position(c)[0] for c in range(4)]), config


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_prior_gives_each_chain_its_own_start_and_all_clients_the_same(mpi_tmp_path, dtype):
    x, _ = first_positions(mpi_tmp_path, {"name": "prior"}, dtype)
    assert x.dtype == dtype
    assert (x == x[0]).all()
    assert len(np.unique(x[0])) == 6
    assert 0.1 < x.std() < 1.5


def test_a_flat_prior_starts_at_zero(mpi_tmp_path):
    flat = {"name": "linear_regression", "prior_scale": float("inf")}
    x, _ = first_positions(mpi_tmp_path, {"name": "prior"}, model=flat)
    assert np.abs(x).max() < 1e-200


def test_the_mode_is_found_together(mpi_tmp_path):
    x, config = first_positions(mpi_tmp_path, {"name": "map"})
    shards = [shard.arrays for shard in config.data.shards(range(4), 4, 3)]
    features, y = (np.concatenate([arrays[name] for arrays in shards]) for name in ("x", "y"))
    mode = np.linalg.solve(features.T @ features + np.eye(2) / 0.25, features.T @ y)
    np.testing.assert_allclose(x, np.broadcast_to(mode, x.shape), rtol=1e-5)


def test_a_file_gives_the_start(mpi_tmp_path):
    path = mpi_tmp_path / "start.npz"
    position = np.arange(6.0).reshape(3, 2)
    if COMM.rank == 0:
        np.savez(path, position=position)
    COMM.Barrier()
    x, _ = first_positions(mpi_tmp_path, {"name": "file", "path": str(path)})
    np.testing.assert_allclose(x, np.broadcast_to(position, x.shape), rtol=0, atol=1e-200)


def test_a_file_may_give_every_client_a_start_of_its_own(mpi_tmp_path):
    path = mpi_tmp_path / "start.npz"
    position = np.arange(24.0).reshape(4, 3, 2)
    if COMM.rank == 0:
        np.savez(path, position=position)
    COMM.Barrier()
    x, _ = first_positions(mpi_tmp_path, {"name": "file", "path": str(path)})
    np.testing.assert_allclose(x, position, rtol=0, atol=1e-200)


def test_a_start_of_another_shape_is_refused(mpi_tmp_path):
    path = mpi_tmp_path / "start.npz"
    if COMM.rank == 0:
        np.savez(path, position=np.zeros((3, 7)))
    COMM.Barrier()
    with pytest.raises(ConfigError, match=r"has shape \(3, 7\); allowed: \(3, 2\), or \(4, 3, 2\)"):
        first_positions(mpi_tmp_path, {"name": "file", "path": str(path)})
