"""DSVGD, distributed Stein variational gradient descent: an agent's factor is a second set of particles.

The scheduled agent k downloads the server's particles, moves them by L steps of SVGD (`stein`) towards

    p_k^(i) ∝ q^(i-1) / t_k^(i-1) p_0 exp(-L_k / alpha)

and uploads them; then, while the next agent works, it moves its own N particles by L' steps towards its new factor

    t_k^(i) = q^(i) / q^(i-1) t_k^(i-1)

(distillation). `q` and `t_k` are KDEs. As `q^(0)` and every `t_k^(0)` are that of the initial particles, drawn from
p_0, factors hold the whole prior, `t_k -> p_0 exp(-L_k / alpha)`, and so do the local targets: in
`q = p_0 prod_k (t_k / p_0)` it counts once.

A KDE is wider than its particles, by the kernel's variance. Every distillation aims at KDEs, so an agent's factor gets
wider with each of its turns even where nothing changes any more (the paper calls this a regulariser): many rounds with
many distillation iterations drift, the less so the smaller `kde_bandwidth` is. U-DSVGD does not drift.

Too small a `kde_bandwidth` is worse: while an agent's factor is the KDE of the initial particles, the ratio of KDEs
pushes particles away from where they started, by (theta - theta_0) / kde_bandwidth^2. Where the prior pulls back with a
bounded force, as it does in the log of a precision, they run away (`launch/papers/dsvgd_logistic.py`); the KDE of the
initial particles should be about as wide as the prior.

Several agents at once (beyond the paper) are described in `factors`.

Kassab, Simeone 2020 (`serving`), eqs. (13)-(20) and algorithm 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fedlangevin_mpi.algorithms.base import Array
from fedlangevin_mpi.algorithms.factors import FactorStein
from fedlangevin_mpi.algorithms.schedule import StepSize, steps_at
from fedlangevin_mpi.algorithms.serving import Sent, Target, Turn
from fedlangevin_mpi.algorithms.stein import SteinTarget, accumulated


@dataclass
class Factor:
    """What an agent remembers: the `(N, d)` particles of its factor `t_k`."""

    particles: Array


class Dsvgd(FactorStein):
    """DSVGD: agents in turn move the server's particles and distil what they added (Kassab, Simeone 2020)."""

    summary: ClassVar[str] = "distributed SVGD: a server's particles, moved by an agent a round; distilled factors"

    name: Literal["dsvgd"] = "dsvgd"
    distillation_iterations: Annotated[
        int | None, Field(ge=1, description="L': SVGD steps of an agent's own particles; absent: local_iterations")
    ] = None
    distillation_step_size: Annotated[StepSize | None, Field(description="epsilon'; absent: step_size")] = None
    overlap: Annotated[
        bool, Field(description="distil after the upload, while the next agent works; false: before it, equal draws")
    ] = True

    @model_validator(mode="after")
    def _overlaps(self) -> Self:
        if self.at_once and not self.overlap:
            raise ValueError(
                f"overlap: found false with schedule {self.schedule}; allowed: true, as others' turns count"
            )
        return self

    def agent(self, start: Array, target: Target) -> Factor:
        """Return the initial particles: `t_k^(0) = q^(0)`."""
        return Factor(start.copy())

    def work(self, kernel: Any, memory: Factor, target: Target, received: Array, turn: Turn) -> Array:
        """Return the particles after L steps towards the tilted distribution."""
        densities = np.stack([received, memory.particles])
        aim = SteinTarget(1.0, 1 / self.temperature, densities, np.array([1.0, -1.0]))
        steps = accumulated(received.shape)
        sent = self.run_kernel(kernel, received, steps, aim, target, turn.batch, turn.steps)
        if not self.overlap:
            self._distil(kernel, memory, target, received, Sent(sent[None], 0), turn)
        return sent

    def settle(self, kernel: Any, memory: Factor, target: Target, received: Array, sent: Sent, turn: Turn) -> None:
        """Distil the new factor."""
        if self.overlap:
            self._distil(kernel, memory, target, received, sent, turn)

    def _distil(self, kernel: Any, memory: Factor, target: Target, received: Array, sent: Sent, turn: Turn) -> None:
        count = self.distillation_iterations or self.local_iterations
        first = turn.iteration * count
        size = self.step_size if self.distillation_step_size is None else self.distillation_step_size
        steps = steps_at(size, np.arange(first, first + count))
        densities, weights = self.change(received, sent)
        aim = SteinTarget(0.0, 0.0, np.concatenate([memory.particles[None], densities]), np.append(1.0, weights))
        own = accumulated(received.shape)
        memory.particles = self.run_kernel(kernel, memory.particles, own, aim, target, turn.batch, steps)
