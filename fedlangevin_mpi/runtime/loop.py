"""The block loop: draw, run the kernel, store, and stop together when something is wrong."""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np

from fedlangevin_mpi.algorithms.gossiping import Gossiping
from fedlangevin_mpi.comm.average import AverageChannel
from fedlangevin_mpi.comm.gossip import GossipChannel
from fedlangevin_mpi.comm.ledger import Ledger
from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.errors import DivergedError, StoreError
from fedlangevin_mpi.runtime.blocks import Blocks
from fedlangevin_mpi.runtime.engine import Engine
from fedlangevin_mpi.runtime.prepare import Prepared
from fedlangevin_mpi.runtime.streams import draw_without_replacement
from fedlangevin_mpi.store.writer import DrawWriter

Array = np.ndarray[Any, np.dtype[Any]]

log = logging.getLogger(__name__)

_REPORT_SECONDS = 10.0


class BlockLoop:
    """The state of a run on one rank, and the loop that advances it block by block.

    A context manager: its channel is freed on leaving.

    Args:
        world: the ranks.
        prepared: shards, data and initial positions of this rank.
        engine: makes functions ready to be called.

    Attributes:
        iteration: the next one.
    """

    def __init__(self, world: World, prepared: Prepared, engine: Engine) -> None:
        config = prepared.config
        self._world, self._prepared, self._engine = world, prepared, engine
        self._config, self._algorithm = config, config.algorithm
        self.iteration = 0
        self._theta = prepared.theta
        self._state = self._algorithm.state(self._theta)
        self.blocks = Blocks(prepared, self._row_filler())
        edges = prepared.mixing.edges if prepared.mixing else None
        self.ledger = Ledger(prepared.placement.total, config.chains, prepared.dim * self._theta.itemsize, edges)
        self._gradients = 0
        self._store_error: StoreError | None = None
        self.channel = _channel(world, prepared, engine.compiled)

    def __enter__(self) -> BlockLoop:
        return self

    def __exit__(self, *exception: object) -> None:
        self.channel.free()

    def where(self) -> str:
        """Say which clients are here and how far they are."""
        here = self._prepared.clients
        return f"(clients {here.start} to {here.stop - 1}) in the block that begins at iteration {self.iteration}"

    def run(self, writer: DrawWriter) -> dict[str, Any]:
        """Run to the last iteration and return the run's statistics. Collective.

        Raises:
            DivergedError: a position stopped being finite; the draws before it are stored.
            StoreError: a rank could not write.
        """
        self._make_ready(writer)
        self._world.wait()
        started = reported = time.perf_counter()
        while self.iteration < self._config.iterations:
            self._advance(writer)
            if time.perf_counter() - reported > _REPORT_SECONDS:
                reported = time.perf_counter()
                rate = self.iteration / (reported - started)
                log.info("iteration %d of %d, %.0f a second", self.iteration, self._config.iterations, rate)
        self._store(writer, 0, np.empty(0, np.int64), everything=True)
        self._world.raise_together(self._store_error)
        return self._statistics(time.perf_counter() - started)

    def _make_ready(self, writer: DrawWriter) -> None:
        draws, batch = self.blocks.randomness(0)
        arguments = self._arguments(writer, draws, batch, self.blocks.slots(np.empty(0, np.int64), 0))
        self._kernel = self._engine.ready(self._algorithm.kernel, *arguments, 0, 0)
        if self._algorithm.begin is not None:
            arguments = (self._theta, self._state, draws, self._prepared.data, self.channel.handle)
            self._engine.ready(self._algorithm.begin, *arguments)(*arguments)
            self.ledger.count_begin(self.channel.exchanges)
            self._gradients += self._prepared.placement.total * self._config.chains

    def _arguments(self, writer: DrawWriter, draws: Any, batch: Any, slots: Array) -> tuple[Any, ...]:
        data, channel = self._prepared.data, self.channel.handle
        return self._theta, self._state, draws, data, batch, channel, writer.buffer, slots

    def _advance(self, writer: DrawWriter) -> None:
        """Run the rest of the block that the next iteration lies in."""
        block, start = divmod(self.iteration, self.blocks.length)
        stop = min(self.blocks.length, self._config.iterations - block * self.blocks.length)
        draws, batch = self.blocks.randomness(block)
        kept = self.blocks.kept(block, start, stop)
        arguments = self._arguments(writer, draws, batch, self.blocks.slots(kept, writer.filled))
        before = [array.copy() for array in (self._theta, *self._state)]
        self._call(arguments, start, stop)
        diverged, unstored = self._world.any(not self._finite(), self._store_error is not None)
        if unstored:
            self._world.raise_together(self._store_error)
        numbers = block * self.blocks.length + kept
        if diverged:
            bad = self._replay(before, arguments, start, stop)
            good = numbers[kept < bad]
            self._store(writer, len(good), good, everything=True)
            self._world.raise_together(self._divergence(block * self.blocks.length + bad))
        self._account(draws, start, stop)
        self._store(writer, len(kept), numbers)
        self.iteration += stop - start

    def _call(self, arguments: tuple[Any, ...], start: int, stop: int) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # a position that is not finite has its own message
            self._kernel(*arguments, start, stop)

    def _finite(self) -> bool:
        return all(bool(np.isfinite(array).all()) for array in (self._theta, *self._state))

    def _replay(self, before: list[Array], arguments: tuple[Any, ...], start: int, stop: int) -> int:
        """Run the block again one iteration at a time; return the place of the first that some rank finds bad."""
        for array, old in zip((self._theta, *self._state), before, strict=True):
            array[:] = old
        for k in range(start, stop):
            self._call(arguments, k, k + 1)
            if self._world.any(not self._finite())[0]:
                return k
        return stop - 1

    def _divergence(self, iteration: int) -> DivergedError | None:
        bad = np.argwhere(~np.isfinite(self._theta).all(axis=-1))
        if not len(bad) and self._finite():
            return None
        client, chain = bad[0] if len(bad) else (0, 0)
        return DivergedError(
            f"client {self._prepared.clients[client]}, chain {chain}: the position stopped being finite in iteration "
            f"{iteration}; the draws before it are kept. A step_size that is too large for the curvature of the "
            "potentials is the usual cause: try a tenth of it; a gradient of your own that is not finite is another"
        )

    def _store(self, writer: DrawWriter, count: int, iterations: Array, everything: bool = False) -> None:
        # An error of one rank waits for the next agreement, so that all ranks stop at the same block.
        try:
            writer.commit(count, iterations)
            if everything:
                writer.flush()
        except StoreError as e:
            self._store_error = StoreError(f"rank {self._world.rank} {self.where()}: {e}")

    def _account(self, draws: Any, start: int, stop: int) -> None:
        self.ledger.count(self._algorithm.traffic(draws), start, stop)
        evaluations = (stop - start) * self._algorithm.gradients_per_iteration
        evaluations += self._algorithm.full_gradients(draws, start, stop)
        self._gradients += evaluations * self._prepared.placement.total * self._config.chains

    def _statistics(self, seconds: float) -> dict[str, Any]:
        ledger = self.ledger
        return {
            "iterations": self.iteration,
            "iterations_per_second": self.iteration / seconds,
            "gradient_evaluations": self._gradients,
            "communication": {
                "rounds": ledger.rounds,
                "messages": ledger.messages,
                "bytes": ledger.bytes,
                "mpi_bytes": self._world.sum(self.channel.bytes_sent),
            },
        }

    def _row_filler(self) -> Any:
        sample = np.zeros((1, 1, 1)), np.zeros(1, np.int64), 0, np.zeros((1, 1, 1, 1), np.int64), 0
        minibatch = self._algorithm.batch_size is not None
        return self._engine.ready(draw_without_replacement, *sample) if minibatch else draw_without_replacement


def _channel(world: World, prepared: Prepared, compiled: bool) -> AverageChannel | GossipChannel:
    """Declare the exchange that the algorithm's `communicates` names. Collective."""
    config, shape = prepared.config, (prepared.config.chains, prepared.dim)
    dtype = prepared.theta.dtype
    if not isinstance(config.algorithm, Gossiping):
        return AverageChannel(world, *shape, dtype, compiled)
    assert prepared.mixing is not None
    matrices, exchange = prepared.mixing.matrices, config.algorithm.exchange
    return GossipChannel(world, prepared.placement.of_rank, matrices, *shape, dtype, compiled, exchange)
