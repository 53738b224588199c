"""The loop of runs with a server: rank 0 deals rows of its state and stores, the others work for their agents.

Every rank knows the schedule, so a rank waits only for its agents' own turns. A rank that cannot go on says so instead
of uploading; the server then stops those that would wait, and all ranks raise together.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlangevin_mpi.algorithms.serving import Deal, Sent, Serving
from fedlangevin_mpi.comm.ledger import Ledger
from fedlangevin_mpi.comm.server import Order, ServerChannel
from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.errors import FedLangevinError, StoreError
from fedlangevin_mpi.runtime.account import Account
from fedlangevin_mpi.runtime.agents import Agents
from fedlangevin_mpi.runtime.blocks import row_filler
from fedlangevin_mpi.runtime.checkpoint import Checkpoints, Snapshot
from fedlangevin_mpi.runtime.engine import Engine
from fedlangevin_mpi.runtime.pace import Pace, Wishes, stopped
from fedlangevin_mpi.runtime.predictive import DrawnPredictive
from fedlangevin_mpi.runtime.prepare import Prepared
from fedlangevin_mpi.runtime.progress import Progress
from fedlangevin_mpi.runtime.turns import Turns, batch_example
from fedlangevin_mpi.store.writer import DrawWriter

Array = np.ndarray[Any, np.dtype[Any]]


class _ElsewhereError(FedLangevinError):
    """An agent on another rank failed, which says why itself."""


class ServerLoop:
    """The state of a run with a server on one rank, and the loop that advances it one global iteration at a time.

    A context manager: its channel is freed on leaving.

    Args:
        world: the ranks.
        prepared: shards, data and initial particles.
        engine: makes functions ready to be called.
        started: `time.perf_counter()` when the run was started.
        predictive: averages the predictions of draws on the server; None: none are wanted, or this is not the server.

    Attributes:
        iteration: the next one, on the server; on other ranks that of the last turn here.
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
        assert isinstance(config.algorithm, Serving)
        self._world, self._prepared, self._engine = world, prepared, engine
        self._config, self._algorithm = config, config.algorithm
        self._predictive = predictive
        self.iteration = 0
        start, example = prepared.theta[0], prepared.example
        self._served = self._algorithm.served(start, example)
        kernel = self._algorithm.kernel
        if kernel is not None:
            batch = batch_example(self._algorithm, len(start))
            kernel = engine.ready(kernel, *self._algorithm.example(start, example, batch))
        agents, fill = prepared.placement.total, row_filler(engine, config)
        self._turns = Turns(config.seed, self._algorithm, agents, prepared.dim, len(self._served), fill)
        self._agents = world.agree(lambda: Agents(prepared, self._turns, kernel))
        self._host = {k: rank for rank, hosted in enumerate(prepared.placement.of_rank) for k in hosted}
        ledger = Ledger(agents, self._served.shape[0], self._served.shape[1] * self._served.itemsize)
        self.account = Account(ledger, started)
        rows, columns = self._served.shape
        most = rows * (len(self._turns.deals(0)) if self._algorithm.needs_uploads() else 1)
        self.channel = ServerChannel(world, (most, columns))
        if self._algorithm.shares:
            self._share()

    def __enter__(self) -> ServerLoop:
        return self

    def __exit__(self, *exception: object) -> None:
        self.channel.free()

    @property
    def largest_draws(self) -> int:
        """The most draws between two commits."""
        return 1

    @property
    def natural_shape(self) -> tuple[int, ...] | None:
        """Shape of the natural parameters that are stored with a draw; None: the state is what is drawn."""
        return self._served.shape if self._algorithm.natural else None

    def where(self) -> str:
        """Say who is here and how far it is."""
        here = self._prepared.clients
        who = f"clients {here.start} to {here.stop - 1}" if here else "the server"
        return f"({who}) in global iteration {self.iteration}"

    def _share(self) -> None:
        """Give all agents the sum of what each tells; in their order, so that it is the same on any number of ranks."""
        everyone = [told for of_rank in self._world.comm.allgather(self._agents.shared()) for told in of_rank]
        self._agents.learn(np.sum(everyone, axis=0))
        self.account.count_turns([len(told) for told in everyone], 0)

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a checkpoint."""
        self.iteration = snapshot.iteration
        self._served = snapshot.shared["served"]
        self._agents.restore(snapshot.of_clients, self.iteration)
        self.account.restore(snapshot.counts)
        if self._predictive is not None:
            self._predictive.restore(snapshot)

    def run(
        self, writer: DrawWriter | None, pace: Pace, checkpoints: Checkpoints, terminal: int | None = None
    ) -> dict[str, Any]:
        """Run to the last iteration and return the statistics of the whole run. Collective.

        Args:
            writer: of the server's draws; None on the other ranks.
            pace: when to stop or to write a checkpoint, which the server decides.
            checkpoints: where they are written.
            terminal: columns of the terminal that shows a bar on the server; None: there is none.

        Raises:
            StoppedError: it was asked to stop, and did, with a checkpoint.
            DivergedError: what an agent would have sent is not finite; the draws before it are stored.
            StoreError: the server could not write.
        """
        self._world.wait()
        self.account.sampling_begins(self._engine.compile_seconds)
        if writer is None:
            self.channel.waiting = pace.alive  # another rank may take its time; the server watches that turns end
            error = self._work(checkpoints)
        else:
            with Progress(self._config.iterations, self.iteration, terminal) as progress:
                error = self._serve(writer, pace, checkpoints, progress)
            self.channel.tell(Order(True, self.iteration))
        self._world.raise_together(error)
        return self.account.statistics(self.iteration, self._world.sum(self.channel.bytes_sent))

    def _serve(
        self, writer: DrawWriter, pace: Pace, checkpoints: Checkpoints, progress: Progress
    ) -> FedLangevinError | None:
        """Run the server's iterations; return why it cannot go on, where it cannot."""
        wanted = Wishes(0, 0, 1)
        while self.iteration < self._config.iterations:
            if wanted.stop or wanted.checkpoint:
                self._order_checkpoint(writer, checkpoints)
                pace.saved()
            if wanted.stop:
                return stopped(wanted.stop, self.iteration, self._config)
            called = time.perf_counter()
            try:
                self._iterate(writer)
            except FedLangevinError as error:
                return self._flushed(writer, error)
            pace.took(time.perf_counter() - called, 1)
            wanted = pace.wishes()
            progress.see(self.iteration, self.account.ledger)
        self.account.sampling_ends()
        self._order_checkpoint(writer, checkpoints)
        return None

    def _iterate(self, writer: DrawWriter) -> None:
        deals = self._turns.deals(self.iteration)
        received = [np.ascontiguousarray(self._served[deal.rows]) for deal in deals]
        uploads = self._own_uploads(deals, received) if self._world.size == 1 else self._uploads(deals, received)
        self._served = self._algorithm.combine(self._served, deals, uploads)
        self._store(writer)
        self._account(deals)
        self.iteration += 1

    def _own_uploads(self, deals: Sequence[Deal], received: Sequence[Array]) -> list[Array]:
        uploads = [self._agents.work(self.iteration, d, rows) for d, rows in zip(deals, received, strict=True)]
        for place, (deal, rows) in enumerate(zip(deals, received, strict=True)):
            self._agents.settle(deal.agent, rows, self._sent(uploads, place))
        return uploads

    def _sent(self, uploads: Sequence[Array], place: int) -> Sent:
        return Sent(np.stack(uploads), place) if self._algorithm.needs_uploads() else Sent(uploads[place][None], 0)

    def _uploads(self, deals: Sequence[Deal], rows: Sequence[Array]) -> list[Array]:
        for deal, sent in zip(deals, rows, strict=True):
            self.channel.send(self._host[deal.agent], deal.agent, sent)
        received = [self.channel.receive(self._host[d.agent], d.agent, len(d.rows)) for d in deals]
        self.channel.finish()
        uploads = [upload for upload in received if upload is not None]
        if len(uploads) < len(deals):
            raise _ElsewhereError
        if self._algorithm.needs_uploads():
            for deal in deals:
                self.channel.send(self._host[deal.agent], deal.agent, np.concatenate(uploads))
            self.channel.finish()
        return uploads

    def _flushed(self, writer: DrawWriter, error: FedLangevinError) -> FedLangevinError | None:
        """Write the draws that wait, after an error; return it where it is this rank's."""
        try:
            writer.flush()
        except StoreError as e:
            return e
        return None if isinstance(error, _ElsewhereError) else error

    def _order_checkpoint(self, writer: DrawWriter, checkpoints: Checkpoints) -> None:
        self.channel.tell(Order(False, self.iteration))
        self._save(writer, checkpoints)

    def _save(self, writer: DrawWriter | None, checkpoints: Checkpoints) -> None:
        """Write a checkpoint, and before it the draws up to it. Collective."""
        self._world.agree(lambda: None if writer is None else writer.flush())
        counts = self.account.counts(self._world.sum(self.channel.bytes_sent))
        arrays, here = self._agents.arrays(self.iteration), self._prepared.clients
        if here:
            arrays["checksum"] = self._prepared.checksums
        snapshot = Snapshot(self.iteration, here, arrays, {"served": self._served}, counts)
        if self._predictive is not None:
            snapshot = self._predictive.added_to(snapshot)
        checkpoints.save(snapshot)

    def _work(self, checkpoints: Checkpoints) -> FedLangevinError | None:
        """Take the turns of the agents here, and do what the server orders; return what went wrong here.

        After an error the server is told that nothing comes, and orders all ranks to stop.
        """
        for iteration in range(self.iteration, self._config.iterations):
            deals = self._turns.deals(iteration)
            here = [place for place, deal in enumerate(deals) if self._host[deal.agent] == self._world.rank]
            received: dict[int, Array] = {}
            for place in here:
                deal = deals[place]
                rows = self._download(deal, len(deal.rows), checkpoints)
                if rows is None:
                    return None
                self.iteration, received[place] = iteration, rows
                try:
                    sent = self._agents.work(iteration, deal, rows)
                except FedLangevinError as error:
                    return self._failed(error, [deals[later] for later in here if later > place])
                self.channel.upload(deal.agent, sent)
                if not self._algorithm.needs_uploads():
                    self._agents.settle(deal.agent, rows, Sent(sent[None], 0))
            if self._algorithm.needs_uploads():
                for place in here:
                    deal = deals[place]
                    uploads = self._download(deal, len(deals) * len(deal.rows), checkpoints)
                    if uploads is None:
                        return None
                    sets = uploads.reshape(len(deals), *received[place].shape)
                    self._agents.settle(deal.agent, received[place], Sent(sets, place))
        while not (order := self.channel.order()).stop:
            self._obey(order, checkpoints)
        return None

    def _download(self, deal: Deal, rows: int, checkpoints: Checkpoints) -> Array | None:
        """Return rows for an agent here, after doing what the server orders before; None where that is to stop."""
        while isinstance(received := self.channel.download(deal.agent, rows), Order):
            if received.stop:
                return None
            self._obey(received, checkpoints)
        return received

    def _obey(self, order: Order, checkpoints: Checkpoints) -> None:
        self.iteration = order.iteration
        self._save(None, checkpoints)

    def _failed(self, error: FedLangevinError, later: Sequence[Deal]) -> FedLangevinError:
        """Answer for an agent that failed and for those here whose turns come later in this iteration."""
        self.channel.fail()
        for deal in later:
            self.channel.download(deal.agent, len(deal.rows))
            self.channel.fail()
        self.channel.order()
        return error

    def _store(self, writer: DrawWriter) -> None:
        since_warmup = self.iteration + 1 - self._config.warmup
        if since_warmup <= 0 or since_warmup % self._config.thin:
            return
        drawn = self._served
        if writer.natural is not None:
            writer.natural[writer.filled] = self._served
            drawn = self._algorithm.draw(self._served, self._turns.normals(self.iteration))
        writer.buffer[writer.filled, 0] = drawn
        if self._predictive is not None:
            self._predictive.add(writer.buffer[writer.filled])
        writer.commit(1, [self.iteration])

    def _account(self, deals: Sequence[Deal]) -> None:
        agents, example = self._prepared.placement.total, self._prepared.example
        steps = [self._algorithm.local_steps(deal.agent, agents) for deal in deals]
        gradients = sum(self._algorithm.gradients(example, n, len(d.rows)) for n, d in zip(steps, deals, strict=True))
        sent = [len(deal.rows) for deal in deals] if self._algorithm.communicates == "server" else []
        self.account.count_turns(sent, gradients)
