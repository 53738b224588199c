"""U-DSVGD, unconstrained distributed SVGD: an agent remembers all particles that it received and sent.

The scheduled agent k moves the server's particles by L steps of SVGD (`stein`) towards its tilted distribution

    p_k^(i) ∝ q^(i-1) / t_k^(i-1) exp(-L_k / alpha),   t_k^(i-1) = prod_{j: k scheduled} q^(j) / q^(j-1)

where `q^(j)` is the KDE of the particles after iteration j and `q^(0) = p_0`: the prior enters once, with the first
turn of all. What an agent remembers grows by two sets of particles a turn.

Kassab, Simeone 2020 (`serving`), eqs. (13)-(19) and algorithm 3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
        started: whether its factor holds `1 / p_0`: it had the first turn of all.
        received: particles of `q^(j-1)` for every turn j, but that of `q^(0) = p_0`.
        sent: particles of `q^(j)` for every turn j.
    """

    started: bool = False
    received: list[Array] = field(default_factory=list)
    sent: list[Array] = field(default_factory=list)


class UDsvgd(Stein):
    """U-DSVGD: agents in turn move the server's particles; each remembers all of its turns (Kassab, Simeone 2020)."""

    summary: ClassVar[str] = "distributed SVGD whose agents remember every turn (memory grows), without distillation"

    name: Literal["u_dsvgd"] = "u_dsvgd"
    kde_bandwidth: KdeBandwidth = 0.55

    def agent(self, start: Array, target: Target) -> Buffer:
        """Return an empty buffer: `t_k^(0) = 1`."""
        return Buffer()

    def work(self, kernel: Any, memory: Buffer, target: Target, received: Array, turn: Turn) -> Array:
        """Return the particles after L steps towards the tilted distribution, eqs. (17)-(19)."""
        first = turn.iteration == 0
        factors = memory.received if first else [received, *memory.received]
        prior_weight = 1.0 if first or memory.started else 0.0
        shape = (-1, *received.shape)
        stacked = [np.array(sets).reshape(shape) for sets in (factors, memory.sent)]
        aim = SteinTarget(prior_weight, 1 / self.temperature, *stacked)
        steps = accumulated(received.shape)
        return self.run_kernel(kernel, received, steps, aim, target, turn.batch, turn.steps)

    def settle(self, kernel: Any, memory: Buffer, target: Target, received: Array, sent: Array, turn: Turn) -> None:
        """Remember the turn."""
        if turn.iteration == 0:
            memory.started = True
        else:
            memory.received.append(received)
        memory.sent.append(sent)
