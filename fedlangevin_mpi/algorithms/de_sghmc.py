"""DE-SGHMC, decentralised stochastic gradient Hamiltonian Monte Carlo: underdamped Langevin dynamics over a graph.

    v_i' = v_i - eta (gamma v_i + g_i(x_i)) + sqrt(2 gamma eta) w_i
    x_i' = sum_j W_ij x_j + eta v_i'

with positions of time k in the sum and the new velocity; only positions are mixed. `W` is a doubly stochastic mixing
matrix of the clients' graph. One client is SGHMC (Chen, Fox, Guestrin 2014). Stable for
`eta^2 L < (1 + lambda_N(W)) (2 - gamma eta)` and `gamma eta <= 1`, `L` the largest curvature of a single `f_i`.

Gürbüzbalaban, Gao, Hu, Zhu: Decentralized stochastic gradient Langevin dynamics and Hamiltonian Monte Carlo, JMLR 2021,
section 4.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from fedlangevin_mpi.algorithms.base import Array, Streams, Temperature, langevin_steps
from fedlangevin_mpi.algorithms.gossiping import Gossiping
from fedlangevin_mpi.algorithms.langevin import langevin_update
from fedlangevin_mpi.generic import exchange, gradient


class DeSghmcState(NamedTuple):
    """The velocities: `velocity (clients_here, chains, dim)`, zero at first."""

    velocity: Array


class DeSghmcDraws(NamedTuple):
    """The randomness of a block of T iterations.

    Attributes:
        step: `(T,)` step size eta.
        scale: `(T,)` `sqrt(2 gamma eta temperature)`.
        friction: `(T,)` gamma.
        noise: `(T, clients_here, chains, dim)` standard normals.
        mixing: `(T,)` number of the mixing matrix, -1 where `W = I`.
    """

    step: Array
    scale: Array
    friction: Array
    noise: Array
    mixing: Array


def de_sghmc(
    theta: Array,
    state: DeSghmcState,
    draws: DeSghmcDraws,
    data: Any,
    batch: Any,
    channel: Any,
    trace: Array,
    slot: Array,
    start: int,
    stop: int,
) -> None:
    """Run iterations of DE-SGHMC (equations in the module's docstring)."""
    velocity = state.velocity
    for k in range(start, stop):
        force = draws.friction[k] * velocity + gradient(theta, data, batch, k)
        langevin_update(velocity, draws.step[k], force, draws.scale[k], draws.noise[k])
        if draws.mixing[k] >= 0:
            exchange(theta, channel, draws.mixing[k])
        theta[:] = theta + draws.step[k] * velocity
        if slot[k] >= 0:
            trace[slot[k]] = theta


class DeSghmc(Gossiping):
    """DE-SGHMC: DE-SGLD with velocities and friction (Gürbüzbalaban et al. 2021)."""

    summary: ClassVar[str] = "decentralised stochastic gradient Hamiltonian Monte Carlo over a graph"
    kernel: ClassVar[Any] = staticmethod(de_sghmc)

    name: Literal["de_sghmc"] = "de_sghmc"
    friction: Annotated[float, Field(gt=0, description="gamma: rate at which velocities decay, per unit of time")] = 1.0
    temperature: Temperature = 1.0

    def state(self, theta: Array) -> DeSghmcState:
        """Return velocities of zero."""
        return DeSghmcState(np.zeros_like(theta))

    def draws(self, streams: Streams) -> DeSghmcDraws:
        """Return the randomness of a block."""
        steps = langevin_steps(streams, self.step_size, self.temperature * self.friction)
        friction = np.full(len(streams.iterations), self.friction, streams.dtype)
        return DeSghmcDraws(*steps, friction, streams.noise(), self.mixing(streams))
