"""What a client owns: named arrays, read by its own rank and kept there."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from fedlangevin_mpi.data.standardize import Moments, Standardization

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Shard:
    """One client's data.

    Attributes:
        client: the owner.
        arrays: by name; `x (n, p)` and `y (n,)` for regression and classification, `mean (d,)` and
            `covariance (d, d)` for a Gaussian potential. Finite, never pickled.
        origin: where they came from (a path, or a data set's name), for messages.
        features: names of the columns of `x`, where the origin tells them.
    """

    client: int
    arrays: Mapping[str, Array]
    origin: str
    features: tuple[str, ...] | None = None

    def checksum(self) -> int:
        """Return 32 bits that change with the data: a resumed run asks whether they are still the same."""
        checksum = 0
        for name, array in sorted(self.arrays.items()):
            checksum = zlib.crc32(f"{name}{array.shape}{array.dtype}".encode(), checksum)
            checksum = zlib.crc32(np.ascontiguousarray(array).data.cast("B") if array.size else b"", checksum)
        return checksum


@dataclass(frozen=True)
class TestSet:
    """Held-out rows that no client samples from.

    Attributes:
        x: `(n, p)` features, as the source has them: `DataSource.design_matrix` makes of them what a model takes.
        y: `(n,)` labels or targets.
    """

    __test__ = False  # not a test class, whatever pytest thinks of the name

    x: Array
    y: Array


class DataSource(BaseModel):
    """Where shards come from. A subclass is one choice of `data.name`.

    A source draws only from generators keyed by the run's seed, so that every rank agrees on who owns which row.
    Between a source and a model stands the preparation of features, in the same words for every source:

        shards = source.shards(clients_here, total, seed)
        moments = source.moments(shards)              # empty unless the config says that they are shared
        standardization = source.standardization(moments_of_all_clients)
        shards = [source.prepared(shard, standardization) for shard in shards]

    and of the test set, afterwards, `source.design_matrix(test.x, standardization)`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    summary: ClassVar[str]
    """One line for `fedlangevin list data`."""

    name: str

    def shards(self, clients: Sequence[int], total: int, seed: int) -> list[Shard]:
        """Return the raw shards of `clients`, out of `total` clients, and hold nothing of the others.

        Raises:
            ShardError: a shard is missing, unreadable, empty or not finite.
            ConfigError: the rows cannot be dealt to so many clients.
        """
        raise NotImplementedError

    def test_set(self, total: int, seed: int) -> TestSet | None:
        """Return the raw held-out rows, or None where there are none."""
        raise NotImplementedError

    def held_out(self, clients: Sequence[int], total: int, seed: int) -> Sequence[TestSet | None]:
        """Return each client's part of the raw held-out rows, None where there are none.

        It holds the rows that the client owns, or where they are nobody's, an equal share; in the order of clients
        they are the test set.
        """
        test = self.test_set(total, seed)
        if test is None:
            return [None for _ in clients]
        parts = [share(len(test.y), client, total) for client in clients]
        return [TestSet(test.x[part].copy(), test.y[part].copy()) for part in parts]

    def moments(self, shards: Sequence[Shard]) -> list[Moments]:
        """Return what each client must share before its features can be prepared; empty: nothing.

        Raises:
            ShardError: a shard has no `x (n, p)`.
        """
        return []

    def standardization(self, moments: Sequence[Moments]) -> Standardization | None:
        """Return what the features are standardised with, or None where they are left as they are.

        Args:
            moments: of all clients, in client order; empty where nothing is shared.

        Raises:
            ShardError: clients differ in the number of columns.
        """
        return None

    def design_matrix(self, x: Array, standardization: Standardization | None) -> Array:
        """Return raw features `(n, p)` as a model takes them.

        Raises:
            ConfigError: the standardisation is of another number of columns.
        """
        return x

    def prepared(self, shard: Shard, standardization: Standardization | None) -> Shard:
        """Return the shard with its features as a model takes them.

        Raises:
            ShardError: the shard has no `x (n, p)`.
            ConfigError: the standardisation is of another number of columns.
        """
        return shard


def share(rows: int, client: int, total: int) -> slice:
    """Return which of some rows are a client's, dealt in order in parts that differ by one row at most."""
    return slice(client * rows // total, (client + 1) * rows // total)
