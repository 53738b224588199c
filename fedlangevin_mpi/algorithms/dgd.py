"""DGD, decentralised gradient descent: DE-SGLD without noise, a point estimate.

    x_i' = sum_j W_ij x_j - eta g_i(x_i)

all from the values at time k. With a constant step it ends near the mode, O(eta) off where the clients differ.

Nedić, Ozdaglar: Distributed subgradient methods for multi-agent optimization, IEEE TAC 2009; Yuan, Ling, Yin: On the
convergence of decentralized gradient descent, SIAM J. Optim. 2016, eq. (3).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

from fedlangevin_mpi.algorithms.base import Array, Streams
from fedlangevin_mpi.algorithms.gossiping import Gossiping
from fedlangevin_mpi.algorithms.schedule import steps_at
from fedlangevin_mpi.generic import exchange, gradient


class DgdDraws(NamedTuple):
    """The step sizes and the schedule of a block of T iterations.

    Attributes:
        step: `(T,)` step size eta.
        mixing: `(T,)` number of the mixing matrix, -1 where `W = I`.
    """

    step: Array
    mixing: Array


def dgd(
    theta: Array,
    state: Any,
    draws: DgdDraws,
    data: Any,
    batch: Any,
    channel: Any,
    trace: Array,
    slot: Array,
    start: int,
    stop: int,
) -> None:
    """Run iterations of DGD (equation in the module's docstring)."""
    for k in range(start, stop):
        slope = gradient(theta, data, batch, k)
        if draws.mixing[k] >= 0:
            exchange(theta, channel, draws.mixing[k])
        theta[:] = theta - draws.step[k] * slope
        if slot[k] >= 0:
            trace[slot[k]] = theta


class Dgd(Gossiping):
    """DGD: gradient steps around the weighted sum of the neighbours' positions; no noise, so a point estimate."""

    summary: ClassVar[str] = "decentralised gradient descent over a graph; a point estimate"
    kernel: ClassVar[Any] = staticmethod(dgd)

    name: Literal["dgd"] = "dgd"

    def draws(self, streams: Streams) -> DgdDraws:
        """Return the step sizes and the schedule of a block."""
        step = steps_at(self.step_size, streams.iterations).astype(streams.dtype)
        return DgdDraws(step, self.mixing(streams))
