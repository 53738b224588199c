from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.runtime.launcher import become_mpirun, environment, launch, mpirun, without_epilogue
from fedlangevin_mpi.runtime.placement import place

RULE = "-" * 74 + "\n"
LAUNCHER = [sys.executable, "-m", "fedlangevin_mpi.runtime.launcher"]


def python(ranks: int, text: str) -> subprocess.CompletedProcess[str]:
    command = [*LAUNCHER, str(ranks), sys.executable, "-c", "from mpi4py import MPI; " + text]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_root_is_allowed_only_to_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "OMPI_ALLOW_RUN_AS_ROOT" not in environment(1, {})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert environment(1, {})["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"


def test_ranks_yield_only_when_they_share_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert "OMPI_MCA_mpi_yield_when_idle" not in environment(2, {})
    assert environment(3, {})["OMPI_MCA_mpi_yield_when_idle"] == "1"


def test_no_colours_but_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal in (True, False):
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda terminal=terminal: terminal))
        assert ("NO_COLOR" in environment(1, {})) != terminal


def test_what_the_user_set_is_kept() -> None:
    assert (
        environment(2, {"OMPI_MCA_btl": "self,sm", "HOME": "/h"}).items()
        >= {"OMPI_MCA_btl": "self,sm", "HOME": "/h"}.items()
    )


def test_no_mpirun_says_where_it_was_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=f"neither {tmp_path}/mpirun nor in PATH"):
        mpirun()


def test_own_mpirun_goes_before_that_in_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("own", "site"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mpirun").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "site"))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "own"))
    assert mpirun() == str(tmp_path / "own" / "mpirun")
    (tmp_path / "own" / "mpirun").unlink()
    assert mpirun() == str(tmp_path / "site" / "mpirun")


def test_only_what_the_program_said_already_is_dropped() -> None:
    lost = "[host:17] PMIX ERROR: PMIX_ERR_UNREACH in file pmix_server.c at line 3146\n"
    aborted = [RULE, "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\n", "  Errorcode: 1\n", RULE]
    killed = [RULE, "prterun noticed that process rank 1 exited on\n", "signal 9 (Killed).\n", RULE]
    ended = [RULE, "prterun detected that one or more processes exited with non-zero status,\n", "\n", RULE, "\0"]
    version_4 = [RULE, "Primary job  terminated normally, but 1 process returned\n", "a non-zero exit code.\n", RULE]
    said = ["one\n", "\n", lost, "[warn] Epoll MOD(4) on fd 21 failed.\n", *aborted, *killed, *ended]
    assert list(without_epilogue([*said, *version_4, "two\n"])) == ["one\n", "\n", *killed, "two\n"]
    assert "".join(without_epilogue([RULE])) == RULE


@pytest.mark.parametrize("status", [0, 2, 75])
def test_status_and_output_are_the_programs_alone(status: int) -> None:
    done = python(3, f"import sys; print(MPI.COMM_WORLD.rank); sys.stderr.write('said\\n'); sys.exit({status})")
    assert done.returncode == status
    assert sorted(done.stdout.split()) == ["0", "1", "2"]
    assert done.stderr == "said\n" * 3


def test_killed_rank_ends_the_job_and_is_named() -> None:
    started = time.monotonic()
    done = python(2, "c = MPI.COMM_WORLD; import os; c.rank or os.kill(os.getpid(), 9); c.Barrier()")
    assert done.returncode != 0
    assert "rank 0" in done.stderr
    assert "signal 9" in done.stderr
    assert time.monotonic() - started < 20


def test_status_that_is_not_ours_becomes_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    for ended, expected in ((0, 0), (2, 2), (75, 75), (137, 1), (66, 1)):
        monkeypatch.setattr("fedlangevin_mpi.runtime.launcher.launch", lambda *_, ended=ended, **__: ended)
        with pytest.raises(SystemExit) as exited:
            become_mpirun(2, ["run", "x.yaml"], place(4, 2), Path("run"))
        assert exited.value.code == expected


def test_launching_leaves_signal_handlers_as_they_were() -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    assert launch(1, [sys.executable, "-c", ""]) == 0
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)] == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signals_reach_the_ranks(number: signal.Signals) -> None:
    wait = (
        "import signal, sys, time; from mpi4py import MPI; "
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75)); print('ready', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([*LAUNCHER, "2", sys.executable, "-c", wait], stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        assert [job.stdout.readline(), job.stdout.readline()] == ["ready\n"] * 2
        job.send_signal(number)
        assert job.wait(timeout=20) == 75 if number == signal.SIGUSR1 else job.wait(timeout=20) != 0


def test_the_rank_that_was_killed_and_its_clients_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ["prterun noticed that process rank 1 with PID 17 on node vm exited on\n", "signal 9 (Killed).\n"]

    def launched(*_: object, heard: Callable[[str], object], **__: object) -> int:
        return [heard(line) for line in said] and 137

    monkeypatch.setattr("fedlangevin_mpi.runtime.launcher.launch", launched)
    with pytest.raises(SystemExit) as exited:
        become_mpirun(2, ["run", "x.yaml"], place(5, 2), Path("runs/x"))
    assert exited.value.code == 1
    expected = "rank 1 (clients 3 to 4) was killed; draws that were committed are kept; go on with: fedlangevin resume"
    assert f"{expected} runs/x" in capsys.readouterr().err


ASKED = """
import signal
import sys
from fedlangevin_mpi.runtime.launcher import launch
program = "import signal, time; from mpi4py import MPI; signal.signal(signal.SIGUSR1, lambda *_: "
program += "print('asked', flush=True)); print('ready', flush=True); time.sleep(60)"
sys.exit(launch(2, [sys.executable, "-c", program], ask=signal.SIGUSR1))
"""


def test_the_first_signal_asks_and_the_second_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", ASKED], stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        assert [job.stdout.readline(), job.stdout.readline()] == ["ready\n"] * 2
        job.send_signal(signal.SIGINT)
        assert [job.stdout.readline(), job.stdout.readline()] == ["asked\n"] * 2
        assert job.poll() is None
        job.send_signal(signal.SIGINT)
        assert job.wait(timeout=20) != 0


def test_with_the_launcher_its_ranks_end() -> None:
    wait = "import os, time; from mpi4py import MPI; print(os.getpid(), flush=True); time.sleep(60)"
    with subprocess.Popen([*LAUNCHER, "2", sys.executable, "-c", wait], stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        ranks = [int(job.stdout.readline()) for _ in range(2)]
        job.kill()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{rank}").exists() for rank in ranks):
        assert time.monotonic() < deadline
        time.sleep(0.1)
