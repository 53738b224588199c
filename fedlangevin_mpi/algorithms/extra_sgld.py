"""EXTRA-SGLD, decentralised Langevin dynamics with an exact correction by memory: no network bias in the mean.

With `V = (W + I) / 2` and a memory `q_i`, zero at first,

    x_i' = sum_j W_ij x_j - q_i - eta g_i(x_i) + sqrt(2 eta) w_i
    q_i' = q_i + sum_j (V - W)_ij x_j

all from the values at time k, so that `sum_i q_i = 0` always. On Gaussian potentials the stationary mean of every
client is the posterior mean. (EXTRA's two-step form with fresh noise in every step would integrate the noise and
diverge.) `W` should be the same in every iteration: the memory pushes in all of them and is corrected by exchanges
only, so that with a `communication_interval` or graphs that take turns the recursion may be unstable however small the
step. Gradient tracking is not.

Shi, Ling, Wu, Yin: EXTRA: an exact first-order algorithm for decentralized consensus optimization, SIAM J. Optim. 2015,
with the noise of Langevin dynamics.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from fedlangevin_mpi.algorithms.base import Array, Streams, Temperature, langevin_steps
from fedlangevin_mpi.algorithms.de_sgld import DeSgldDraws
from fedlangevin_mpi.algorithms.gossiping import Gossiping
from fedlangevin_mpi.generic import exchange, gradient


class ExtraState(NamedTuple):
    """What each client remembers.

    Attributes:
        memory: `(clients_here, chains, dim)` q.
        mixed: `(clients_here, chains, dim)` room for `W x`.
    """

    memory: Array
    mixed: Array


def extra_sgld(
    theta: Array,
    state: ExtraState,
    draws: DeSgldDraws,
    data: Any,
    batch: Any,
    channel: Any,
    trace: Array,
    slot: Array,
    start: int,
    stop: int,
) -> None:
    """Run iterations of EXTRA-SGLD (equations in the module's docstring)."""
    memory = state.memory
    mixed = state.mixed
    for k in range(start, stop):
        mixed[:] = theta
        if draws.mixing[k] >= 0:
            exchange(mixed, channel, draws.mixing[k])
        push = memory + draws.step[k] * gradient(theta, data, batch, k)
        memory[:] = memory + (theta - mixed) / 2  # (V - W) x = (x - W x) / 2
        theta[:] = mixed - push + draws.scale[k] * draws.noise[k]
        if slot[k] >= 0:
            trace[slot[k]] = theta


class ExtraSgld(Gossiping):
    """EXTRA-SGLD: DE-SGLD with a memory that removes the network's bias (Shi et al. 2015)."""

    summary: ClassVar[str] = "DE-SGLD with EXTRA's memory: no bias of the mean from the network"
    kernel: ClassVar[Any] = staticmethod(extra_sgld)

    name: Literal["extra_sgld"] = "extra_sgld"
    temperature: Temperature = 1.0

    def state(self, theta: Array) -> ExtraState:
        """Return a memory of zero and room for `W x`."""
        return ExtraState(np.zeros_like(theta), np.zeros_like(theta))

    def draws(self, streams: Streams) -> DeSgldDraws:
        """Return the randomness of a block."""
        steps = langevin_steps(streams, self.step_size, self.temperature)
        return DeSgldDraws(*steps, streams.noise(), self.mixing(streams))

    def notes(self) -> list[str]:
        """Say when W changes from iteration to iteration."""
        if self.communication_interval == 1 and self.schedule == "cyclic":
            return []
        return [
            "extra_sgld is made for one W in every iteration: with communication_interval or another schedule it may "
            "diverge at any step size; gradient_tracking does not"
        ]
