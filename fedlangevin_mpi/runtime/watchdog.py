"""Ends a run that got stuck, after every rank wrote where it is."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
import time
from pathlib import Path
from typing import IO

from fedlangevin_mpi.comm.world import World

_GRACE_SECONDS = 2.0  # for all ranks to write, before the first one ends the job
_TURN_SECONDS = 0.5  # between two ranks that both would end it: one message is enough
_REARM_SECONDS = 1.0  # to set the timer costs 0.1 ms


class Watchdog:
    """Watches that calls of the kernel come to their ends. A context manager; without `seconds` it does nothing.

    When none did for so long, a timer that needs no interpreter writes this rank's stack to its log, and a little later
    a thread says so and ends the job with status 1. That thread runs while the kernel does: compiled ones free the
    interpreter. A call that holds it, in code of a user's own, keeps its own rank from speaking, not the others.

    Args:
        world: the ranks.
        seconds: that a call of the kernel, with what is stored after it, may take.
        log: file of this rank's log.
    """

    def __init__(self, world: World, seconds: float | None, log: Path) -> None:
        self._world, self._seconds, self._log = world, seconds, log
        self._alive = self._armed = time.monotonic()
        self._over = threading.Event()
        self._file: IO[str] | None = None

    def __enter__(self) -> Watchdog:
        if self._seconds is not None:
            self._file = self._log.open("a", encoding="utf-8")
            self._arm(self._seconds)
            threading.Thread(target=self._watch, args=[self._seconds], daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        if self._file is not None:
            faulthandler.cancel_dump_traceback_later()
            self._file.close()

    def fed(self) -> None:
        """Note that a call of the kernel came to its end."""
        if self._seconds is not None:
            self._alive = time.monotonic()
            if self._alive - self._armed > _REARM_SECONDS:
                self._arm(self._seconds)

    def _arm(self, seconds: float) -> None:
        self._armed = time.monotonic()
        assert self._file is not None
        faulthandler.dump_traceback_later(seconds + _REARM_SECONDS, file=self._file)

    def _watch(self, seconds: float) -> None:
        allowed = seconds + _REARM_SECONDS + _GRACE_SECONDS + min(self._world.rank, 16) * _TURN_SECONDS
        while not self._over.wait(min(1.0, seconds / 4)):
            if time.monotonic() - self._alive > allowed:
                self._end(seconds)

    def _end(self, seconds: float) -> None:
        sys.stderr.write(
            f"fedlangevin: no block was finished for {seconds:g} s; rank {self._world.rank} {self._world.where()}; "
            f"where each rank hangs stands in {self._log.parent}\n"
        )
        sys.stderr.flush()
        with contextlib.suppress(Exception):
            if self._world.size > 1:
                self._world.comm.Abort(1)
        os._exit(1)
