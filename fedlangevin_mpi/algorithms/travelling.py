"""Local steps of chains that travel between agents, without and with noise: the kernel of DSGLD, FSGLD and FedAvg.

    theta <- theta - gamma ( a grad U0 + b grad L_k - (c - C theta) ) + s sqrt(2 gamma) Z

with weights a, b, s, and a linear force `c - C theta` that is zero but in FSGLD.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedlangevin_mpi.algorithms.base import Array
from fedlangevin_mpi.algorithms.serving import NoMemory, Serving, Target, Turn
from fedlangevin_mpi.generic import Everything, gradient


class Weights(NamedTuple):
    """What the terms of a step weigh.

    Attributes:
        prior: a.
        likelihood: b.
        noise: s; 0: none.
    """

    prior: float
    likelihood: float
    noise: float


class Force(NamedTuple):
    """The force `c - C theta`: `linear (d,)`, and `curvature (d, d)`; without a row there is none."""

    linear: Array
    curvature: Array


NO_FORCE = Force(np.zeros(0), np.zeros((0, 0)))


def travel(
    theta: Array,
    likelihood: Any,
    prior: Any,
    batch: Any,
    everything: Any,
    steps: Array,
    noise: Array,
    weights: Weights,
    force: Force,
) -> None:
    """Move chains `theta (1, n, d)` by `len(steps)` steps (module's docstring); `noise (L, n, d)`, or n = 0."""
    for step in range(len(steps)):
        slope = weights.prior * gradient(theta, prior, everything, 0)
        slope += weights.likelihood * gradient(theta, likelihood, batch, step)
        if len(force.curvature):
            slope[0] += np.dot(theta[0], force.curvature) - force.linear
        theta[:] = theta - steps[step] * slope
        if weights.noise != 0:
            theta[0] = theta[0] + weights.noise * np.sqrt(2 * steps[step]) * noise[step]


class Travelling(Serving):
    """What DSGLD, FSGLD and FedAvg share: rows are states, and a dealt agent moves them."""

    kernel: ClassVar[Any] = staticmethod(travel)
    shared_rows: ClassVar[bool] = False

    def agent(self, start: Array, target: Target) -> Any:
        """Return nothing: only states travel, and nobody remembers."""
        return NoMemory()

    def example(self, start: Array, target: Target, batch: Any) -> tuple[Any, ...]:
        """Return arguments of the kernel for no step."""
        noise = np.empty((0, *start.shape))
        weights = Weights(1.0, 1.0, 1.0)
        data = target.likelihood, target.prior, batch, Everything(1)
        return start[None].copy(), *data, np.empty(0), noise, weights, NO_FORCE

    def moved(
        self, kernel: Any, target: Target, received: Array, turn: Turn, weights: Weights, force: Force = NO_FORCE
    ) -> Array:
        """Return where the local steps take the states `received (n, d)`."""
        theta = received[None].copy()
        data = target.likelihood, target.prior, turn.batch, Everything(1)
        kernel(theta, *data, turn.steps, turn.noise, weights, force)
        result: Array = theta[0]
        return result
