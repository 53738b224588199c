"""Step sizes: a number, or a schedule over iterations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

Array = np.ndarray[Any, np.dtype[Any]]

PositiveStep = Annotated[float, Field(gt=0, description="step size gamma of one iteration")]


class Constant(BaseModel):
    """`gamma_k = value`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["constant"] = "constant"
    value: PositiveStep

    def at(self, iterations: Array) -> Array:
        """Return the step sizes of the 0-based `iterations`, float64."""
        return np.full(len(iterations), self.value)


class PolynomialDecay(BaseModel):
    """`gamma_k = initial (1 + k / offset)^(-power)` (Welling and Teh 2011, with `a = initial offset^power`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["polynomial"] = "polynomial"
    initial: PositiveStep
    offset: Annotated[float, Field(gt=0, description="iterations after which the step has halved `power` times")] = 1.0
    power: Annotated[float, Field(ge=0, le=1, description="exponent of the decay; 0.5 < power <= 1 converges")] = 0.55

    def at(self, iterations: Array) -> Array:
        """Return the step sizes of the 0-based `iterations`, float64."""
        steps: Array = self.initial * (1 + iterations / self.offset) ** -self.power
        return steps


StepSize = Annotated[
    PositiveStep | Annotated[Constant | PolynomialDecay, Field(discriminator="name")],
    Field(description="step size gamma: a positive number, or a schedule {name: constant | polynomial, ...}"),
]


def steps_at(step_size: float | Constant | PolynomialDecay, iterations: Array) -> Array:
    """Return the step size of every 0-based iteration, float64."""
    return (Constant(value=step_size) if isinstance(step_size, int | float) else step_size).at(iterations)
