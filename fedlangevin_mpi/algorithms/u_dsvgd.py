"""U-DSVGD, unconstrained distributed SVGD: an agent remembers all particles that it received and sent.

The scheduled agent k moves the server's particles by L steps of SVGD (`stein`) towards its tilted distribution

    p_k^(i) ∝ q^(i-1) / t_k^(i-1) exp(-L_k / alpha),   t_k^(i-1) = prod_{j: k scheduled} q^(j) / q^(j-1)

where `q^(j)` is the KDE of the particles after iteration j and `q^(0) = p_0`: the prior enters once, with the first
turn of all. What an agent remembers grows by two sets of particles a turn.

Kassab, Simeone 2020 (`serving`), eqs. (13)-(19) and algorithm 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedlangevin_mpi.algorithms.base import Array
from fedlangevin_mpi.algorithms.serving import Target, Turn
from fedlangevin_mpi.algorithms.stein import Stein, SteinTarget, accumulated

KdeBandwidth = Annotated[
    float, Field(gt=0, description="lambda: standard deviation of the Gaussian kernels of a density estimate")
]


@dataclass
class Buffer:
    """What an agent remembers of its turns.

    Attributes:
        received: `(turns, N, d)` particles of `q^(j-1)` for every turn j.
        sent: `(turns, N, d)` particles of `q^(j)`.
        first: `(1,)` whether it had the first turn of all, whose `q^(0)` is p_0 and not a KDE.
    """

    received: Array
    sent: Array
    first: Array


class UDsvgd(Stein):
    """U-DSVGD: agents in turn move the server's particles; each remembers all of its turns (Kassab, Simeone 2020)."""

    summary: ClassVar[str] = "distributed SVGD whose agents remember every turn (memory grows), without distillation"

    name: Literal["u_dsvgd"] = "u_dsvgd"
    kde_bandwidth: KdeBandwidth = 0.55

    def agent(self, start: Array, target: Target) -> Buffer:
        """Return an empty buffer: `t_k^(0) = 1`."""
        nothing = np.empty((0, *start.shape))
        return Buffer(nothing, nothing, np.zeros(1, np.bool_))

    def work(self, kernel: Any, memory: Buffer, target: Target, received: Array, turn: Turn) -> Array:
        """Return the particles after L steps towards the tilted distribution, eqs. (17)-(19)."""
        starts = turn.iteration == 0
        factors = memory.received[1:] if memory.first[0] else memory.received
        if not starts:
            factors = np.concatenate([received[None], factors])
        prior_weight = float(starts or memory.first[0])  # of q^(0) = p_0, now or in the agent's own factor
        aim = SteinTarget(prior_weight, 1 / self.temperature, factors, memory.sent)
        steps = accumulated(received.shape)
        return self.run_kernel(kernel, received, steps, aim, target, turn.batch, turn.steps)

    def settle(self, kernel: Any, memory: Buffer, target: Target, received: Array, sent: Array, turn: Turn) -> None:
        """Remember the turn."""
        memory.first[0] |= turn.iteration == 0
        memory.received = np.concatenate([memory.received, received[None]])
        memory.sent = np.concatenate([memory.sent, sent[None]])

    def saved(self, memory: Buffer, most_turns: int) -> dict[str, Array]:
        """Return the buffer, filled up with zeros to the turns of the agent that had the most."""
        lacking = np.zeros((most_turns - len(memory.sent), *memory.sent.shape[1:]))
        both = {name: np.concatenate([getattr(memory, name), lacking]) for name in ("received", "sent")}
        return both | {"first": memory.first}

    def restore(self, memory: Buffer, arrays: Mapping[str, Array], turns: int) -> None:
        """Take the turns that the agent had."""
        memory.received, memory.sent = (np.ascontiguousarray(arrays[name][:turns]) for name in ("received", "sent"))
        memory.first = arrays["first"]
