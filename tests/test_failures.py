"""What one rank suffers ends the whole run: in seconds, with a status, and with the rank's name."""

import os
import signal
import subprocess
import sys
import time

import pytest

from fedlangevin_mpi.config import to_yaml
from fedlangevin_mpi.store.reader import open_run

MODEL = """
import os, sys, time
import numpy as np
import fedlangevin_mpi

calls = 0

def make_model(what):
    def gradient(theta, x, y):
        global calls
        calls += 1
        if "1" in map(os.environ.get, ("OMPI_COMM_WORLD_RANK", "PMI_RANK")) and calls > 500:
            {"raise": lambda: 1 / 0, "exit": lambda: sys.exit(0), "sleep": lambda: time.sleep(0.01)}[what]()
        return theta * len(x)

    return fedlangevin_mpi.CustomModel(dim=2, gradient=gradient)
"""


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a run of a custom model on 2 ranks, whose rank 1 meets its fate."""

    def begin(what, iterations=1000):
        (tmp_path / "fated.py").write_text(MODEL)
        values = {
            "clients": 4,
            "iterations": iterations,
            "algorithm": {"name": "fald", "step_size": 1e-3, "communication_probability": 0.5},
            "model": {"name": "custom", "factory": "fated:make_model", "options": {"what": what}},
            "data": {"name": "synthetic_linear", "features": 2, "rows": 10},
            "output": {"directory": str(tmp_path / "run")},
        }
        (tmp_path / "config.yaml").write_text(to_yaml(values))
        command = [sys.executable, "-m", "fedlangevin_mpi", "run", "config.yaml", "--ranks", "2"]
        return subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    return begin


def test_an_exception_on_one_rank_ends_the_run_and_names_it(start):
    process = start("raise")
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "rank 1 failed (clients 2 to 3) in iterations 1 to " in stderr
    assert "ZeroDivisionError" in stderr


def test_a_rank_that_exits_does_not_leave_the_others_waiting(start):
    process = start("exit")
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "rank 1 failed" in stderr
    assert "SystemExit" in stderr


def test_a_killed_rank_ends_the_run_and_what_was_committed_is_readable(start, tmp_path):
    process = start("sleep", iterations=10**6)
    ranks = wait_for(lambda: children(process.pid), 2)
    wait_for(lambda: list((tmp_path / "run").glob("rank-*.h5")), 2)
    time.sleep(1.0)
    os.kill(ranks[1], signal.SIGKILL)
    killed = time.monotonic()
    process.communicate(timeout=60)
    wait_for(lambda: [rank for rank in ranks if not os.path.exists(f"/proc/{rank}")], 2)  # init reaps orphans late
    assert time.monotonic() - killed < 10
    assert process.returncode == 1
    assert open_run(tmp_path / "run").draws >= 0


def children(pid):
    """Return the Python ranks below a launcher: grandchildren of mpirun's parent."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    table = [line.split(None, 2) for line in listed.splitlines()[1:]]
    below = {pid}
    for _ in range(4):
        below |= {int(child) for child, parent, _ in table if int(parent) in below}
    return sorted(
        int(p)
        for p, _, args in table
        if int(p) in below - {pid} and "fedlangevin_mpi run -- " in args and "mpirun" not in args
    )


def wait_for(look, count, seconds=40):
    """Look until there are `count` things, and return them."""
    deadline = time.monotonic() + seconds
    while len(found := look()) < count:
        assert time.monotonic() < deadline, f"found only {found}"
        time.sleep(0.1)
    return found
