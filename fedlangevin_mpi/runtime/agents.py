"""The agents that a rank hosts: their data, their memories, and their turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedlangevin_mpi.algorithms.serving import Deal, Sent, Serving, Target, Turn
from fedlangevin_mpi.errors import DivergedError
from fedlangevin_mpi.runtime.prepare import Prepared
from fedlangevin_mpi.runtime.turns import Turns

Array = np.ndarray[Any, np.dtype[Any]]


_MEMORY = "memory_"
"""Begins the names of the agents' arrays in a checkpoint."""


class Agents:
    """The agents here.

    Args:
        prepared: the run; its data is a `Target` an agent.
        turns: of the run.
        kernel: the algorithm's, as the engine calls it.
    """

    def __init__(self, prepared: Prepared, turns: Turns, kernel: Any) -> None:
        algorithm = prepared.config.algorithm
        assert isinstance(algorithm, Serving)
        self._algorithm, self._turns, self._kernel = algorithm, turns, kernel
        self._targets: dict[int, Target] = dict(zip(prepared.clients, prepared.data, strict=True))
        self._sizes = dict(zip(prepared.clients, prepared.sizes, strict=True))
        start = prepared.theta[0]
        self._memories = {k: algorithm.agent(start, target) for k, target in self._targets.items()}
        self._begun: dict[int, Turn] = {}

    def work(self, iteration: int, deal: Deal, received: Array) -> Array:
        """Return what an agent uploads.

        Raises:
            FedLangevinError: it cannot be computed, or is not finite.
        """
        agent = deal.agent
        turn = self._begun[agent] = self._turns.turn(iteration, deal, self._sizes[agent])
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite has its own message
            memory, target = self._memories[agent], self._targets[agent]
            sent = self._algorithm.work(self._kernel, memory, target, received, turn)
        _check_finite(agent, iteration, sent)
        return sent

    def shared(self) -> list[Array]:
        """Return what the agents here tell all others before iteration 0."""
        return [self._algorithm.shared(memory) for memory in self._memories.values()]

    def learn(self, total: Array) -> None:
        """Let the agents here take the sum of what all told."""
        for memory in self._memories.values():
            self._algorithm.learn(memory, total)

    def arrays(self, iteration: int) -> dict[str, Array]:
        """Return what a checkpoint before an iteration keeps of the agents here: arrays whose first axis is theirs."""
        most = max(self._counts(iteration).values(), default=0)
        each = [self._algorithm.saved(memory, most) for memory in self._memories.values()]
        return {_MEMORY + name: np.stack([saved[name] for saved in each]) for name in (each[0] if each else {})}

    def restore(self, arrays: Mapping[str, Array], iteration: int) -> None:
        """Go on from what `arrays` returned."""
        counts = self._counts(iteration)
        for row, (agent, memory) in enumerate(self._memories.items()):
            own = {name[len(_MEMORY) :]: a[row] for name, a in arrays.items() if name.startswith(_MEMORY)}
            self._algorithm.restore(memory, own, counts[agent])

    def _counts(self, iteration: int) -> Counter[int]:
        """Return how many turns every agent had before an iteration, where what it remembers grows with them."""
        return self._turns.counts(iteration) if self._algorithm.grows else Counter()

    def settle(self, agent: int, received: Array, sent: Sent) -> None:
        """Bring an agent's memory up to date after its upload."""
        turn = self._begun.pop(agent)
        with np.errstate(over="ignore", invalid="ignore"):  # its next turn finds what is not finite
            memory, target = self._memories[agent], self._targets[agent]
            self._algorithm.settle(self._kernel, memory, target, received, sent, turn)


def _check_finite(agent: int, iteration: int, rows: Array) -> None:
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=-1))
    if len(bad):
        raise DivergedError(
            f"client {agent}, row {bad[0]} of what it would send: it stopped being finite in global iteration "
            f"{iteration}; the draws before it are kept. A step_size that is too large for the curvature of the "
            "potentials is the usual cause: try a tenth of it"
        )
