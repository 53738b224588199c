"""The loop of runs with a server: rank 0 deals rows of its state and stores, the others work for their agents.

Every rank knows the schedule, so a rank waits only for its agents' own turns. A rank that cannot go on says so instead
of uploading; the server then stops those that would wait, and all ranks raise together.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlangevin_mpi.algorithms.serving import Deal, Serving
from fedlangevin_mpi.comm.ledger import Ledger
from fedlangevin_mpi.comm.server import ServerChannel
from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.errors import FedLangevinError, StoreError
from fedlangevin_mpi.runtime.agents import Agents
from fedlangevin_mpi.runtime.engine import Engine
from fedlangevin_mpi.runtime.prepare import Prepared
from fedlangevin_mpi.runtime.streams import draw_without_replacement
from fedlangevin_mpi.runtime.turns import Turns, batch_example
from fedlangevin_mpi.store.writer import DrawWriter

Array = np.ndarray[Any, np.dtype[Any]]

log = logging.getLogger(__name__)

_REPORT_SECONDS = 10.0


class ServerLoop:
    """The state of a run with a server on one rank, and the loop that advances it one global iteration at a time.

    A context manager: its channel is freed on leaving.

    Args:
        world: the ranks.
        prepared: shards, data and initial particles.
        engine: makes functions ready to be called.

    Attributes:
        iteration: the next one, on the server; on other ranks that of the last turn here.
        ledger: what was communicated, counted on the server.
    """

    def __init__(self, world: World, prepared: Prepared, engine: Engine) -> None:
        config = prepared.config
        assert isinstance(config.algorithm, Serving)
        self._world, self._prepared, self._config, self._algorithm = world, prepared, config, config.algorithm
        self.iteration = 0
        start, example = prepared.theta[0], prepared.example
        self._served = self._algorithm.served(start, example)
        kernel = self._algorithm.kernel
        if kernel is not None:
            batch = batch_example(self._algorithm, len(start))
            kernel = engine.ready(kernel, *self._algorithm.example(start, example, batch))
        agents = prepared.placement.total
        fill = self._row_filler(engine)
        self._turns = Turns(config.seed, self._algorithm, agents, prepared.dim, len(self._served), fill)
        self._agents = Agents(prepared, self._turns, kernel)
        self._host = {k: rank for rank, hosted in enumerate(prepared.placement.of_rank) for k in hosted}
        self.ledger = Ledger(agents, self._served.shape[0], self._served.shape[1] * self._served.itemsize)
        self._gradients = 0
        self.channel = ServerChannel(world, self._served.shape)

    def __enter__(self) -> ServerLoop:
        return self

    def __exit__(self, *exception: object) -> None:
        self.channel.free()

    @property
    def largest_draws(self) -> int:
        """The most draws between two commits."""
        return 1

    def where(self) -> str:
        """Say who is here and how far it is."""
        here = self._prepared.clients
        who = f"clients {here.start} to {here.stop - 1}" if here else "the server"
        return f"({who}) in global iteration {self.iteration}"

    def run(self, writer: DrawWriter | None) -> dict[str, Any]:
        """Run to the last iteration and return the run's statistics. Collective.

        Args:
            writer: of the server's draws; None on the other ranks.

        Raises:
            DivergedError: what an agent would have sent is not finite; the draws before it are stored.
            StoreError: the server could not write.
        """
        self._world.wait()
        started = time.perf_counter()
        error = self._work() if writer is None else self._serve(writer)
        self._world.raise_together(error)
        return self._statistics(time.perf_counter() - started)

    def _serve(self, writer: DrawWriter) -> FedLangevinError | None:
        started = reported = time.perf_counter()
        for iteration in range(self._config.iterations):
            self.iteration = iteration
            deals = self._turns.deals(iteration)
            uploads, error = self._uploads(iteration, deals)
            if uploads is not None:
                try:
                    self._served = self._algorithm.combine(self._served, deals, uploads)
                    self._account(iteration, deals)
                    self._store(writer, iteration)
                except FedLangevinError as e:
                    error = e
            if uploads is None or error is not None:
                self._stop_after(iteration)
                self._finish(writer)
                return error
            if time.perf_counter() - reported > _REPORT_SECONDS:
                reported = time.perf_counter()
                rate = (iteration + 1) / (reported - started)
                log.info("global iteration %d of %d, %.3g a second", iteration + 1, self._config.iterations, rate)
        self.iteration = self._config.iterations
        return self._finish(writer)

    def _uploads(self, iteration: int, deals: Sequence[Deal]) -> tuple[list[Array] | None, FedLangevinError | None]:
        """Return what all dealt agents send, None where one failed; and the error, where the agents are here."""
        if self._world.size == 1:
            return self._own_uploads(iteration, deals)
        for deal in deals:
            self.channel.send(self._host[deal.agent], deal.agent, self._served[deal.rows])
        received = [self.channel.receive(self._host[d.agent], d.agent, len(d.rows)) for d in deals]
        self.channel.finish()
        uploads = [upload for upload in received if upload is not None]
        return (uploads if len(uploads) == len(deals) else None), None

    def _own_uploads(self, iteration: int, deals: Sequence[Deal]) -> tuple[list[Array] | None, FedLangevinError | None]:
        received = [np.ascontiguousarray(self._served[deal.rows]) for deal in deals]
        try:
            uploads = [self._agents.work(iteration, d, rows) for d, rows in zip(deals, received, strict=True)]
        except FedLangevinError as error:
            return None, error
        for deal, rows, sent in zip(deals, received, uploads, strict=True):
            self._agents.settle(deal.agent, rows, sent.copy())
        return uploads, None

    def _work(self) -> FedLangevinError | None:
        """Take the turns of the agents here; after an error, answer that nothing comes until the server has heard."""
        error: FedLangevinError | None = None
        for iteration in range(self._config.iterations):
            for deal in self._turns.deals(iteration):
                if self._host[deal.agent] != self._world.rank:
                    continue
                received = self.channel.download(deal.agent, len(deal.rows))
                if received is None:
                    return error
                self.iteration = iteration
                try:
                    sent = self._agents.work(iteration, deal, received) if error is None else None
                except FedLangevinError as e:
                    error, sent = e, None
                if sent is None:
                    self.channel.fail()
                    continue
                self.channel.upload(deal.agent, sent)
                self._agents.settle(deal.agent, received, sent)
        return error

    def _stop_after(self, iteration: int) -> None:
        """Tell every rank that would wait for a later turn that none comes."""
        waiting = {
            self._host[deal.agent]
            for later in range(iteration + 1, self._config.iterations)
            for deal in self._turns.deals(later)
        }
        for rank in sorted(waiting - {self._world.rank}):
            self.channel.stop(rank)
        self.channel.finish()

    def _store(self, writer: DrawWriter, iteration: int) -> None:
        since_warmup = iteration + 1 - self._config.warmup
        if since_warmup <= 0 or since_warmup % self._config.thin:
            return
        writer.buffer[writer.filled, 0] = self._algorithm.draw(self._served, self._turns.normals(iteration))
        writer.commit(1, [iteration])

    @staticmethod
    def _finish(writer: DrawWriter) -> StoreError | None:
        try:
            writer.flush()
        except StoreError as error:
            return error
        return None

    def _account(self, iteration: int, deals: Sequence[Deal]) -> None:
        agents = self._prepared.placement.total
        for deal in deals:
            steps = self._algorithm.local_steps(deal.agent, agents)
            self._gradients += self._algorithm.gradients(self._prepared.example, steps, len(deal.rows))
        if self._algorithm.communicates == "server":
            self.ledger.count_uploads([len(deal.rows) for deal in deals])

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

    def _row_filler(self, engine: Engine) -> Any:
        sample = np.zeros((1, 1)), np.zeros(1, np.int64), np.zeros((1, 1), np.int64)
        minibatch = self._algorithm.batch_size is not None
        return engine.ready(draw_without_replacement, *sample) if minibatch else draw_without_replacement
