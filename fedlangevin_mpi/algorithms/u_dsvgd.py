"""U-DSVGD, unconstrained distributed SVGD: an agent remembers all particles that it received and sent.

The scheduled agent k moves the server's particles by L steps of SVGD (`stein`) towards its tilted distribution

    p_k^(i) ∝ q^(i-1) / t_k^(i-1) exp(-L_k / alpha),   t_k^(i-1) = prod_{j: k scheduled} q^(j) / q^(j-1)

where `q^(j)` is the KDE of the particles after iteration j and `q^(0) = p_0`: the prior enters once, with the first
turn of all. What an agent remembers grows by two sets of particles a turn.

Several agents at once (beyond the paper) are described in `factors`.

Kassab, Simeone 2020 (`serving`), eqs. (13)-(19) and algorithm 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fedlangevin_mpi.algorithms.base import Array
from fedlangevin_mpi.algorithms.factors import FactorStein
from fedlangevin_mpi.algorithms.serving import Sent, Target, Turn
from fedlangevin_mpi.algorithms.stein import SteinTarget, accumulated


@dataclass
class Buffer:
    """What an agent remembers of its turns: its factor is `p_0^c prod_r q_r^c_r`.

    Attributes:
        densities: `(turns, sets, N, d)` particles of the `q_r`.
        weights: `(turns, sets)` the powers `c_r`.
        prior: `(1,)` the power c of the prior, which is `q^(0)`.
    """

    densities: Array
    weights: Array
    prior: Array


class UDsvgd(FactorStein):
    """U-DSVGD: agents in turn move the server's particles; each remembers all of its turns (Kassab, Simeone 2020)."""

    summary: ClassVar[str] = "distributed SVGD whose agents remember every turn (memory grows), without distillation"

    grows: ClassVar[bool] = True

    name: Literal["u_dsvgd"] = "u_dsvgd"

    def agent(self, start: Array, target: Target) -> Buffer:
        """Return an empty buffer: `t_k^(0) = 1`."""
        return Buffer(np.empty((0, 0, *start.shape)), np.empty((0, 0)), np.zeros(1))

    def work(self, kernel: Any, memory: Buffer, target: Target, received: Array, turn: Turn) -> Array:
        """Return the particles after L steps towards the tilted distribution, eqs. (17)-(19)."""
        first = turn.iteration == 0  # of all turns: q^(0) = p_0 is no KDE
        densities = memory.densities.reshape(-1, *received.shape)
        densities, weights = np.concatenate([received[None], densities]), np.append(1.0, -memory.weights.ravel())
        aim = SteinTarget(
            float(first - memory.prior[0]), 1 / self.temperature, densities[first:], weights[int(first) :]
        )
        return self.run_kernel(kernel, received, accumulated(received.shape), aim, target, turn.batch, turn.steps)

    def settle(self, kernel: Any, memory: Buffer, target: Target, received: Array, sent: Sent, turn: Turn) -> None:
        """Remember the turn."""
        densities, weights = self.change(received, sent)
        if turn.iteration == 0:
            memory.prior = memory.prior + weights[0]
            weights[0] = 0.0
        turns = len(memory.weights) + 1
        memory.densities = np.append(memory.densities, densities).reshape(turns, *densities.shape)
        memory.weights = np.append(memory.weights, weights).reshape(turns, *weights.shape)

    def saved(self, memory: Buffer, most_turns: int) -> dict[str, Array]:
        """Return the buffer, filled up with zeros to the turns of the agent that had the most."""
        turns = len(memory.weights)
        sets = memory.weights.shape[1] if turns else self.sets_of_a_turn()
        shape = memory.densities.shape[2:]
        densities, weights = np.zeros((most_turns, sets, *shape)), np.zeros((most_turns, sets))
        if turns:
            densities[:turns], weights[:turns] = memory.densities, memory.weights
        return {"densities": densities, "weights": weights, "prior": memory.prior}

    def restore(self, memory: Buffer, arrays: Mapping[str, Array], turns: int) -> None:
        """Take the turns that the agent had."""
        memory.densities, memory.weights = (np.ascontiguousarray(arrays[n][:turns]) for n in ("densities", "weights"))
        memory.prior = arrays["prior"]
