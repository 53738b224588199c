"""What a run did and how long it took, over all of its segments."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from fedlangevin_mpi.algorithms.base import Algorithm
from fedlangevin_mpi.comm.ledger import Ledger

_LEDGER = ("rounds", "messages", "bytes", "exchanges")
_SECONDS = ("wall_seconds", "setup_seconds", "compile_seconds", "sampling_seconds")


class Account:
    """Counts of a run, which a checkpoint keeps and a resume goes on with.

    Args:
        ledger: of its exchanges.
        started: `time.perf_counter()` when this segment was started.

    Attributes:
        ledger: of the exchanges.
    """

    def __init__(self, ledger: Ledger, started: float) -> None:
        self.ledger = ledger
        self._gradients = 0
        self._mpi_bytes = 0  # of earlier segments, as the seconds here
        self._before = dict.fromkeys(_SECONDS, 0.0)
        self._started = self._sampling_since = started
        self._compiling = 0.0
        self._sampling: float | None = None

    def sampling_begins(self, compile_seconds: float) -> None:
        """Note the end of set-up."""
        self._sampling_since, self._compiling = time.perf_counter(), compile_seconds

    def sampling_ends(self) -> None:
        """Note the end of the last iteration."""
        self._sampling = time.perf_counter() - self._sampling_since

    def count_begin(self, exchanges: int) -> None:
        """Add what `begin` did: a full gradient of every client, and exchanges."""
        self.ledger.count_begin(exchanges)
        self._gradients += self.ledger.clients * self.ledger.chains

    def count_turns(self, rows: Sequence[int], gradients: int) -> None:
        """Add a global iteration of a server in which agents sent so many rows each; none are counted of nobody."""
        if rows:
            self.ledger.count_uploads(rows)
        self._gradients += gradients

    def count(self, algorithm: Algorithm, draws: Any, start: int, stop: int) -> None:
        """Add the iterations `start <= k < stop` of an algorithm's block."""
        self.ledger.count(algorithm.traffic(draws), start, stop)
        evaluations = (stop - start) * algorithm.gradients_per_iteration
        evaluations += algorithm.full_gradients(draws, start, stop)
        self._gradients += evaluations * self.ledger.clients * self.ledger.chains

    def counts(self, mpi_bytes: int) -> dict[str, int | float]:
        """Return what a checkpoint keeps.

        Args:
            mpi_bytes: that all ranks gave to MPI in this segment.
        """
        ledger = {name: getattr(self.ledger, name) for name in _LEDGER}
        return {"gradients": self._gradients, "mpi_bytes": self._mpi_bytes + mpi_bytes, **ledger, **self._seconds()}

    def restore(self, counts: Mapping[str, int | float]) -> None:
        """Go on from what `counts` returned in an earlier segment."""
        self._gradients, self._mpi_bytes = int(counts["gradients"]), int(counts["mpi_bytes"])
        for name in _LEDGER:
            setattr(self.ledger, name, int(counts[name]))
        self._before = {name: float(counts[name]) for name in _SECONDS}

    def statistics(self, iterations: int, mpi_bytes: int) -> dict[str, Any]:
        """Return what `statistics.json` holds of a run that did so many iterations in all."""
        counts = self.counts(mpi_bytes)
        seconds = self._seconds()
        return {
            "iterations": iterations,
            "iterations_per_second": iterations / seconds.pop("sampling_seconds"),
            "gradient_evaluations": self._gradients,
            "communication": {name: counts[name] for name in ("rounds", "messages", "bytes", "mpi_bytes")},
            **seconds,
        }

    def _seconds(self) -> dict[str, float]:
        now = time.perf_counter()
        here = {
            "wall_seconds": now - self._started,
            "setup_seconds": self._sampling_since - self._started - self._compiling,
            "compile_seconds": self._compiling,
            "sampling_seconds": now - self._sampling_since if self._sampling is None else self._sampling,
        }
        return {name: self._before[name] + here[name] for name in _SECONDS}
