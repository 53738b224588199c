"""Blocks: the randomness of one, and which of its iterations are kept as draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedlangevin_mpi.algorithms.base import Algorithm
from fedlangevin_mpi.config import RunConfig
from fedlangevin_mpi.generic import AugmentedRows, Everything, Rows
from fedlangevin_mpi.runtime.engine import Engine
from fedlangevin_mpi.runtime.prepare import Prepared
from fedlangevin_mpi.runtime.streams import BlockStreams, RowStreams, block_length, draw_without_replacement

Array = np.ndarray[Any, np.dtype[Any]]


class Blocks:
    """The blocks of a run on one rank.

    Args:
        prepared: the run.
        fill: `draw_without_replacement`, compiled or not.

    Attributes:
        length: iterations of a block.
        largest_draws: the most draws that a block keeps.
    """

    def __init__(self, prepared: Prepared, fill: Callable[..., None]) -> None:
        config = prepared.config
        self._prepared = prepared
        self._dtype = np.dtype(config.dtype)
        rows = config.algorithm.batch_size or 0
        clients = prepared.placement.everyone
        self.length = block_length(clients, config.chains, prepared.dim, rows, self._dtype.itemsize)
        self.largest_draws = self.length // config.thin + 1
        self._rows = None
        if rows:
            offsets = np.concatenate([[0], np.cumsum(prepared.sizes)[:-1]])
            self._rows = RowStreams(prepared.sizes, offsets.tolist(), rows, self._dtype, fill)

    def randomness(self, block: int) -> tuple[Any, Rows | AugmentedRows | Everything]:
        """Return what the algorithm drew for a whole block, and its minibatches."""
        config, prepared = self._prepared.config, self._prepared
        first = block * self.length
        streams = BlockStreams(
            config.seed,
            block,
            np.arange(first, first + self.length),
            prepared.clients,
            prepared.placement.total,
            config.chains,
            prepared.dim,
            self._dtype,
            config.coins == "per_chain",
            len(prepared.mixing.matrices) if prepared.mixing else 0,
        )
        batch: Rows | AugmentedRows | Everything = Everything(len(prepared.clients))
        if self._rows is not None:
            batch = self._rows.draw(streams)
            if config.augmentation is not None:
                batch = config.augmentation.draw(batch, config.seed, prepared.clients, block)
        assert isinstance(config.algorithm, Algorithm)
        return config.algorithm.draws(streams), batch

    def kept(self, block: int, start: int, stop: int) -> Array:
        """Return which of the block's iterations `start <= k < stop` are kept, as places in the block."""
        config = self._prepared.config
        places = np.arange(start, stop)
        since_warmup = block * self.length + places + 1 - config.warmup
        kept: Array = places[(since_warmup > 0) & (since_warmup % config.thin == 0)]
        return kept

    def slots(self, kept: Array, filled: int) -> Array:
        """Return `(length,)`: the slot of the draw buffer for every iteration of the block, -1 where not kept."""
        slots = np.full(self.length, -1, np.int64)
        slots[kept] = filled + np.arange(len(kept))
        return slots


def row_filler(engine: Engine, config: RunConfig) -> Callable[..., None]:
    """Return `draw_without_replacement`, compiled unless nothing is to be: in Python it takes a network's time.

    Collective.
    """
    if config.algorithm.batch_size is None or config.engine == "interpreted":
        return draw_without_replacement
    sample = np.zeros((1, 1, 1)), np.zeros(1, np.int64), 0, np.zeros((1, 1, 1, 1), np.int64), 0
    return engine.compile(draw_without_replacement, *sample)
