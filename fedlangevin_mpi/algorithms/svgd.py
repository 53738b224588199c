"""SVGD on pooled data: one agent that holds everything, the centralised baseline (equations in `stein`).

A global iteration is `local_iterations` steps, after which the particles are stored; AdaGrad's memory goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fedlangevin_mpi.algorithms.base import Array, Communicates
from fedlangevin_mpi.algorithms.serving import Target, Turn
from fedlangevin_mpi.algorithms.stein import Accumulated, Stein, SteinTarget, accumulated


@dataclass
class AdaGrad:
    """What the agent remembers: `square (N, d)` and `made (1,)` of AdaGrad, which go on from turn to turn."""

    square: Array
    made: Array


class Svgd(Stein):
    """SVGD on pooled data (Liu and Wang 2016)."""

    summary: ClassVar[str] = "Stein variational gradient descent on one client, the centralised particle method"
    communicates: ClassVar[Communicates] = "never"

    name: Literal["svgd"] = "svgd"

    def agent(self, start: Array, target: Target) -> AdaGrad:
        """Return AdaGrad's memory of no step."""
        return AdaGrad(*accumulated(start.shape))

    def work(self, kernel: Any, memory: AdaGrad, target: Target, received: Array, turn: Turn) -> Array:
        """Return the particles after the local iterations towards the posterior."""
        aim = SteinTarget(1.0, 1 / self.temperature, np.empty((0, *received.shape)), np.empty(0))
        steps = Accumulated(memory.square, memory.made)  # updated in place
        return self.run_kernel(kernel, received, steps, aim, target, turn.batch, turn.steps)
