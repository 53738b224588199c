"""How far the kernel goes at a time, and when a run is to stop or to write a checkpoint: what its ranks agree on."""

from __future__ import annotations

import signal
import time
from typing import NamedTuple

from fedlangevin_mpi.config import Output, RunConfig
from fedlangevin_mpi.errors import StoppedError
from fedlangevin_mpi.runtime.signals import StopRequest
from fedlangevin_mpi.runtime.watchdog import Watchdog

_CALL_SECONDS = 0.5
_GROWTH = 16  # at most, from call to call: one iteration says little about many
_TIME_IS_UP = 1 << 10
"""Beyond the numbers of signals."""


class Wishes(NamedTuple):
    """What one rank wants, as numbers of which the highest of all ranks holds.

    Attributes:
        stop: why the run is to stop, or 0.
        checkpoint: whether one is due.
        length: how many iterations the next call of the kernel may run.
    """

    stop: int
    checkpoint: int
    length: int


class Pace:
    """What this rank wants; of time, only rank 0 has a say.

    Signals are looked at between two calls of the kernel, which therefore run about half a second each: whole blocks
    of a quick model, slices of a slow one's.

    Args:
        output: of the config.
        request: notes signals.
        root: whether this is rank 0.
        started: `time.perf_counter()` when the run was started.
        watchdog: hears that calls of the kernel come to their ends.
    """

    def __init__(self, output: Output, request: StopRequest, root: bool, started: float, watchdog: Watchdog) -> None:
        self._output, self._request, self._root, self._started = output, request, root, started
        self._watchdog = watchdog
        self._saved = time.perf_counter()
        self._length = 1

    def saved(self) -> None:
        """Note that a checkpoint was written."""
        self._watchdog.fed()
        self._saved = time.perf_counter()

    def alive(self) -> None:
        """Note that this rank has nothing to do but wait for its turn."""
        self._watchdog.fed()

    def took(self, seconds: float, iterations: int) -> None:
        """Note how long a call of the kernel took."""
        self._watchdog.fed()
        fitting = int(_CALL_SECONDS * iterations / max(seconds, 1e-9))
        self._length = min(max(1, fitting), _GROWTH * iterations)

    def wishes(self) -> Wishes:
        """Return what this rank wants now."""
        stop = self._request.number
        if not self._root:
            return Wishes(stop, 0, 1)
        now, limit = time.perf_counter(), self._output.max_seconds
        if limit is not None and now - self._started >= limit:
            stop = _TIME_IS_UP
        return Wishes(stop, now - self._saved >= self._output.checkpoint_seconds, self._length)


def stopped(stop: int, iteration: int, config: RunConfig) -> StoppedError:
    """Return the error that says why a run was stopped, and how it goes on."""
    return StoppedError(
        f"{_reason(stop)}: stopped after {iteration} of {config.iterations} iterations, with a checkpoint; go on with: "
        f"fedlangevin resume {config.output.directory}"
    )


def _reason(stop: int) -> str:
    return "output.max_seconds is over" if stop >= _TIME_IS_UP else f"{signal.Signals(stop).name} came"
