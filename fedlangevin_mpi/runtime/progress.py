"""How far a run is: a bar on a terminal, a line in the log now and then elsewhere."""

from __future__ import annotations

import io
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from rich.console import Console
from rich.filesize import decimal
from rich.progress_bar import ProgressBar

if TYPE_CHECKING:
    from fedlangevin_mpi.comm.ledger import Ledger  # (whose package starts MPI)

Array = np.ndarray[Any, np.dtype[Any]]

log = logging.getLogger(__name__)

TERMINAL = "FEDLANGEVIN_TERMINAL"
"""The variable by which the launcher tells rank 0, whose own output is a pipe, how wide the user's terminal is."""

CLEAR_LINE = "\x1b[2K"

_LINE_SECONDS = 10.0
_BAR_SECONDS = 0.25
_R_HAT_SECONDS = 2.0
_LOOK_SECONDS = 0.02
_STATES = 200  # kept to judge chains by, twice as far apart whenever there are twice as many
_COORDINATES = 10


class Progress:
    """What is said while a run goes on. A context manager: leaving it ends the bar's line.

    Args:
        iterations: to go to.
        done: at the start.
        terminal: columns of the terminal that shows a bar; None: there is none, and lines are logged.
        stream: of the bar; standard error by default.
        clock: seconds.
    """

    def __init__(
        self,
        iterations: int,
        done: int = 0,
        terminal: int | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._iterations, self._first, self._clock = iterations, done, clock
        self._terminal, self._stream = terminal, stream or sys.stderr
        self._began = self._said = clock()
        self._looked: float = -np.inf
        self._states = States()
        self._drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._drawn:
            self._stream.write("\n")
            self._stream.flush()

    def see(self, iteration: int, ledger: Ledger, theta: Array | None = None) -> None:
        """Take note of a run after a block; cheap unless it is time to say something.

        Args:
            iteration: the next one.
            ledger: of its exchanges.
            theta: `(clients_here, chains, dim)` positions of chains; None of particles, which are no chains.
        """
        now, last = self._clock(), iteration >= self._iterations
        if theta is not None and now - self._looked >= _LOOK_SECONDS:  # (blocks may take a millisecond)
            self._looked = now
            self._states.see(theta)
        if self._terminal is not None and (last or now - self._said >= _BAR_SECONDS):
            self._said = now
            self._draw(iteration, self._facts(iteration, ledger, now), self._terminal)
        elif self._terminal is None and now - self._said >= _LINE_SECONDS:
            self._said = now
            log.info("iteration %d of %d, %s", iteration, self._iterations, self._facts(iteration, ledger, now))

    def _facts(self, iteration: int, ledger: Ledger, now: float) -> str:
        parts = []
        if now > self._began and iteration > self._first:
            rate = (iteration - self._first) / (now - self._began)
            parts += [
                f"{rate:,.0f} a second",
                f"{timedelta(seconds=round((self._iterations - iteration) / rate))} left",
            ]
        if ledger.rounds:
            parts.append(f"{ledger.rounds:,} rounds, {decimal(ledger.bytes)}")
        return ", ".join([*parts, *self._states.facts(now)])

    def _draw(self, iteration: int, facts: str, width: int) -> None:
        # Ended by a carriage return and one thing more: who reads lines, as the launcher does, passes it on at once.
        text = bar(iteration, self._iterations, facts, width)
        self._stream.write(f"{CLEAR_LINE}{text}\r\x1b[0m")
        self._stream.flush()
        self._drawn = True


class States:
    """Some positions of the clients here, kept to say how chains and clients agree so far."""

    def __init__(self) -> None:
        self._kept: list[Array] = []
        self._every, self._count = 1, 0
        self._theta: Array | None = None
        self._judged_at, self._r_hat = -np.inf, np.nan

    def see(self, theta: Array) -> None:
        """Keep positions `(clients_here, chains, dim)`, if it is their turn."""
        self._theta = theta
        if self._count % self._every == 0:
            step = max(1, -(-theta.shape[2] // _COORDINATES))
            self._kept.append(theta[:, :, ::step].mean(axis=0, dtype=np.float64))
        self._count += 1
        if len(self._kept) >= 2 * _STATES:
            self._kept, self._every = self._kept[::2], 2 * self._every

    def facts(self, now: float) -> list[str]:
        """Return what there is to say; R-hat of the second half of what was kept, at most every two seconds."""
        found = []
        if now - self._judged_at >= _R_HAT_SECONDS and len(self._kept) >= 8:
            from fedlangevin_mpi.evaluate.diagnostics import r_hat  # a second, which a short run need not spend

            values = r_hat(np.stack(self._kept[len(self._kept) // 2 :], axis=1))
            self._judged_at, self._r_hat = now, np.nanmax(values) if np.isfinite(values).any() else np.nan
        if np.isfinite(self._r_hat):
            found.append(f"R-hat {self._r_hat:.3f}")
        if self._theta is not None and len(self._theta) > 1:
            off = self._theta - self._theta.mean(axis=0)
            found.append(f"clients {np.sqrt(np.square(off).sum(-1).mean()):.2g} apart")
        return found


def terminal_width(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the columns of the terminal that shows what this process says; None where there is none."""
    told = environment.get(TERMINAL, "")
    if told.isdigit():
        return int(told)
    return shutil.get_terminal_size().columns if sys.stderr.isatty() else None


def bar(done: int, total: int, facts: str, width: int) -> str:
    """Return a bar of one line with what is to be said beside it, as a terminal shows it."""
    console = Console(file=io.StringIO(), force_terminal=True, width=width, legacy_windows=False)
    length = min(30, width // 4)
    beside = f" {100 * done // max(1, total):3d} %  {facts}"[: max(0, width - length - 1)]
    with console.capture() as captured:
        console.print(ProgressBar(total, done, width=length), end="")
    return captured.get() + beside
