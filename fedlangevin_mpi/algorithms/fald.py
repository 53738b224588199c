"""FALD, federated averaging Langevin dynamics.

Each client `i` of `b` takes Langevin steps on its own potential; with probability `p_c` all take the average:

    y_i  = x_i - gamma g_i(x_i) + sqrt(2 gamma) ( sqrt(tau / b) Z + sqrt(1 - tau) Z_i )
    x_i' = mean_j y_j   if B ~ Bernoulli(p_c),   else y_i

The average targets `pi ∝ exp(-sum_i U_i)` with step `gamma / b`; at `p_c = 1` it is the unadjusted Langevin algorithm
exactly. With `p_c < 1` clients drift towards their own posteriors and the law is biased (client drift).

Plassier, Moulines, Durmus: Federated averaging Langevin dynamics: toward a unified theory and new algorithms,
AISTATS 2023, eqs. (4)-(7). Their eq. (6) prints `sqrt(tau)` for the common noise; their algorithms and proof need
`sqrt(tau / b)`, used here. Partial participation: Deng, Zhang, Ma, Song, Zhang, Lin: On convergence of federated
averaging Langevin dynamics, 2021.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from fedlangevin_mpi.algorithms.averaging import Averaging, equal_weights
from fedlangevin_mpi.algorithms.base import Array, Streams, Temperature, Traffic, langevin_steps
from fedlangevin_mpi.algorithms.langevin import langevin_update
from fedlangevin_mpi.generic import exchange, gradient

NoiseCorrelation = Annotated[
    float, Field(ge=0, le=1, description="tau: share of the noise's variance that all clients have in common")
]


class FaldDraws(NamedTuple):
    """The randomness of a block of T iterations.

    Attributes:
        step: `(T,)` step size gamma.
        scale: `(T,)` `sqrt(2 gamma temperature)`.
        noise: `(T, clients_here, chains, dim)` `sqrt(tau/b) Z + sqrt(1-tau) Z_i`.
        communicate: `(T, chains)` bool, the chains that take the average.
        weights: `(T, clients_here)` weight of each client in the average.
    """

    step: Array
    scale: Array
    noise: Array
    communicate: Array
    weights: Array


def fald(
    theta: Array,
    state: Any,
    draws: FaldDraws,
    data: Any,
    batch: Any,
    channel: Any,
    trace: Array,
    slot: Array,
    start: int,
    stop: int,
) -> None:
    """Run iterations of FALD (equations in the module's docstring)."""
    for k in range(start, stop):
        slope = gradient(theta, data, batch, k)
        langevin_update(theta, draws.step[k], slope, draws.scale[k], draws.noise[k])
        if draws.communicate[k].any():
            exchange(theta, channel, draws.weights[k], draws.communicate[k])
        if slot[k] >= 0:
            trace[slot[k]] = theta


class Fald(Averaging):
    """FALD: Langevin steps on each client, averaged with probability p_c (Plassier et al. 2023)."""

    summary: ClassVar[str] = "federated averaging Langevin dynamics: local Langevin steps, averaged at random"
    kernel: ClassVar[Any] = staticmethod(fald)

    name: Literal["fald"] = "fald"
    noise_correlation: NoiseCorrelation = 0.0
    temperature: Temperature = 1.0
    participants: Annotated[
        int | None,
        Field(ge=1, description="average only a random subset of this many clients (Deng et al. 2021); absent: all"),
    ] = None

    def draws(self, streams: Streams) -> FaldDraws:
        """Return the randomness of a block."""
        steps = langevin_steps(streams, self.step_size, self.temperature)
        weights = equal_weights(streams) if self.participants is None else _subset_weights(streams, self.participants)
        noise = correlated_noise(streams, self.noise_correlation, self.participants)
        return FaldDraws(*steps, noise, self.communication_coins(streams), weights)

    def traffic(self, draws: FaldDraws) -> Traffic:
        """One exchange in a round; every participant sends its position."""
        chains = draws.communicate.sum(axis=1)
        return Traffic((chains > 0).astype(np.int64), chains, self.participants)


def correlated_noise(streams: Streams, tau: float, participants: int | None = None) -> Array:
    """Return `sqrt(tau/b) Z + sqrt(1-tau) Z_i`, `(T, clients_here, chains, dim)`, of unit variance over the average.

    Where only `participants` = s of the b clients are averaged, private noise is scaled by `sqrt(s/b)`: the average
    of s clients would otherwise have b/s times the variance that the target needs.
    """
    private = (1 - tau) * (1.0 if participants is None else participants / streams.total)
    common = tau / streams.total
    dtype = streams.dtype.type
    if tau == 0:
        noise = streams.noise()
        if private != 1:
            noise *= dtype(math.sqrt(private))
        return noise
    shared = streams.common_noise()[:, None] * dtype(math.sqrt(common))
    if tau == 1:
        return np.repeat(shared, len(streams.clients), axis=1)
    noise = streams.noise()
    noise *= dtype(math.sqrt(private))
    noise += shared
    return noise


def _subset_weights(streams: Streams, size: int) -> Array:
    here = streams.participants(size)[:, streams.clients.start : streams.clients.stop]
    weights: Array = here.astype(streams.dtype) / streams.dtype.type(size)
    return weights
