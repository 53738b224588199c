"""Standardised features: from statistics that the config gives, or that clients share because the config says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedlangevin_mpi.errors import ConfigError, ShardError

Array = np.ndarray[Any, np.dtype[Any]]


class Moments(NamedTuple):
    """What one client tells the others of its features, and only with `standardize: pooled`.

    Attributes:
        rows: how many training rows it has.
        mean: `(p,)` of its rows, float64.
        deviation: `(p,)` sum of squared deviations from that mean, float64.
    """

    rows: int
    mean: Array
    deviation: Array


class Standardization(BaseModel):
    """`(x - mean) / scale`, a column at a time."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    mean: tuple[float, ...] = Field(description="subtracted from each column of x, in the column's unit")
    scale: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        description="each column is divided by it, in the column's unit, > 0; as many as in `mean`"
    )

    @model_validator(mode="after")
    def _same_length(self) -> Self:
        if len(self.mean) != len(self.scale):
            raise ValueError(f"found {len(self.mean)} means and {len(self.scale)} scales; allowed: one a column each")
        return self


def moments(x: Array) -> Moments:
    """Return the moments of one client's features `(n, p)`."""
    mean = x.mean(axis=0, dtype=np.float64)
    return Moments(len(x), mean, np.square(x - mean).sum(axis=0))


def pooled(clients: Sequence[Moments]) -> Standardization:
    """Return mean and standard deviation (divided by the number of rows) over the rows of all clients.

    The sums run in client order, so that the result does not depend on who is hosted where. A constant column gets
    scale 1.

    Args:
        clients: the moments of every client, in client order.

    Raises:
        ShardError: a client has another number of columns than client 0.
    """
    columns = len(clients[0].mean)
    for client, of_client in enumerate(clients):
        if len(of_client.mean) != columns:
            problem = f"x has {len(of_client.mean)} columns, client 0 has {columns}; allowed: one number for all"
            raise ShardError(client, "data.standardize: pooled", problem)
    rows = sum(of_client.rows for of_client in clients)
    mean = sum((c.rows * c.mean for c in clients), np.zeros(columns)) / rows
    deviation = sum((c.deviation + c.rows * np.square(c.mean - mean) for c in clients), np.zeros(columns))
    scale = np.sqrt(deviation / rows)
    # A constant column's deviation is the rounding of its mean, not 0: dividing by it would make noise of it.
    constant = scale <= rows * np.finfo(np.float64).eps * np.abs(mean)
    return Standardization(mean=tuple(mean.tolist()), scale=tuple(np.where(constant, 1.0, scale).tolist()))


def apply(x: Array, standardization: Standardization | None, intercept: bool) -> Array:
    """Return the design matrix: `x (n, p)` standardised, then a column of ones behind it, each where asked for.

    Raises:
        ConfigError: the statistics are of another number of columns.
    """
    if standardization is not None:
        if len(standardization.mean) != x.shape[1]:
            found = f"{len(standardization.mean)} means and scales for {x.shape[1]} columns of x"
            raise ConfigError(f"data.standardize: found {found}; allowed: one a column")
        x = (x - np.asarray(standardization.mean)) / np.asarray(standardization.scale)
    return np.column_stack([x, np.ones(len(x), x.dtype)]) if intercept else x
