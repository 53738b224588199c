"""When clients average: the hyperparameters that FALD, VR-FALD* and FedAvg share."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from fedlangevin_mpi.algorithms.base import Algorithm, Streams

Array = np.ndarray[Any, np.dtype[Any]]


class Averaging(Algorithm):
    """An algorithm whose clients take the average of all positions, at random or at fixed iterations."""

    communication_probability: Annotated[
        float | None, Field(gt=0, le=1, description="p_c: chance of an average in an iteration (default 1)")
    ] = None
    communication_interval: Annotated[
        int | None, Field(ge=1, description="average in every m-th iteration instead of at random")
    ] = None

    @model_validator(mode="after")
    def _one_clock(self) -> Averaging:
        if self.communication_probability is not None and self.communication_interval is not None:
            raise ValueError(
                "communication_probability and communication_interval were both given; allowed: one of the two"
            )
        return self

    def rate(self) -> float:
        """Return the mean number of averages an iteration, p_c."""
        if self.communication_interval is not None:
            return 1 / self.communication_interval
        return 1.0 if self.communication_probability is None else self.communication_probability

    def communication_coins(self, streams: Streams) -> Array:
        """Return `(T, chains)` bool: the chains that take the average after each iteration of the block."""
        if self.communication_interval is None:
            return streams.communication(self.rate())
        due = (streams.iterations + 1) % self.communication_interval == 0
        return np.repeat(due[:, None], streams.chains, axis=1)


def equal_weights(streams: Streams) -> Array:
    """Return `(T, clients_here)`: every client weighs 1/b in every average."""
    return np.full((len(streams.iterations), len(streams.clients)), 1 / streams.total, streams.dtype)
