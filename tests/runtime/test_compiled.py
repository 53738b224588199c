"""The compile cache: used at the next start, never stale, never trusted when not ours, done without if need be."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedlangevin_mpi.runtime.compiled import Compiler


def add_one(x):
    x[:] = x + 1


PROGRAM = """
import sys
import numpy as np
from fedlangevin_mpi.runtime.compiled import Compiler
from fedlangevin_mpi.runtime.streams import draw_without_replacement

compiler = Compiler()
sample = np.zeros((1, 1, 1)), np.zeros(1, np.int64), 0, np.zeros((1, 1, 1, 1), np.int64), 0
compiler.compile(draw_without_replacement, *sample)
print(compiler.cache_hits(draw_without_replacement))
"""


def start(home, program=PROGRAM, **environment):
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"XDG_CACHE_HOME": str(home)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_the_second_start_does_not_compile(tmp_path):
    assert start(tmp_path) == "0"
    assert start(tmp_path) == "1"


def test_a_cache_folder_that_cannot_be_made_is_done_without(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    assert start(in_the_way) == "0"
    assert start(in_the_way) == "0"


def test_a_folder_that_others_may_write_is_not_trusted(tmp_path):
    ours = Compiler(directory=tmp_path)
    ours.directory.chmod(0o777)
    other = Compiler(directory=tmp_path)
    assert ours.directory.parent == tmp_path
    assert other.directory.parent != tmp_path


def test_another_fingerprint_is_another_folder(tmp_path):
    assert Compiler("a", tmp_path).directory != Compiler("b", tmp_path).directory


def test_a_full_cache_folder_is_done_without(tmp_path, monkeypatch):
    from numba.core.caching import IndexDataCacheFile

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, "save", full)
    x = np.zeros(3)
    Compiler(directory=tmp_path).compile(add_one, x)(x)
    assert x.tolist() == [1, 1, 1]


USER_MODEL = """
import numba
import fedlangevin_mpi

@numba.njit
def gradient(theta, x, y):
    return {factor} * theta

def make_model():
    return fedlangevin_mpi.CustomModel(dim=2, gradient=gradient)
"""

USER_RUN = """
import fedlangevin_mpi
from fedlangevin_mpi.config import make_config

config = make_config({"clients": 1, "iterations": 1, "engine": "compiled", "output": {"directory": "run"},
    "algorithm": {"name": "fed_avg", "step_size": 0.1}, "model": {"name": "custom", "factory": "mine:make_model"},
    "data": {"name": "synthetic_linear", "features": 2, "rows": 5}, "initial": {"name": "file", "path": "start.npz"}})
print(fedlangevin_mpi.run(config, force=True).average()[0, 0].tolist())
"""


@pytest.mark.parametrize("edited_helper", [False, True])
def test_an_edited_gradient_is_never_served_stale(tmp_path, monkeypatch, edited_helper):
    monkeypatch.chdir(tmp_path)
    np.savez("start.npz", position=np.ones((1, 2)))
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    for factor, expected in [(1.0, 0.9), (2.0, 0.8)]:
        if edited_helper:
            (tmp_path / "helper.py").write_text(USER_MODEL.format(factor=factor))
            (tmp_path / "mine.py").write_text("from helper import make_model\n")
        else:
            (tmp_path / "mine.py").write_text(USER_MODEL.format(factor=factor))
        moved = start(tmp_path / "cache", USER_RUN, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1")
        assert moved == str([expected] * 2)
