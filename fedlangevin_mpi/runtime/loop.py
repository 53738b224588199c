"""The block loop: draw, run the kernel, store, and stop together when something is wrong."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fedlangevin_mpi.algorithms.base import Algorithm
from fedlangevin_mpi.comm.ledger import Ledger
from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.errors import DivergedError, StoppedError, StoreError
from fedlangevin_mpi.networks.device import current
from fedlangevin_mpi.runtime.account import Account
from fedlangevin_mpi.runtime.blocks import Blocks, row_filler
from fedlangevin_mpi.runtime.channels import channel_of
from fedlangevin_mpi.runtime.checkpoint import Checkpoints, Snapshot
from fedlangevin_mpi.runtime.engine import Engine
from fedlangevin_mpi.runtime.pace import Pace, Wishes, stopped
from fedlangevin_mpi.runtime.predictive import DrawnPredictive
from fedlangevin_mpi.runtime.prepare import Prepared
from fedlangevin_mpi.runtime.progress import Progress
from fedlangevin_mpi.store.writer import DrawWriter

Array = np.ndarray[Any, np.dtype[Any]]

_STATE = "state_"
"""Begins the names of the algorithm's arrays in a checkpoint."""


class BlockLoop:
    """The state of a run on one rank, and the loop that advances it block by block.

    A context manager: its channel is freed on leaving.

    Args:
        world: the ranks.
        prepared: shards, data and initial positions of this rank.
        engine: makes functions ready to be called.
        started: `time.perf_counter()` when the run was started.
        predictive: averages the predictions of draws; None: none are wanted.

    Attributes:
        iteration: the next one.
    """

    def __init__(
        self,
        world: World,
        prepared: Prepared,
        engine: Engine,
        started: float,
        predictive: DrawnPredictive | None = None,
    ) -> None:
        config = prepared.config
        self._world, self._prepared, self._engine = world, prepared, engine
        assert isinstance(config.algorithm, Algorithm)
        self._config, self._algorithm = config, config.algorithm
        self.iteration, self._until, self._begins = 0, 1, True
        self._theta = prepared.theta
        self._state = self._algorithm.state(self._theta)
        self.blocks = Blocks(prepared, row_filler(engine, config))
        self._block = -1
        self._draws: Any = None
        self._batch: Any = None
        edges = prepared.mixing.edges if prepared.mixing else None
        ledger = Ledger(prepared.placement.total, config.chains, prepared.dim * self._theta.itemsize, edges)
        self.account = Account(ledger, started)
        self._store_error: StoreError | None = None
        self._predictive, self._predicting = predictive, 0.0
        self.channel = channel_of(world, prepared, engine.compiled)

    def __enter__(self) -> BlockLoop:
        return self

    def __exit__(self, *exception: object) -> None:
        self.channel.free()

    @property
    def largest_draws(self) -> int:
        """The most draws between two commits."""
        return self.blocks.largest_draws

    def where(self) -> str:
        """Say which clients are here and how far they are, at the least."""
        here = self._prepared.numbers
        return f"(clients {here[0]} to {here[-1]}) in iterations {self.iteration} to {self._until - 1}"

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a checkpoint, whose positions `prepared` already holds."""
        self.iteration = snapshot.iteration
        self.account.restore(snapshot.counts)
        self._begins = snapshot.everyone > self._prepared.placement.total
        if self._begins:  # without clients that were dropped since, on whom the state of the others may depend
            return
        for name, array in self._state._asdict().items():
            array[:] = snapshot.of_clients[_STATE + name]
        if self._predictive is not None:
            self._predictive.restore(snapshot)

    def run(
        self, writer: DrawWriter, pace: Pace, checkpoints: Checkpoints, terminal: int | None = None
    ) -> dict[str, Any]:
        """Run to the last iteration and return the statistics of the whole run. Collective.

        Args:
            writer: of draws.
            pace: when to stop or to write a checkpoint.
            checkpoints: where.
            terminal: columns of the terminal that shows a bar on this rank; None: there is none.

        Raises:
            StoppedError: it was asked to stop, and did, with a checkpoint.
            DivergedError: a position stopped being finite; the draws before it are stored.
            StoreError: a rank could not write.
        """
        self._make_ready(writer)
        self._world.wait()
        self.account.sampling_begins(self._engine.compile_seconds)
        wanted = Wishes(0, 0, 1)
        with Progress(self._config.iterations, self.iteration, terminal) as progress:
            while self.iteration < self._config.iterations:
                if wanted.stop or wanted.checkpoint:
                    self._save(writer, checkpoints)
                    pace.saved()
                if wanted.stop:
                    raise self._stopped(wanted.stop)
                wanted = self._advance(writer, pace, wanted.length)
                progress.see(self.iteration, self.account.ledger, self._theta)
        self.account.sampling_ends()
        self._save(writer, checkpoints)
        return self.account.statistics(self.iteration, self._bytes_sent())

    def _make_ready(self, writer: DrawWriter) -> None:
        draws, batch = self._randomness(self.iteration // self.blocks.length)
        arguments = self._arguments(writer, draws, batch, self.blocks.slots(np.empty(0, np.int64), 0))
        self._kernel = self._ready(self._algorithm.kernel, *arguments, 0, 0)
        if self._algorithm.begin is not None and self._begins:
            arguments = (self._theta, self._state, draws, self._prepared.data, self.channel.handle)
            begin = self._ready(self._algorithm.begin, *arguments)
            with self._raising_failures():
                begin(*arguments)
            self.account.count_begin(self.channel.exchanges)

    def _ready(self, function: Callable[..., None], *arguments: Any) -> Callable[..., None]:
        ready = self._engine.ready(function, *arguments)
        if current() == "cpu":
            return ready
        from fedlangevin_mpi.networks.resident import resident  # (imports torch)

        return resident(ready, current())

    def _randomness(self, block: int) -> tuple[Any, Any]:
        if block != self._block:
            self._draws = self._batch = None  # before the next, so that the memory of one is enough
            self._draws, self._batch = self.blocks.randomness(block)
            self._block = block
        return self._draws, self._batch

    def _arguments(self, writer: DrawWriter, draws: Any, batch: Any, slots: Array) -> tuple[Any, ...]:
        data, channel = self._prepared.data, self.channel.handle
        return self._theta, self._state, draws, data, batch, channel, writer.buffer, slots

    def _advance(self, writer: DrawWriter, pace: Pace, length: int) -> Wishes:
        """Run so many iterations, or the rest of their block, and return what the ranks want next."""
        block, start = divmod(self.iteration, self.blocks.length)
        last = min(self.blocks.length, self._config.iterations - block * self.blocks.length)
        stop = min(start + length, last)
        self._until = block * self.blocks.length + stop
        draws, batch = self._randomness(block)
        kept = self.blocks.kept(block, start, stop)
        arguments = self._arguments(writer, draws, batch, self.blocks.slots(kept, writer.filled))
        before = [array.copy() for array in (self._theta, *self._state)]
        called = time.perf_counter()
        self._call(arguments, start, stop)
        pace.took(time.perf_counter() - called + self._predicting, stop - start)
        flags = not self._finite(), self._store_error is not None
        diverged, unstored, *wanted = self._world.highest(*flags, *pace.wishes())
        if unstored:
            self._world.raise_together(self._store_error)
        numbers = block * self.blocks.length + kept
        if diverged:
            bad = self._replay(before, arguments, start, stop)
            good = numbers[kept < bad]
            self._predict(writer, len(good), pace)
            self._store(writer, len(good), good, everything=True)
            self._world.raise_together(self._divergence(block * self.blocks.length + bad))
        self.account.count(self._algorithm, draws, start, stop)
        self._predict(writer, len(kept), pace)
        self._store(writer, len(kept), numbers)
        self.iteration += stop - start
        return Wishes(*wanted)

    def _call(self, arguments: tuple[Any, ...], start: int, stop: int) -> None:
        with (
            np.errstate(over="ignore", invalid="ignore"),  # a position that is not finite has its own message
            self._raising_failures(),
        ):
            self._kernel(*arguments, start, stop)

    @contextlib.contextmanager
    def _raising_failures(self) -> Iterator[None]:
        """Raise MPI's own error where compiled code found one, which can raise a constant only."""
        try:
            yield
        except RuntimeError:
            self.channel.raise_failure()
            raise

    def _finite(self) -> bool:
        return all(bool(np.isfinite(array).all()) for array in (self._theta, *self._state))

    def _replay(self, before: list[Array], arguments: tuple[Any, ...], start: int, stop: int) -> int:
        """Run again one iteration at a time; return the place of the first that some rank finds bad."""
        for array, old in zip((self._theta, *self._state), before, strict=True):
            array[:] = old
        for k in range(start, stop):
            self._call(arguments, k, k + 1)
            if self._world.any(not self._finite()):
                return k
        return stop - 1

    def _divergence(self, iteration: int) -> DivergedError | None:
        bad = np.argwhere(~np.isfinite(self._theta).all(axis=-1))
        if not len(bad) and self._finite():
            return None
        client, chain = bad[0] if len(bad) else (0, 0)
        return DivergedError(
            f"client {self._prepared.numbers[client]} (rank {self._world.rank}), chain {chain}: the position stopped "
            f"being finite in iteration {iteration}; the draws before it are kept. A step_size that is too large for "
            "the curvature of the potentials is the usual cause: try a tenth of it; a gradient of your own that is not "
            "finite is another"
        )

    def _predict(self, writer: DrawWriter, count: int, pace: Pace) -> None:
        """Add the next draws of the writer's buffer to the averaged predictive. Collective."""
        began = time.perf_counter()
        if self._predictive is not None:
            for drawn in writer.buffer[writer.filled : writer.filled + count]:
                self._predictive.add(drawn)
                pace.alive()
        self._predicting = time.perf_counter() - began  # the next call of the kernel is the shorter for it

    def _store(self, writer: DrawWriter, count: int, iterations: Array, everything: bool = False) -> None:
        # An error of one rank waits for the next agreement, so that all ranks stop at the same block.
        try:
            writer.commit(count, iterations)
            if everything:
                writer.flush()
        except StoreError as e:
            self._store_error = StoreError(f"rank {self._world.rank} {self.where()}: {e}")

    def _save(self, writer: DrawWriter, checkpoints: Checkpoints) -> None:
        """Write a checkpoint, and before it the draws up to it."""
        self._store(writer, 0, np.empty(0, np.int64), everything=True)
        self._world.raise_together(self._store_error)
        counts = self.account.counts(self._bytes_sent())
        snapshot = Snapshot(self.iteration, self._prepared.numbers, self._arrays(), counts=counts)
        if self._predictive is not None:
            snapshot = self._predictive.added_to(snapshot)
        checkpoints.save(snapshot)

    def _bytes_sent(self) -> int:
        """Return how many bytes all ranks gave to MPI. Collective."""
        predicting = 0 if self._predictive is None else self._predictive.bytes_sent
        return self._world.sum(self.channel.bytes_sent + predicting)

    def _arrays(self) -> dict[str, Array]:
        """Return what a checkpoint keeps, by name."""
        state = {_STATE + name: array for name, array in self._state._asdict().items()}
        return {"position": self._theta, "checksum": self._prepared.checksums, **state}

    def _stopped(self, stop: int) -> StoppedError:
        error = stopped(stop, self.iteration, self._config)
        error.agreed = True
        return error
