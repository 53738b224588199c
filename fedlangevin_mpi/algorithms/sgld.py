"""SGLD, stochastic gradient Langevin dynamics on one client; with full gradients the unadjusted Langevin algorithm.

    x' = x - gamma g(x) + sqrt(2 gamma) Z

Welling, Teh: Bayesian learning via stochastic gradient Langevin dynamics, ICML 2011.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from fedlangevin_mpi.algorithms.base import (
    Algorithm,
    Array,
    Communicates,
    Streams,
    Temperature,
    Traffic,
    langevin_steps,
)
from fedlangevin_mpi.algorithms.langevin import langevin_update
from fedlangevin_mpi.generic import gradient


class SgldDraws(NamedTuple):
    """The randomness of a block of T iterations.

    Attributes:
        step: `(T,)` step size gamma.
        scale: `(T,)` `sqrt(2 gamma temperature)`.
        noise: `(T, 1, chains, dim)` standard normals.
    """

    step: Array
    scale: Array
    noise: Array


def sgld(
    theta: Array,
    state: Any,
    draws: SgldDraws,
    data: Any,
    batch: Any,
    channel: Any,
    trace: Array,
    slot: Array,
    start: int,
    stop: int,
) -> None:
    """Run iterations of SGLD (equation in the module's docstring)."""
    for k in range(start, stop):
        slope = gradient(theta, data, batch, k)
        langevin_update(theta, draws.step[k], slope, draws.scale[k], draws.noise[k])
        if slot[k] >= 0:
            trace[slot[k]] = theta


class Sgld(Algorithm):
    """SGLD on pooled data: the centralised baseline (Welling and Teh 2011)."""

    summary: ClassVar[str] = "stochastic gradient Langevin dynamics on one client, the centralised baseline"
    kernel: ClassVar[Any] = staticmethod(sgld)
    communicates: ClassVar[Communicates] = "never"

    name: Literal["sgld"] = "sgld"
    temperature: Temperature = 1.0

    def draws(self, streams: Streams) -> SgldDraws:
        """Return the randomness of a block."""
        return SgldDraws(*langevin_steps(streams, self.step_size, self.temperature), streams.noise())

    def traffic(self, draws: SgldDraws) -> Traffic:
        """Nothing is exchanged."""
        nothing = np.zeros(len(draws.step), np.int64)
        return Traffic(nothing, nothing, None)
