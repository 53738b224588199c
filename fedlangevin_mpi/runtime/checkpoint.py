"""Checkpoints: each rank writes its clients' arrays, and all of them count together or not at all.

Randomness is keyed, so that positions, the algorithm's arrays and the next iteration are enough to go on to the bit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.errors import FedLangevinError, StoreError
from fedlangevin_mpi.store import checkpoint_files as files
from fedlangevin_mpi.store.checkpoint_files import Manifest, Part

Array = np.ndarray[Any, np.dtype[Any]]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Snapshot:
    """The state of a run between two iterations, as one rank sees it.

    Attributes:
        iteration: the next one.
        clients: of this rank.
        of_clients: named arrays whose first axis is `clients`.
        shared: named arrays that are no client's, as a server's particles; those of rank 0 are kept.
        counts: numbers of the whole run so far; those of rank 0 are kept.
        predictive: named arrays of the averaged predictive; none where this rank averages none.
        owners: of the held-out rows here, the first axis of `predictive`: `clients`, or the server.
    """

    iteration: int
    clients: Sequence[int]
    of_clients: Mapping[str, Array]
    shared: Mapping[str, Array] = field(default_factory=dict)
    counts: Mapping[str, int | float] = field(default_factory=dict)
    predictive: Mapping[str, Array] = field(default_factory=dict)
    owners: Sequence[int] = ()


class Checkpoints:
    """The checkpoints of a run: the last that counts, and the one before it in case that the last is damaged.

    Args:
        world: the ranks. Every method is collective.
        directory: the folder of checkpoints, made with the first of them.
    """

    def __init__(self, world: World, directory: Path) -> None:
        self._world, self._directory = world, directory
        self._next = world.from_root(lambda: max(files.generations(directory), default=0)) + 1

    def save(self, snapshot: Snapshot) -> None:
        """Write a checkpoint. Until it is whole on every rank, the one before it counts.

        Raises:
            StoreError: a rank could not write its part; on all ranks.
        """
        number, self._next = self._next, self._next + 1
        try:
            written = self._world.agree(lambda: self._write(number, snapshot))
            parts = self._world.comm.gather(written, root=0)
            self._world.from_root(lambda: self._commit(number, snapshot, parts))
        except FedLangevinError:
            if self._world.rank == 0:
                files.drop(self._directory, number)
            raise

    def _write(self, number: int, snapshot: Snapshot) -> list[Part]:
        parts = []
        if snapshot.clients:
            name = f"{files.POSITIONS}-{self._world.rank:05d}"
            parts.append(files.write_part(self._directory, number, name, snapshot.clients, snapshot.of_clients))
        if snapshot.shared and self._world.rank == 0:
            parts.append(files.write_part(self._directory, number, "shared", None, snapshot.shared))
        if snapshot.predictive:
            name = f"{files.PREDICTIVE}-{self._world.rank:05d}"
            parts.append(files.write_part(self._directory, number, name, snapshot.owners, snapshot.predictive))
        return parts

    def _commit(self, number: int, snapshot: Snapshot, parts: list[list[Part]] | None) -> None:
        assert parts is not None
        everyone = [part for of_rank in parts for part in of_rank]
        manifest = Manifest(iteration=snapshot.iteration, counts=dict(snapshot.counts), parts=everyone)
        files.commit(self._directory, number, manifest)

    def load(
        self, clients: Sequence[int], problem: Callable[[int], str] = lambda _: "", owners: Sequence[int] = ()
    ) -> Snapshot | None:
        """Return the last checkpoint that is whole, for the clients that are here now; None where there is none.

        A damaged one is passed over, and the log says so.

        Args:
            clients: of this rank.
            problem: why the checkpoint of an iteration cannot be used, or nothing; asked on rank 0.
            owners: of the held-out rows whose predictive this rank averages.

        Raises:
            FedLangevinError: from `problem`; on all ranks.
        """
        for number in self._world.from_root(lambda: files.committed(self._directory))[::-1]:
            snapshot, why = self._read(number, clients, problem, owners)
            if not why:
                return snapshot
            log.warning("a checkpoint cannot be used: %s", why)
        return None

    def _read(
        self, number: int, clients: Sequence[int], problem: Callable[[int], str], owners: Sequence[int]
    ) -> tuple[Snapshot | None, str]:
        """Return a checkpoint, or why it cannot be used, which is the same on all ranks."""
        snapshot, why = None, ""
        try:
            manifest = files.read_manifest(self._directory, number)
            of_clients = files.read_rows(self._directory, number, manifest, clients)
            shared = files.read_shared(self._directory, number, manifest)
            predictive = files.read_rows(self._directory, number, manifest, owners, files.PREDICTIVE)
            snapshot = Snapshot(manifest.iteration, clients, of_clients, shared, manifest.counts, predictive, owners)
        except StoreError as error:
            why = str(error)
        everywhere = "; ".join(sorted({reason for reason in self._world.comm.allgather(why) if reason}))
        if everywhere or snapshot is None:
            return None, everywhere
        iteration = snapshot.iteration
        return snapshot, self._world.from_root(lambda: problem(iteration))
