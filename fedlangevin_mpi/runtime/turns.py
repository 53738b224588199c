"""Whose turn it is in every global iteration, and the randomness of an agent's turn; neither needs a message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fedlangevin_mpi.algorithms.serving import Deal, Serving, Turn
from fedlangevin_mpi.generic import Everything, Rows
from fedlangevin_mpi.keys import Purpose, generator

Array = np.ndarray[Any, np.dtype[Any]]


class Turns:
    """The schedule of a run with a server.

    Args:
        seed: of the run.
        algorithm: what is scheduled.
        agents: how many there are.
        dim: parameters.
        rows: of the server's state.
        fill: `draw_without_replacement`, compiled or not.
    """

    def __init__(
        self, seed: int, algorithm: Serving, agents: int, dim: int, rows: int, fill: Callable[..., None]
    ) -> None:
        self._seed, self._algorithm, self._agents = seed, algorithm, agents
        self._dim, self._rows, self._fill = dim, rows, fill

    def deals(self, iteration: int) -> list[Deal]:
        """Return who works on what, the same on every rank."""
        own = generator(self._seed, Purpose.SCHEDULE, 0, iteration)
        return self._algorithm.deals(iteration, self._agents, self._rows, own)

    def counts(self, iteration: int) -> Counter[int]:
        """Return how many turns every agent had before an iteration."""
        return Counter(deal.agent for before in range(iteration) for deal in self.deals(before))

    def turn(self, iteration: int, deal: Deal, size: int) -> Turn:
        """Return what the dealt agent's work needs.

        Args:
            iteration: 0-based.
            deal: its agent and rows.
            size: `N_k`, rows of the agent's data.
        """
        algorithm, rows = self._algorithm, len(deal.rows)
        count = algorithm.local_steps(deal.agent, self._agents)
        steps = algorithm.steps(iteration, count)
        noise: Array | Iterator[Array] = np.empty((count, 0, self._dim))
        if normals := algorithm.normals(rows):
            own = generator(self._seed, Purpose.NOISE, deal.agent, iteration)
            shape = (normals, self._dim)
            if algorithm.natural:  # S / 2 a step, more than there is room for at once
                noise = (own.standard_normal(shape) for _ in range(count))
            else:
                noise = own.standard_normal((count, *shape))
        batch = self._batch(iteration, deal.agent, count, algorithm.positions(rows), size)
        return Turn(iteration, deal.agent, self._agents, steps, batch, noise)

    def _batch(self, iteration: int, agent: int, count: int, positions: int, size: int) -> Rows | Everything:
        if self._algorithm.batch_size is None:
            return Everything(1)
        drawn = min(self._algorithm.batch_size, size)
        sets = 1 if self._algorithm.shared_rows else positions
        uniforms = generator(self._seed, Purpose.ROWS, agent, iteration).random((count, sets, drawn))
        chosen = np.empty((count, 1, sets, drawn), np.int64)
        self._fill(uniforms, np.arange(size), 0, chosen, 0)
        index = np.repeat(chosen, positions // sets, axis=2)
        return Rows(index, np.array([drawn]), np.full((1, drawn), size / drawn))

    def normals(self, iteration: int) -> Array:
        """Return the standard normals `(particles, d)` with which the server draws from its density."""
        shape = (self._algorithm.particles, self._dim)
        return generator(self._seed, Purpose.VARIATIONAL, 0, iteration).standard_normal(shape)


def batch_example(algorithm: Serving, rows: int) -> Rows | Everything:
    """Return a batch of the type that turns have, for no local iteration."""
    if algorithm.batch_size is None:
        return Everything(1)
    return Rows(np.zeros((0, 1, rows, 1), np.int64), np.zeros(1, np.int64), np.zeros((1, 1)))
