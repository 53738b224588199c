"""All randomness of a block, drawn before the kernel runs (design: randomness is data).

Every stream is keyed by (seed, purpose, client, block), so draws depend neither on the rank that hosts a client nor on
where a run was interrupted; what all clients share is drawn on every rank from one key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedlangevin_mpi.generic import Rows
from fedlangevin_mpi.keys import Purpose, generator
from fedlangevin_mpi.runtime.normals import standard_normals

Array = np.ndarray[Any, np.dtype[Any]]

_TARGET_BYTES = 2 << 20  # fits a core's cache
_LARGEST_BYTES = 8 << 20
_SHORTEST, _LONGEST = 16, 4096


def block_length(clients: int, chains: int, dim: int, rows: int, itemsize: int) -> int:
    """Return the iterations of a block, a function of the config alone.

    About 2 MiB of randomness over all clients; at least 16 iterations, so that setting up generators stays cheap,
    unless these take more than 8 MiB.

    Args:
        clients: all clients of the run.
        chains: chains of the run.
        dim: parameters.
        rows: of a minibatch; 0 for full gradients.
        itemsize: bytes of a position's element.
    """
    an_iteration = clients * chains * (dim * itemsize + rows * 8)
    wanted = min(max(_TARGET_BYTES // an_iteration, _SHORTEST), _LONGEST)
    return max(1, min(wanted, _LARGEST_BYTES // an_iteration))


class BlockStreams:
    """The streams of one block on one rank; the protocol is `algorithms.base.Streams`.

    Args:
        seed: of the run.
        block: number of the block.
        iterations: `(T,)` 0-based numbers of its iterations.
        clients: hosted here.
        total: all clients.
        chains, dim, dtype: of the positions.
        coins_per_chain: whether each chain has coins of its own.
        mixings: mixing matrices that gossip can use.
    """

    def __init__(
        self,
        seed: int,
        block: int,
        iterations: Array,
        clients: range,
        total: int,
        chains: int,
        dim: int,
        dtype: np.dtype[Any],
        coins_per_chain: bool,
        mixings: int = 0,
    ) -> None:
        self.seed, self.block, self.iterations = seed, block, iterations
        self.clients, self.total = clients, total
        self.chains, self.dim, self.dtype = chains, dim, dtype
        self.coins_per_chain = coins_per_chain
        self.mixings = mixings

    def noise(self) -> Array:
        """Return private standard normals `(T, clients_here, chains, dim)`."""
        shape = (len(self.iterations), self.chains, self.dim)
        drawn = (standard_normals(self._of_client(Purpose.NOISE, c), shape, self.dtype) for c in self.clients)
        if len(self.clients) == 1:
            return next(drawn)[:, None]
        every = np.empty((shape[0], len(self.clients), *shape[1:]), self.dtype)
        for place, own in enumerate(drawn):
            every[:, place] = own
        return every

    def common_noise(self) -> Array:
        """Return standard normals `(T, chains, dim)` that all clients share."""
        shape = (len(self.iterations), self.chains, self.dim)
        return standard_normals(self._shared(Purpose.COMMON_NOISE), shape, self.dtype)

    def communication(self, probability: float) -> Array:
        """Return the communication coins, `(T, chains)` bool."""
        return self._coins(Purpose.COMMUNICATION, probability)

    def reference(self, probability: float) -> Array:
        """Return the reference coins, `(T, chains)` bool."""
        return self._coins(Purpose.REFERENCE, probability)

    def participants(self, size: int) -> Array:
        """Return uniformly random subsets of `size` of all clients, `(T, total)` bool."""
        uniforms = self._shared(Purpose.PARTICIPATION).random((len(self.iterations), self.total))
        chosen = np.zeros(uniforms.shape, np.bool_)
        np.put_along_axis(chosen, np.argpartition(uniforms, size - 1, axis=1)[:, :size], True, axis=1)
        return chosen

    def scheduled(self, choices: int) -> Array:
        """Return uniformly random numbers below `choices`, `(T,)`, that all clients and chains share."""
        return self._shared(Purpose.SCHEDULE).integers(choices, size=len(self.iterations))

    def _coins(self, purpose: Purpose, probability: float) -> Array:
        columns = self.chains if self.coins_per_chain else 1
        coins = self._shared(purpose).random((len(self.iterations), columns)) < probability
        return coins if self.coins_per_chain else np.repeat(coins, self.chains, axis=1)

    def _of_client(self, purpose: Purpose, client: int) -> np.random.Generator:
        return generator(self.seed, purpose, client, self.block)

    def _shared(self, purpose: Purpose) -> np.random.Generator:
        return generator(self.seed, purpose, 0, self.block)


class RowStreams:
    """Minibatch rows without replacement for every client here.

    Args:
        sizes: `N_i` of the clients here.
        offsets: `(clients_here,)` where each client's rows begin in the concatenated shards.
        batch_size: `n_i = min(batch_size, N_i)`.
        dtype: of the weights `N_i / n_i`.
        fill: `draw_without_replacement`, compiled or not.
    """

    def __init__(
        self, sizes: Sequence[int], offsets: Sequence[int], batch_size: int, dtype: Any, fill: Callable[..., None]
    ) -> None:
        self._sizes, self._offsets, self._fill = sizes, offsets, fill
        self._drawn = np.array([min(batch_size, n) for n in sizes], np.int64)
        self._weight = np.zeros((len(sizes), self._drawn.max()), dtype)
        for c, (n, count) in enumerate(zip(sizes, self._drawn, strict=True)):
            self._weight[c, :count] = n / count
        self._order = [np.arange(n, dtype=np.int64) for n in sizes]

    def draw(self, streams: BlockStreams) -> Rows:
        """Return the rows of a block: every subset of a client's rows has the same chance."""
        iterations, chains, (clients, largest) = len(streams.iterations), streams.chains, self._weight.shape
        row = np.empty((iterations, clients, chains, largest), np.int64)
        for c, client in enumerate(streams.clients):
            count, first = int(self._drawn[c]), self._offsets[c]
            own = generator(streams.seed, Purpose.ROWS, client, streams.block)
            uniforms = own.random((iterations, chains, count))
            self._fill(uniforms, self._order[c], first, row, c)
            row[:, c, :, count:] = first
        return Rows(row, self._drawn, self._weight)


def draw_without_replacement(uniforms: Array, order: Array, first: int, row: Array, c: int) -> None:
    """Turn uniforms into distinct rows by a partial Fisher-Yates shuffle whose swaps are undone afterwards.

    Args:
        uniforms: `(T, chains, n)` in [0, 1).
        order: `(N,)` the identity, and again so on return.
        first: number of the client's first row.
        row: `(T, clients_here, chains, n or more)`; of client `c`, the first n of every minibatch are filled with
            rows of `first`, ..., `first + N - 1`, distinct in each.
        c: place of the client.
    """
    size = len(order)
    iterations, chains, count = uniforms.shape
    swapped = np.empty(count, np.int64)
    for k in range(iterations):
        for j in range(chains):
            for r in range(count):
                other = r + int(uniforms[k, j, r] * (size - r))
                swapped[r] = other
                chosen = order[other]
                order[other] = order[r]
                order[r] = chosen
                row[k, c, j, r] = first + chosen
            for r in range(count - 1, -1, -1):
                other = swapped[r]
                chosen = order[other]
                order[other] = order[r]
                order[r] = chosen
