"""How a pytest session under mpirun fails (tests/mpi/conftest.py): quickly, visibly, with the failed rank's name."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Session = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """Return a function that runs a file of tests on so many ranks as launch/test.sh does."""

    def run(ranks: int, text: str, *options: str) -> subprocess.CompletedProcess[str]:
        shutil.copy(Path(__file__).parent / "mpi" / "conftest.py", tmp_path)
        (tmp_path / "test_it.py").write_text(f"import pytest\nfrom mpi4py import MPI\n\ncomm = MPI.COMM_WORLD\n{text}")
        pytest_here = ["-m", "mpi4py", "-m", "pytest", "-p", "no:cacheprovider", "-rA", *options, "test_it.py"]
        command = [sys.executable, "-m", "fedlangevin_mpi.runtime.launcher", str(ranks), sys.executable, *pytest_here]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    return run


def test_only_rank_0_reports(session: Session) -> None:
    done = session(3, "def test_a(): assert comm.allreduce(1) == 3\n", "--with-mpi", "--expect-ranks=3")
    assert done.returncode == 0
    assert done.stdout.count("1 passed") == 1
    assert done.stderr == ""


def test_failed_rank_that_others_wait_for_ends_the_job(session: Session) -> None:
    started = time.monotonic()
    done = session(3, "def test_a():\n    assert comm.rank != 1, 'broken'\n    comm.Barrier()\n", "--with-mpi")
    assert time.monotonic() - started < 20
    assert done.returncode != 0
    assert "rank 1 of 3: test_it.py::test_a failed" in done.stderr
    assert "AssertionError: broken" in done.stderr


@pytest.mark.parametrize("where", ["test", "setup", "teardown"])
def test_failure_of_one_rank_fails_the_test_and_the_next_one_runs(session: Session, where: str) -> None:
    text = f"""
@pytest.fixture
def thing():
    assert comm.rank != 2 or {where != "setup"}
    yield
    assert comm.rank != 2 or {where != "teardown"}

def test_a(thing):
    print("seen by", comm.rank)
    assert comm.rank != 2 or {where != "test"}

def test_b():
    assert comm.allreduce(1) == 3
"""
    done = session(3, text, "--with-mpi")
    assert done.returncode == 1
    assert "rank 2 of 3" in done.stdout
    assert "rank 1 of 3" not in done.stdout
    assert "PASSED test_it.py::test_b" in done.stdout
    assert ("seen by 2" in done.stdout) == (where != "setup")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "def test_a(): pass\n"),
        (["--with-mpi"], "def test_a(): pytest.skip('not today')\n"),
        (["--with-mpi"], "@pytest.mark.mpi(min_size=2)\n@pytest.mark.mpi_skip\ndef test_a(): pass\n"),
    ],
)
def test_test_that_did_not_run_fails_the_session(session: Session, options: list[str], text: str) -> None:
    done = session(2, text, *options, "--expect-ranks=2")
    assert done.returncode == 1
    assert "DID NOT RUN on 2 ranks: test_it.py::test_a" in done.stdout


def test_test_for_more_ranks_may_be_skipped(session: Session) -> None:
    text = "@pytest.mark.mpi(min_size=2)\ndef test_a(): pass\ndef test_b(): pass\n"
    done = session(1, text, "--with-mpi", "--expect-ranks=1")
    assert done.returncode == 0
    assert "1 passed, 1 skipped" in done.stdout


def test_other_number_of_ranks_than_expected_is_refused(session: Session) -> None:
    done = session(2, "def test_a(): pass\n", "--with-mpi", "--expect-ranks=3")
    assert done.returncode != 0
    assert "--expect-ranks=3, but this is rank" in done.stderr


def test_file_that_one_rank_cannot_import_is_named(session: Session) -> None:
    done = session(2, "assert comm.rank != 1, 'not here'\ndef test_a(): pass\n", "--with-mpi")
    assert done.returncode != 0
    assert "rank 1 of 2: test_it.py cannot be collected" in done.stderr
