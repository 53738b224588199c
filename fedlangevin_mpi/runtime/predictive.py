"""The posterior predictive of held-out rows, averaged over the draws as they are made, so that none need be stored.

Every rank predicts the rows that its clients hold out; of rows that are nobody's, an equal share a client. What ranks
exchange for it is positions: at every draw, the mean over clients. A server predicts all rows itself.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from fedlangevin_mpi.algorithms.serving import Serving
from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.config import RunConfig
from fedlangevin_mpi.data.shard import TestSet
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.evaluate.held_out import predictive_for
from fedlangevin_mpi.evaluate.predictive import Predictive
from fedlangevin_mpi.evaluate.running import Running, padded, unpadded
from fedlangevin_mpi.runtime.checkpoint import Snapshot
from fedlangevin_mpi.runtime.prepare import Prepared
from fedlangevin_mpi.store.layout import SERVER

Array = np.ndarray[Any, np.dtype[Any]]


class DrawnPredictive:
    """The sums over draws of one rank. Draws are added one by one: how many came together decides no bit.

    Args:
        world: the ranks.
        clients: of which a draw is the mean.
        predictive: of the rows here.
        owners: of the rows here, in order.
        bounds: `(owners + 1,)` where an owner's rows lie.
        most_rows: that any owner has, on any rank.
        last: whether the last draw alone counts, as of particles.

    Attributes:
        bytes_sent: that this rank gave to MPI.
    """

    def __init__(
        self,
        world: World,
        clients: int,
        predictive: Predictive,
        owners: Sequence[int],
        bounds: Sequence[int],
        most_rows: int,
        last: bool,
    ) -> None:
        self._world, self._clients, self._predictive = world, clients, predictive
        self._owners, self._bounds, self._most_rows = owners, bounds, most_rows
        self._last, self._latest = last, np.empty(0)
        self._running = Running(predictive)
        self.bytes_sent = 0

    def add(self, drawn: Array) -> None:
        """Add a draw of the clients here, `(clients_here, chains, dim)`. Collective, unless the server has all."""
        position = self._mean(drawn)
        if self._last:
            self._latest = position
        else:
            self._running.add(position)

    def added_to(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot with these sums."""
        return dataclasses.replace(snapshot, predictive=self._arrays(), owners=self._owners)

    def _arrays(self) -> dict[str, Array]:
        if len(self._latest):
            self._running = Running(self._predictive)
            self._running.add(self._latest)
            self._latest = np.empty(0)
        return padded(self._running, self._bounds, self._most_rows)

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from the sums of a checkpoint."""
        self._running.positions, self._running.arrays = unpadded(snapshot.predictive)

    @property
    def nbytes(self) -> int:
        """How much this rank's sums take in a checkpoint, about."""
        return sum(array.nbytes for array in self._arrays().values())

    def _mean(self, drawn: Array) -> Array:
        """Return the mean over clients, `(chains, dim)`, summed in float64 as `Run.average` sums stored draws."""
        total = np.zeros(drawn.shape[1:])
        for position in drawn:
            total += position
        if len(drawn) < self._clients:
            self._world.comm.Allreduce(MPI.IN_PLACE, total, op=MPI.SUM)
            self.bytes_sent += total.nbytes
        total /= self._clients
        return total.astype(drawn.dtype)


def drawn_predictive(world: World, prepared: Prepared) -> DrawnPredictive | None:
    """Return what averages this rank's predictions; None where none are wanted, or the server makes them. Collective.

    Raises:
        ConfigError: there are no held-out rows, or the model predicts nothing.
        ShardError: held-out rows cannot be read.
    """
    config = prepared.config
    if config.output.store == "draws":
        return None
    serving = isinstance(config.algorithm, Serving)
    parts = world.agree(lambda: _held_out(world, prepared, serving))
    sizes = [len(part.y) for part in parts]
    if not world.sum(sum(sizes)):
        world.raise_together(_refused(config.output.store, f"data {config.data.name} hold out no rows"))
    (most_rows,) = world.highest(max(sizes, default=0))
    particles = isinstance(config.algorithm, Serving) and config.algorithm.coins == "none"
    predictive = world.agree(lambda: _predictive(prepared, parts, particles))
    if predictive is None:
        world.raise_together(_refused(config.output.store, f"model {config.model.name} predicts nothing"))
    owners = row_owners(config, prepared.clients, world.rank)
    if predictive is None or not owners:
        return None
    bounds = [0, *itertools.accumulate(sizes)]
    clients = 1 if serving else prepared.placement.total
    return DrawnPredictive(world, clients, predictive, owners, bounds, most_rows, particles)


def row_owners(config: RunConfig, clients: Sequence[int], rank: int) -> list[int]:
    """Return whose held-out rows a rank predicts: those of its clients, or with a server, the server all of them."""
    if config.output.store == "draws":
        return []
    if isinstance(config.algorithm, Serving):
        return [SERVER] if rank == 0 else []
    return list(clients)


def _held_out(world: World, prepared: Prepared, serving: bool) -> list[TestSet]:
    """Return the held-out rows of every owner here, as the model takes them."""
    config, total = prepared.config, prepared.placement.total
    raw: Sequence[TestSet | None] = []
    if not serving:
        raw = config.data.held_out(prepared.clients, total, config.seed)
    elif world.rank == 0:
        raw = [config.data.test_set(total, config.seed)]
    return [
        _no_rows(prepared)
        if test is None
        else TestSet(config.data.design_matrix(test.x, prepared.standardization), test.y)
        for test in raw
    ]


def _predictive(prepared: Prepared, parts: Sequence[TestSet], particles: bool) -> Predictive | None:
    parts = parts or [_no_rows(prepared)]
    rows = TestSet(np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts]))
    return predictive_for(prepared.config, prepared.facts, prepared.dim, rows, particles)


def _no_rows(prepared: Prepared) -> TestSet:
    return TestSet(np.zeros((0, prepared.facts.features), np.float32), np.zeros(0, np.float32))


def _refused(found: str, why: str) -> ConfigError:
    return ConfigError(f"output.store: found {found!r}; allowed: draws, since {why}")
