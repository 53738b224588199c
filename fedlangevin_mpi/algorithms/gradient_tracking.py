"""DIGing-SGLD, decentralised Langevin dynamics with gradient tracking: no network bias in the mean.

Each client tracks the average gradient of all, `y_i`, besides its position:

    x_i' = sum_j W_ij x_j - eta y_i + sqrt(2 eta) w_i
    y_i' = sum_j W_ij y_j + g_i(x_i') - g_i(x_i),      y_i = g_i(x_i) at first

all from the values at time k, so that `sum_i y_i = sum_i g_i(x_i)` always. On Gaussian potentials the stationary mean
of every client is the posterior mean. With minibatches `g_i(x_i)` is the stored gradient of the step before: evaluated
again on the new minibatch, the variance would grow without bound. The first is a full gradient. A gossip exchanges two
vectors, the position and the tracker.

Nedić, Olshevsky, Shi: Achieving geometric convergence for distributed optimization over time-varying graphs (DIGing),
SIAM J. Optim. 2017, with the noise of Langevin dynamics.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from fedlangevin_mpi.algorithms.base import Array, Streams, Temperature, langevin_steps
from fedlangevin_mpi.algorithms.de_sgld import DeSgldDraws
from fedlangevin_mpi.algorithms.gossiping import Gossiping
from fedlangevin_mpi.generic import Everything, exchange, gradient


class TrackingState(NamedTuple):
    """What each client tracks.

    Attributes:
        tracker: `(clients_here, chains, dim)` y, its idea of the average gradient.
        slope: `(clients_here, chains, dim)` its own gradient at its position, as it was last evaluated.
    """

    tracker: Array
    slope: Array


def gradient_tracking(
    theta: Array,
    state: TrackingState,
    draws: DeSgldDraws,
    data: Any,
    batch: Any,
    channel: Any,
    trace: Array,
    slot: Array,
    start: int,
    stop: int,
) -> None:
    """Run iterations of DIGing-SGLD (equations in the module's docstring)."""
    tracker = state.tracker
    slope = state.slope
    for k in range(start, stop):
        step = draws.step[k] * tracker
        if draws.mixing[k] >= 0:
            exchange(theta, channel, draws.mixing[k])
            exchange(tracker, channel, draws.mixing[k])
        theta[:] = theta - step + draws.scale[k] * draws.noise[k]
        fresh = gradient(theta, data, batch, k)
        tracker[:] = tracker + fresh - slope
        slope[:] = fresh
        if slot[k] >= 0:
            trace[slot[k]] = theta


def first_gradient(theta: Array, state: TrackingState, draws: DeSgldDraws, data: Any, channel: Any) -> None:
    """Set `y_i = grad U_i(x_i)`, the full gradient; nothing is exchanged."""
    state.slope[:] = gradient(theta, data, Everything(theta.shape[0]), 0)
    state.tracker[:] = state.slope


class GradientTracking(Gossiping):
    """DIGing-SGLD: DE-SGLD along a tracked average gradient, free of the network's bias (Nedić et al. 2017)."""

    summary: ClassVar[str] = "DE-SGLD with gradient tracking: no bias of the mean from the network"
    kernel: ClassVar[Any] = staticmethod(gradient_tracking)
    begin: ClassVar[Any] = staticmethod(first_gradient)
    exchanges_per_gossip: ClassVar[int] = 2

    name: Literal["gradient_tracking"] = "gradient_tracking"
    temperature: Temperature = 1.0

    def state(self, theta: Array) -> TrackingState:
        """Return room for the tracker and the gradient."""
        return TrackingState(np.zeros_like(theta), np.zeros_like(theta))

    def draws(self, streams: Streams) -> DeSgldDraws:
        """Return the randomness of a block."""
        steps = langevin_steps(streams, self.step_size, self.temperature)
        return DeSgldDraws(*steps, streams.noise(), self.mixing(streams))
