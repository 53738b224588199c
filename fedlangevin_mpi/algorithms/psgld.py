"""pSGLD, SGLD on one client with the preconditioner of RMSProp: steps are longer where gradients are small.

    V' = alpha V + (1 - alpha) g(x)^2,   G = 1 / (lambda + sqrt(V'))      elementwise, V_0 = 0
    x' = x - gamma G g(x) + sqrt(2 gamma G) Z

Li, Chen, Carlson, Carin: Preconditioned stochastic gradient Langevin dynamics for deep neural networks, AAAI 2016,
algorithm 1, without its term Gamma as the authors do in practice: the law is biased by how fast G changes, the less the
closer alpha is to 1. They divide g by the number of rows N in V; here `step_size` is their `N epsilon / 2` and
`damping` their `N lambda`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from fedlangevin_mpi.algorithms.base import (
    Algorithm,
    Array,
    Communicates,
    Streams,
    Temperature,
    Traffic,
    langevin_steps,
)
from fedlangevin_mpi.generic import gradient


class PsgldState(NamedTuple):
    """The preconditioner's memory.

    Attributes:
        square: `(1, chains, dim)` running mean V of squared gradients.
    """

    square: Array


class PsgldDraws(NamedTuple):
    """The randomness of a block of T iterations.

    Attributes:
        step: `(T,)` step size gamma.
        scale: `(T,)` `sqrt(2 gamma temperature)`.
        decay: `(T,)` alpha.
        damping: `(T,)` lambda.
        noise: `(T, 1, chains, dim)` standard normals.
    """

    step: Array
    scale: Array
    decay: Array
    damping: Array
    noise: Array


def psgld(
    theta: Array,
    state: PsgldState,
    draws: PsgldDraws,
    data: Any,
    batch: Any,
    channel: Any,
    trace: Array,
    slot: Array,
    start: int,
    stop: int,
) -> None:
    """Run iterations of pSGLD (equations in the module's docstring)."""
    square = state.square
    for k in range(start, stop):
        slope = gradient(theta, data, batch, k)
        square[:] = draws.decay[k] * square + (1 - draws.decay[k]) * slope * slope
        factor = 1 / (draws.damping[k] + square**0.5)
        theta[:] = theta - draws.step[k] * factor * slope + draws.scale[k] * factor**0.5 * draws.noise[k]
        if slot[k] >= 0:
            trace[slot[k]] = theta


class Psgld(Algorithm):
    """pSGLD on pooled data: SGLD preconditioned as RMSProp (Li et al. 2016)."""

    summary: ClassVar[str] = "preconditioned SGLD on one client: longer steps where gradients are small"
    kernel: ClassVar[Any] = staticmethod(psgld)
    communicates: ClassVar[Communicates] = "never"

    name: Literal["psgld"] = "psgld"
    temperature: Temperature = 1.0
    decay: Annotated[float, Field(ge=0, lt=1, description="alpha: weight of the old squared gradients")] = 0.99
    damping: Annotated[
        float, Field(gt=0, description="lambda, in the units of a gradient of U: bounds the preconditioner by 1/lambda")
    ] = 1.0

    def state(self, theta: Array) -> PsgldState:
        """Return V = 0."""
        return PsgldState(np.zeros_like(theta))

    def draws(self, streams: Streams) -> PsgldDraws:
        """Return the randomness of a block."""
        steps = langevin_steps(streams, self.step_size, self.temperature)
        decay, damping = (np.full(len(streams.iterations), v, streams.dtype) for v in (self.decay, self.damping))
        return PsgldDraws(*steps, decay, damping, streams.noise())

    def traffic(self, draws: PsgldDraws) -> Traffic:
        """Nothing is exchanged."""
        nothing = np.zeros(len(draws.step), np.int64)
        return Traffic(nothing, nothing, None)
