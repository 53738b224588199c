"""Tests under mpirun: the ranks' pytest sessions are one. Rank 0 reports, and a failed rank keeps nobody waiting.

Every test here runs on all ranks. A plain `assert` will do: after each test all ranks hear of the failures of all.
Where the others do not come to hear, because they wait for the failed rank in the middle of the test, the failed rank
prints its traceback and ends the job.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

GRACE_SECONDS = 3.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--expect-ranks",
        type=int,
        metavar="N",
        help="fail unless N ranks run all the tests that N ranks are enough for",
    )


@pytest.hookimpl(trylast=True)  # after pytest has made its terminal reporter
def pytest_configure(config: pytest.Config) -> None:
    expected = config.getoption("--expect-ranks", None)
    if expected is not None:
        config.pluginmanager.register(EveryTestRan(expected))
    if config.getoption("--with-mpi"):
        config.pluginmanager.register(OneSession(config, expected))


@pytest.hookimpl(tryfirst=True)  # before pytest-mpi looks for the mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("mpi") is None:
            item.add_marker(pytest.mark.mpi)


class EveryTestRan:
    """Fails a session that skipped a test for another reason than too few ranks, such as a missing `--with-mpi`."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.missing: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        marks = {item.nodeid: item.iter_markers("mpi") for item in session.items}
        self.missing = {
            test for test, found in marks.items() if all(m.kwargs.get("min_size", 1) <= self.ranks for m in found)
        }

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and not report.skipped:
            self.missing.discard(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.missing and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test in sorted(self.missing):
            terminalreporter.write_line(f"DID NOT RUN on {self.ranks} ranks: {test}", red=True)


class OneSession:
    """Makes the outcome of a test the same on all ranks, and rank 0's report that of all."""

    def __init__(self, config: pytest.Config, expected: int | None) -> None:
        from mpi4py import MPI

        self.comm = MPI.COMM_WORLD.Dup()
        self.name = f"rank {self.comm.rank} of {self.comm.size}"
        self.capture = config.pluginmanager.getplugin("capturemanager")
        if expected not in (None, self.comm.size):
            raise pytest.UsageError(f"--expect-ranks={expected}, but this is {self.name}")
        if self.comm.rank != 0:
            config.pluginmanager.unregister(name="terminalreporter")

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # outermost: the outcome after xfail has been applied
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        # Twice a test on every rank, wherever it fails: the last of setup and call, then teardown.
        if not (report.when == "setup" and report.passed):
            self._agree(report)
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and self.comm.rank != 0:
            self._say(f"{report.nodeid} cannot be collected\n{report.longreprtext}")

    def pytest_unconfigure(self) -> None:
        self._wait(2 * GRACE_SECONDS)  # the first rank to exit with a status other than 0 ends the others' reports

    def _agree(self, report: pytest.TestReport) -> None:
        mine = self._failure(report) if report.failed else ""
        if not self._wait(GRACE_SECONDS if report.failed else math.inf):
            self._say(f"{report.nodeid} failed, the other ranks wait for it: this ends the job\n{mine}")
            self.comm.Abort(1)
        failures = [text for text in self.comm.allgather(mine) if text]
        if failures:
            report.outcome = "failed"
            report.longrepr = "\n".join(failures)
            report.sections = []

    def _failure(self, report: pytest.TestReport) -> str:
        captured = [f"--- {title} ---\n{text}" for title, text in report.sections]
        return "\n".join([f"=== {self.name} ===", report.longreprtext, *captured])

    def _wait(self, seconds: float) -> bool:
        """Wait for all ranks, without taking the core from those that still work."""
        arrived = self.comm.Ibarrier()
        deadline = time.monotonic() + seconds
        while not arrived.Test():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True

    def _say(self, text: str) -> None:
        with self.capture.global_and_fixture_disabled():
            print(f"\n{self.name}: {text}", file=sys.stderr, flush=True)
