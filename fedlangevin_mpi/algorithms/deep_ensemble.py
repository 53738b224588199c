"""Deep ensemble: networks trained apart from each other, whose predictions are averaged. One client, no noise.

    v' = mu v - gamma g(x),   x' = x + v'      v_0 = 0

A chain is a member, with a start and minibatches of its own; its only draw is where it ends, unless the config has a
`thin`. Members end near modes of the posterior, the prior being their weight decay, and the predictive of the draws is
the ensemble's.

Lakshminarayanan, Pritzel, Blundell: Simple and scalable predictive uncertainty estimation using deep ensembles, NIPS
2017, algorithm 1 without its adversarial examples; stochastic gradient descent with the momentum of Polyak (1964).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from fedlangevin_mpi.algorithms.base import Algorithm, Array, Communicates, Streams, Traffic
from fedlangevin_mpi.algorithms.schedule import steps_at
from fedlangevin_mpi.generic import gradient


class DeepEnsembleState(NamedTuple):
    """What members remember.

    Attributes:
        velocity: `(1, chains, dim)` v.
    """

    velocity: Array


class DeepEnsembleDraws(NamedTuple):
    """The step sizes of a block of T iterations.

    Attributes:
        step: `(T,)` step size gamma.
        momentum: `(T,)` mu.
    """

    step: Array
    momentum: Array


def deep_ensemble(
    theta: Array,
    state: DeepEnsembleState,
    draws: DeepEnsembleDraws,
    data: Any,
    batch: Any,
    channel: Any,
    trace: Array,
    slot: Array,
    start: int,
    stop: int,
) -> None:
    """Run iterations of all members (equations in the module's docstring)."""
    velocity = state.velocity
    for k in range(start, stop):
        velocity[:] = draws.momentum[k] * velocity - draws.step[k] * gradient(theta, data, batch, k)
        theta[:] = theta + velocity
        if slot[k] >= 0:
            trace[slot[k]] = theta


class DeepEnsemble(Algorithm):
    """A deep ensemble: every chain is a member, trained by SGD with momentum (Lakshminarayanan et al. 2017)."""

    summary: ClassVar[str] = "deep ensemble on one client: a member a chain, trained without noise"
    kernel: ClassVar[Any] = staticmethod(deep_ensemble)
    communicates: ClassVar[Communicates] = "never"
    keeps: ClassVar[Literal["every", "final"]] = "final"

    name: Literal["deep_ensemble"] = "deep_ensemble"
    momentum: Annotated[float, Field(ge=0, lt=1, description="mu: share of its last move that a member keeps")] = 0.9

    def state(self, theta: Array) -> DeepEnsembleState:
        """Return v = 0."""
        return DeepEnsembleState(np.zeros_like(theta))

    def draws(self, streams: Streams) -> DeepEnsembleDraws:
        """Return the step sizes of a block."""
        step = steps_at(self.step_size, streams.iterations).astype(streams.dtype)
        return DeepEnsembleDraws(step, np.full(len(step), self.momentum, streams.dtype))

    def traffic(self, draws: DeepEnsembleDraws) -> Traffic:
        """Nothing is exchanged."""
        nothing = np.zeros(len(draws.step), np.int64)
        return Traffic(nothing, nothing, None)
