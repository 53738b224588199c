"""DE-SGLD, decentralised stochastic gradient Langevin dynamics: no server, each client talks to its neighbours only.

    x_i' = sum_j W_ij x_j - eta g_i(x_i) + sqrt(2 eta) w_i

all from the values at time k. `W` is a doubly stochastic mixing matrix of the clients' graph. The average of all
clients is close to the posterior; each client fluctuates around it by O(sqrt(eta)), more the slower `W` mixes. One
client is SGLD. Stable for `eta < (1 + lambda_N(W)) / L`, `L` the largest curvature of a single `f_i`.

Gürbüzbalaban, Gao, Hu, Zhu: Decentralized stochastic gradient Langevin dynamics and Hamiltonian Monte Carlo, JMLR 2021,
eq. (2).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

from fedlangevin_mpi.algorithms.base import Array, Streams, Temperature, langevin_steps
from fedlangevin_mpi.algorithms.gossiping import Gossiping
from fedlangevin_mpi.algorithms.langevin import langevin_update
from fedlangevin_mpi.generic import exchange, gradient


class DeSgldDraws(NamedTuple):
    """The randomness of a block of T iterations.

    Attributes:
        step: `(T,)` step size eta.
        scale: `(T,)` `sqrt(2 eta temperature)`.
        noise: `(T, clients_here, chains, dim)` standard normals.
        mixing: `(T,)` number of the mixing matrix, -1 where `W = I`.
    """

    step: Array
    scale: Array
    noise: Array
    mixing: Array


def de_sgld(
    theta: Array,
    state: Any,
    draws: DeSgldDraws,
    data: Any,
    batch: Any,
    channel: Any,
    trace: Array,
    slot: Array,
    start: int,
    stop: int,
) -> None:
    """Run iterations of DE-SGLD (equation in the module's docstring)."""
    for k in range(start, stop):
        slope = gradient(theta, data, batch, k)
        if draws.mixing[k] >= 0:
            exchange(theta, channel, draws.mixing[k])
        langevin_update(theta, draws.step[k], slope, draws.scale[k], draws.noise[k])
        if slot[k] >= 0:
            trace[slot[k]] = theta


class DeSgld(Gossiping):
    """DE-SGLD: Langevin steps around the weighted sum of the neighbours' positions (Gürbüzbalaban et al. 2021)."""

    summary: ClassVar[str] = "decentralised stochastic gradient Langevin dynamics over a graph"
    kernel: ClassVar[Any] = staticmethod(de_sgld)

    name: Literal["de_sgld"] = "de_sgld"
    temperature: Temperature = 1.0

    def draws(self, streams: Streams) -> DeSgldDraws:
        """Return the randomness of a block."""
        steps = langevin_steps(streams, self.step_size, self.temperature)
        return DeSgldDraws(*steps, streams.noise(), self.mixing(streams))
