import logging
import os
from types import SimpleNamespace

import pytest
from mpi4py import MPI

from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.runtime import space
from fedlangevin_mpi.runtime.prepare import prepare


def config(**more):
    values = {
        "iterations": 1100,
        "warmup": 100,
        "thin": 10,
        "chains": 2,
        "algorithm": {"name": "fald", "step_size": 1, "communication_probability": 0.5},
        "model": {"name": "gaussian"},
        "data": {"name": "synthetic_gaussian", "dim": 3},
    }
    return make_config(values | more)


@pytest.mark.parametrize(("dtype", "bytes_of_a_number"), [("float64", 8), ("float32", 4)])
def test_draws_that_do_not_fit_are_refused(dtype, bytes_of_a_number, tmp_path, monkeypatch, caplog):
    size = 100 * 4 * 2 * 1_000_000 * bytes_of_a_number
    free = SimpleNamespace(free=size)
    monkeypatch.setattr("shutil.disk_usage", lambda path: free)
    with caplog.at_level(logging.INFO):
        space.check_space(config(dtype=dtype), 4, 1_000_000, tmp_path / "not" / "yet")
    assert f"will take {size / 1e9:.3g} GB of the {size / 1e9:.3g} GB" in caplog.text
    free.free -= 1
    with pytest.raises(
        ConfigError, match=rf"thin: found 10: 100 draws of 4 clients.*{tmp_path} has .* GB free; allowed"
    ):
        space.check_space(config(dtype=dtype), 4, 1_000_000, tmp_path / "not" / "yet")


def test_a_resume_needs_room_for_what_is_to_come(tmp_path, monkeypatch):
    row = 4 * 2 * 1_000_000 * 8
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=40 * row))
    space.check_space(config(), 4, 1_000_000, tmp_path, begun=700)  # 60 of 100 draws are there
    for begun in (0, 50, 699):
        with pytest.raises(ConfigError, match="GB free"):
            space.check_space(config(), 4, 1_000_000, tmp_path, begun)


def test_a_run_that_is_replaced_gives_its_room_back(tmp_path, monkeypatch):
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "rank-00000.h5").write_bytes(os.urandom(10**6))
    size, number = 100 * 4 * 2 * 100_000 * 8, 10**6
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=size - number))
    space.check_space(config(), 4, 100_000, tmp_path)
    with pytest.raises(ConfigError, match="GB free"):
        space.check_space(config(), 4, 100_000, tmp_path, begun=0)


def test_natural_parameters_need_room_beside_the_draws(tmp_path, monkeypatch):
    room = 100 * (4 * 2 * 100_000 * 8 + 50)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=room))
    space.check_space(config(), 4, 100_000, tmp_path, beside=50)
    with pytest.raises(ConfigError, match="GB free"):
        space.check_space(config(), 4, 100_000, tmp_path, beside=51)


@pytest.mark.parametrize(("covariance", "numbers"), [("full", 3 + 9), ("diagonal", 2 * 3)])
def test_natural_parameters_are_those_of_the_server_and_every_agent(covariance, numbers):
    algorithm = {"name": "pvi", "covariance": covariance, "global_iterations": 1, "particles": 5}
    values = {"clients": 2, "algorithm": algorithm, "model": {"name": "linear_regression"}}
    values |= {"data": {"name": "synthetic_linear", "features": 3}}
    with World(MPI.COMM_SELF) as world:
        prepared = prepare(world, make_config(values))
    assert space.natural_bytes(prepared) == 8 * numbers
    assert space.checkpoint_bytes(prepared, None) == prepared.theta.nbytes + 3 * 8 * numbers


def test_small_runs_say_nothing(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        space.check_space(config(), 4, 3, tmp_path)
    assert not caplog.text
