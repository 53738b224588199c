"""What one rank suffers ends the whole run: in seconds, with a status, and with the rank's name."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from fedlangevin_mpi.config import to_yaml
from fedlangevin_mpi.store.reader import open_run

MODEL = """
import os, resource, shutil, signal, sys, time
import numpy as np
import fedlangevin_mpi

calls = 0

def full():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))

FATES = {
    "raise": lambda: 1 / 0,
    "exit": lambda: sys.exit(0),
    "sleep": lambda: time.sleep(0.01),
    "hang": lambda: time.sleep(1000),
    "full": full,
    "vanish": lambda: shutil.rmtree("run", ignore_errors=True),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "nan": lambda: np.nan,
}

def make_model(what):
    def gradient(theta, x, y):
        global calls
        calls += 1
        rank_1 = "1" in map(os.environ.get, ("OMPI_COMM_WORLD_RANK", "PMI_RANK"))
        fated = rank_1 and calls > 500 and not os.path.exists("healed")
        outcome = FATES[what]() if fated else None
        return theta * len(x) + (0.0 if outcome is None else outcome)

    return fedlangevin_mpi.CustomModel(dim=2, gradient=gradient)
"""


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a run of a custom model on 2 ranks, whose rank 1 meets its fate."""

    def begin(what, iterations=1000, **output):
        (tmp_path / "fated.py").write_text(MODEL)
        values = {
            "clients": 4,
            "chains": 4,
            "iterations": iterations,
            "algorithm": {"name": "fald", "step_size": 1e-3, "communication_probability": 0.5},
            "model": {"name": "custom", "factory": "fated:make_model", "options": {"what": what}},
            "data": {"name": "synthetic_linear", "features": 2, "rows": 10},
            "output": {"directory": "run"} | output,
        }
        (tmp_path / "config.yaml").write_text(to_yaml(values))
        return command(tmp_path, "run", "config.yaml", "--ranks", "2")

    return begin


def command(folder, *arguments):
    program = [sys.executable, "-m", "fedlangevin_mpi", *arguments]
    return subprocess.Popen(program, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def resumed(folder, *overrides):
    """Go on with a run whose cause of failure is gone; return its statistics."""
    (folder / "healed").touch()
    process = command(folder, "resume", "run", "--ranks", "2", *overrides)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert not list(folder.rglob("*.partial"))
    opened = open_run(folder / "run")
    assert opened.draws == opened.statistics.iterations
    return opened.statistics


def test_an_exception_on_one_rank_ends_the_run_and_names_it(start, tmp_path):
    process = start("raise")
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert re.search(r"rank 1 failed \(clients 2 to 3\) in iterations \d+ to \d+\n", stderr)
    assert "ZeroDivisionError" in stderr
    assert resumed(tmp_path).gradient_evaluations == 1000 * 4 * 4


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


@pytest.mark.parametrize(
    ("fate", "message"),
    [
        ("full", r"rank 1 \(clients 2 to 3\) in iterations .*run/rank-00001.h5: cannot be written"),
        ("nan", r"client 2 \(rank 1\), chain 0: the position stopped being finite in iteration "),
        (
            "kill",
            r"(rank 1 \(clients 2 to 3\) was killed|a rank was killed, or mpirun failed \(status 9\)); "
            "draws that were committed are kept; go on with: fedlangevin r",
        ),
    ],
)
def test_it_ends_on_all_ranks_is_named_and_can_be_resumed(start, tmp_path, fate, message):
    process = start(fate)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert re.search(message, stderr)
    before = open_run(tmp_path / "run").draws
    assert resumed(tmp_path).iterations == 1000
    assert open_run(tmp_path / "run").draws >= before


def test_a_folder_that_vanishes_is_said_and_not_made_again(start, tmp_path):
    process = start("vanish", iterations=10**6)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "cannot be written" in stderr
    assert not (tmp_path / "run").exists()


def test_a_hang_is_noticed_by_the_watchdog_which_says_where_every_rank_is(start, tmp_path):
    process = start("hang", watchdog_seconds=0.5)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "no block was finished for 0.5 s" in stderr
    logs = [(tmp_path / "run" / "log" / f"rank-0000{rank}.log").read_text() for rank in range(2)]
    assert "average.py" in logs[0]  # where it waits for the other
    assert "fated.py" in logs[1]
    assert resumed(tmp_path, "output.watchdog_seconds=null").iterations == 1000


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGINT])
def test_a_signal_to_the_launcher_stops_the_run_with_a_checkpoint(start, tmp_path, number):
    (tmp_path / "healed").touch()
    process = start("raise", iterations=10**7)
    wait_for(lambda: list((tmp_path / "run").glob("rank-*.h5")), 2)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 75
    assert "SIGUSR1 came: stopped after " in stderr
    assert "go on with: fedlangevin resume run" in stderr
    assert "Traceback" not in stderr
    assert list((tmp_path / "run" / "checkpoint").glob("*/manifest.json"))


def test_summary_and_export_may_look_at_any_time(start, tmp_path):
    from fedlangevin_mpi.cli import main

    process = start("sleep", iterations=120, checkpoint_seconds=0.2)
    wait_for(lambda: list((tmp_path / "run").glob("rank-*.h5")), 2)
    wait_for(lambda: range(open_run(tmp_path / "run").draws), 1)  # before, there is nothing to export
    seen = []
    while process.poll() is None:
        run = str(tmp_path / "run")
        for arguments in (["summary", "--json", run], ["export", run, f"{run}.nc"]):
            with pytest.raises(SystemExit) as ended:
                main(arguments)
            assert ended.value.code == 0
        seen.append(open_run(tmp_path / "run").draws)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert seen == sorted(seen)
    assert open_run(tmp_path / "run").draws == 120


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
