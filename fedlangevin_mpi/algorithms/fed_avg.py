"""FedAvg, federated averaging: FALD without noise, a point estimate.

    y_i  = x_i - gamma g_i(x_i)
    x_i' = mean_j y_j   if B ~ Bernoulli(p_c),   else y_i

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-efficient learning of deep networks from decentralized
data, AISTATS 2017.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from fedlangevin_mpi.algorithms.averaging import Averaging, equal_weights
from fedlangevin_mpi.algorithms.base import Array, Streams, Traffic
from fedlangevin_mpi.algorithms.schedule import steps_at
from fedlangevin_mpi.generic import exchange, gradient


class FedAvgDraws(NamedTuple):
    """The randomness of a block of T iterations.

    Attributes:
        step: `(T,)` step size gamma.
        communicate: `(T, chains)` bool, the chains that take the average.
        weights: `(T, clients_here)` weight of each client in the average.
    """

    step: Array
    communicate: Array
    weights: Array


def fed_avg(
    theta: Array,
    state: Any,
    draws: FedAvgDraws,
    data: Any,
    batch: Any,
    channel: Any,
    trace: Array,
    slot: Array,
    start: int,
    stop: int,
) -> None:
    """Run iterations of FedAvg (equations in the module's docstring)."""
    for k in range(start, stop):
        theta[:] = theta - draws.step[k] * gradient(theta, data, batch, k)
        if draws.communicate[k].any():
            exchange(theta, channel, draws.weights[k], draws.communicate[k])
        if slot[k] >= 0:
            trace[slot[k]] = theta


class FedAvg(Averaging):
    """FedAvg: gradient steps on each client, averaged; no noise, so a point estimate (McMahan et al. 2017)."""

    summary: ClassVar[str] = "federated averaging: local gradient steps, averaged; a point estimate"
    kernel: ClassVar[Any] = staticmethod(fed_avg)

    name: Literal["fed_avg"] = "fed_avg"

    def draws(self, streams: Streams) -> FedAvgDraws:
        """Return the randomness of a block."""
        step = steps_at(self.step_size, streams.iterations).astype(streams.dtype)
        return FedAvgDraws(step, self.communication_coins(streams), equal_weights(streams))

    def traffic(self, draws: FedAvgDraws) -> Traffic:
        """One exchange in a round; every client sends its position."""
        chains = draws.communicate.sum(axis=1)
        return Traffic((chains > 0).astype(np.int64), chains, None)
