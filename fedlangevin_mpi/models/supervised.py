"""What models of rows `(x, y)` share: the arrays of their shards, and the Gaussian prior `N(0, s^2 I)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse.linalg import svds

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.errors import ShardError
from fedlangevin_mpi.models.base import Array, array_of


def supervised_arrays(shard: Shard) -> tuple[Array, Array]:
    """Return `x (n, p)` and `y (n,)` of a shard.

    Raises:
        ShardError: one is missing, empty, or shaped otherwise.
    """
    x, y = (array_of(shard, name) for name in ("x", "y"))
    if x.ndim != 2:
        raise ShardError(shard.client, shard.origin, f"x has shape {x.shape}; allowed: (n, p)")
    if y.shape != (len(x),):
        raise ShardError(shard.client, shard.origin, f"y has shape {y.shape}; allowed: ({len(x)},) for x {x.shape}")
    if len(x) == 0 or x.shape[1] == 0:
        raise ShardError(shard.client, shard.origin, f"the shard is empty: x has shape {x.shape}")
    return x, y


def check_labels(shard: Shard, y: Array, classes: int | None) -> int:
    """Return the smallest number of classes that covers the labels `y`.

    Raises:
        ShardError: a label is not one of 0, ..., classes - 1.
    """
    wrong = (y != np.floor(y)) | (y < 0)
    if classes is not None:
        wrong |= y >= classes
    if wrong.any():
        allowed = f"0 to {classes - 1}" if classes is not None else "0, 1, 2, ..."
        row = int(np.argmax(wrong))
        raise ShardError(shard.client, shard.origin, f"label {y[row]:g} in row {row}; allowed: {allowed}")
    return int(y.max()) + 1


def stack_rows(shards: Sequence[Shard], dtype: Any) -> tuple[Array, Array, Array]:
    """Return `x (rows, p)` and `y (rows,)` of all shards, one behind the other, and `offsets (shards + 1,)`.

    Shard `c` is the rows `offsets[c]` to `offsets[c + 1] - 1`. They are the shard's own memory where there is one shard
    of this type: not to be written to.
    """
    x, y = (_stacked([shard.arrays[name] for shard in shards], dtype) for name in ("x", "y"))
    offsets = np.cumsum([0] + [len(shard.arrays["y"]) for shard in shards], dtype=np.int64)
    return x, y, offsets


def _stacked(arrays: Sequence[Array], dtype: Any) -> Array:
    """Return arrays one behind the other; a single one is not copied, since its rows may be most of the memory."""
    return np.require(arrays[0] if len(arrays) == 1 else np.concatenate(arrays), dtype, ["C", "W"])


def rows_of(data: Any, c: int) -> tuple[Array, Array]:
    """Return `x (n_c, p)` and `y (n_c,)` of client `c` here, views of what `stack_rows` returned."""
    rows = slice(data.offsets[c], data.offsets[c + 1])
    return data.x[rows], data.y[rows]


_EXACT = 1000
"""Clients with more rows and more columns than this: the largest eigenvalue alone, by the Lanczos method."""


def gram_eigenvalues(data: Any) -> tuple[Array, Array]:
    """Return the smallest and the largest eigenvalue of every client's `x'x`, `(clients_here,)` each.

    Where a client has very many rows and columns, 0 stands for the smallest.

    Args:
        data: with `x (rows, p)`, `y (rows,)` and `offsets (clients_here + 1,)`, as `stack_rows` returns them.
    """
    extremes = [_extremes(rows_of(data, c)[0]) for c in range(len(data.offsets) - 1)]
    smallest, largest = np.array(extremes).T
    return smallest, largest


def _extremes(x: Array) -> tuple[float, float]:
    x = x.astype(np.float64)
    n, p = x.shape
    if min(n, p) > _EXACT:
        start = np.random.default_rng(0).standard_normal(min(n, p))
        (largest,) = svds(x, 1, v0=start, return_singular_vectors=False)
        return 0.0, largest**2
    values = np.linalg.eigvalsh(x.T @ x if p <= n else x @ x.T)
    return (max(values[0], 0.0) if p <= n else 0.0), values[-1]


def gaussian_prior_precision(prior_weights: Sequence[float], scale: float, dtype: Any) -> Array:
    """Return `w_i / s^2`, `(clients_here,)`: every client's share of the prior's precision, 0 where it is flat."""
    return (np.asarray(prior_weights) / scale / scale).astype(dtype)


def isotropic_normal(dim: int, scale: float) -> tuple[Array, Array]:
    """Return mean and diagonal of the precision, both `(d,)`, of the prior `N(0, s^2 I)`, 0 where it is flat."""
    return np.zeros(dim), np.full(dim, 1 / scale / scale)


def gaussian_prior_potential(theta: Array, data: Any) -> Array:
    """Return `w_i |theta|^2 / (2 s^2)`, `(clients_here, chains)`."""
    result: Array = data.prior_precision[:, None] * (theta * theta).sum(-1) / 2
    return result


def gaussian_prior_draws(generator: np.random.Generator, chains: int, dim: int, scale: float) -> Array | None:
    """Return draws of `N(0, s^2 I)`, `(chains, dim)`, or None where it is flat."""
    return None if np.isinf(scale) else scale * generator.standard_normal((chains, dim))
