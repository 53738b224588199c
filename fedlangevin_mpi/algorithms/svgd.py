"""SVGD on pooled data: one agent that holds everything, the centralised baseline (equations in `stein`).

A global iteration is `local_iterations` steps, after which the particles are stored; AdaGrad's memory goes on.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from fedlangevin_mpi.algorithms.base import Array, Communicates
from fedlangevin_mpi.algorithms.serving import Target, Turn
from fedlangevin_mpi.algorithms.stein import Stein, SteinAgent, SteinTarget, accumulated


class Svgd(Stein):
    """SVGD on pooled data (Liu and Wang 2016)."""

    summary: ClassVar[str] = "Stein variational gradient descent on one client, the centralised particle method"
    communicates: ClassVar[Communicates] = "never"

    name: Literal["svgd"] = "svgd"

    def agent(self, start: Array, target: Target) -> SteinAgent:
        """Return AdaGrad's memory."""
        return SteinAgent(accumulated(start.shape))

    def work(self, kernel: Any, memory: SteinAgent, target: Target, received: Array, turn: Turn) -> Array:
        """Return the particles after the local iterations towards the posterior."""
        nothing = np.empty((0, *received.shape))
        aim = SteinTarget(1.0, 1 / self.temperature, nothing, nothing)
        return self.run_kernel(kernel, received, memory.memory, aim, target, turn.batch, turn.steps)
