"""Sources with features `x (n, p)`: what they share, and the ones that every rank can make in memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Discriminator, Field, Tag

from fedlangevin_mpi.data import standardize
from fedlangevin_mpi.data.partition import Iid, Partition
from fedlangevin_mpi.data.readers import Table
from fedlangevin_mpi.data.shard import Array, DataSource, Shard, TestSet
from fedlangevin_mpi.data.standardize import Moments, Standardization
from fedlangevin_mpi.errors import ShardError
from fedlangevin_mpi.keys import Purpose, generator

# Tagged, so that a wrong value is told what is wrong with it, not with each alternative.
Standardize = (
    Annotated[
        Annotated[Literal["pooled"], Tag("pooled")] | Annotated[Standardization, Tag("numbers")],
        Discriminator(lambda value: "pooled" if isinstance(value, str) else "numbers"),
    ]
    | None
)

STANDARDIZE = (
    "how the columns of x are standardised: null (as they are); pooled (by mean and standard deviation of all clients' "
    "training rows: every client tells all others its number of rows and, per column, its mean and sum of squared "
    "deviations, once); or given numbers {mean: [...], scale: [...]}, which share nothing"
)
INTERCEPT = "whether a column of ones is appended to x"
PARTITION = "how the training rows are dealt to clients"


class FeatureSource(DataSource):
    """A source of features `x (n, p)`, standardised and with an intercept where the config says so."""

    standardize: Standardize = Field(default=None, description=STANDARDIZE)
    intercept: bool = Field(default=False, description=INTERCEPT)

    def moments(self, shards: Sequence[Shard]) -> list[Moments]:
        """Return the moments of every shard's features with `standardize: pooled`, else nothing."""
        return [standardize.moments(_features(shard)) for shard in shards] if self.standardize == "pooled" else []

    def standardization(self, moments: Sequence[Moments]) -> Standardization | None:
        """Return the numbers that `standardize` gives, or that `pooled` means."""
        return standardize.pooled(moments) if self.standardize == "pooled" else self.standardize

    def design_matrix(self, x: Array, standardization: Standardization | None) -> Array:
        """Return `x` standardised, then a column of ones behind it, each where asked for."""
        return standardize.apply(x, standardization, self.intercept)

    def prepared(self, shard: Shard, standardization: Standardization | None) -> Shard:
        """Return the shard with the design matrix as its `x`."""
        if standardization is None and not self.intercept:
            return shard
        x = self.design_matrix(_features(shard), standardization)
        features = shard.features
        if features is not None and self.intercept:
            features = (*features, "intercept")
        return dataclasses.replace(shard, arrays={**shard.arrays, "x": x}, features=features)


class TableSource(FeatureSource):
    """One table that every rank makes in memory and of which it keeps its clients' rows.

    Test rows are split off first, and only what remains is dealt to the clients. A subclass gives `table` and
    `columns`, or `read` where both come from one file.
    """

    test_fraction: float = Field(
        default=0.2,
        ge=0,
        lt=1,
        description="share of the rows held out as test set before the rest is dealt to clients, in [0, 1), "
        "rounded up to whole rows; 0: no test set",
    )
    partition: Partition = Field(default=Iid(), description=PARTITION)

    def table(self) -> tuple[Array, Array]:
        """Return all rows, `x (n, p)` and `y (n,)`; integers are class labels, floating-point numbers targets."""
        raise NotImplementedError

    def columns(self) -> list[str]:
        """Return the names of the columns of the table's `x`."""
        raise NotImplementedError

    def read(self) -> Table:
        """Return all of it."""
        return Table(*self.table(), tuple(self.columns()))

    def shards(self, clients: Sequence[int], total: int, seed: int) -> list[Shard]:
        """Return copies of the clients' rows, in the table's order."""
        x, y, columns = self.read()
        _, training = self._split(len(y), seed)
        owners = self.partition.assign(y[training], total, generator(seed, Purpose.PARTITION))
        owned = ((client, training[owners == client]) for client in clients)
        return [Shard(client, {"x": x[rows], "y": y[rows]}, self.name, columns) for client, rows in owned]

    def test_set(self, total: int, seed: int) -> TestSet | None:
        """Return the held-out rows, in the table's order; they do not depend on the number of clients."""
        x, y, _ = self.read()
        rows, _ = self._split(len(y), seed)
        return TestSet(x[rows], y[rows]) if len(rows) else None

    def _split(self, rows: int, seed: int) -> tuple[Array, Array]:
        """Return the rows of the test set and those of the clients, each ascending."""
        shuffled = generator(seed, Purpose.TEST_SPLIT).permutation(rows)
        test, training = np.split(shuffled, [math.ceil(self.test_fraction * rows)])
        return np.sort(test), np.sort(training)


def _features(shard: Shard) -> Array:
    x = shard.arrays.get("x")
    if x is None or x.ndim != 2:
        found = "no array x" if x is None else f"x of shape {x.shape}"
        raise ShardError(shard.client, shard.origin, f"standardize and intercept need x (n, p), found {found}")
    return x
