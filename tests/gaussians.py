"""Gaussian clients whose laws are known exactly, and the comparison of a run with such a law."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedlangevin_mpi.evaluate.diagnostics import standard_error
from fedlangevin_mpi.evaluate.recursion import Law

Array = np.ndarray[Any, np.dtype[Any]]


def heterogeneous(clients: int, dim: int, spread: float = 1.0, seed: int = 7) -> tuple[Array, Array]:
    """Return means `(b, d)` and precisions `(b, d, d)`: far apart, not diagonal, all different."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(clients, dim, dim))
    precisions = roots @ roots.swapaxes(1, 2) / dim + 0.5 * np.eye(dim)
    return spread * rng.normal(size=(clients, dim)), precisions


def write_shards(folder: Path, means: Array, precisions: Array) -> str:
    """Write one `.npz` a client and return the path of `data: files`."""
    folder.mkdir(parents=True, exist_ok=True)
    for client, (mean, precision) in enumerate(zip(means, precisions, strict=True)):
        np.savez(folder / f"client-{client}.npz", mean=mean, covariance=np.linalg.inv(precision))
    return str(folder / "client-{client}.npz")


def z_scores(draws: Array, law: Law) -> tuple[Array, Array]:
    """Compare chain-averaged first and second moments with a law.

    Args:
        draws: `(draw, chain, dim)`.
        law: exact, of `dim` numbers.

    Returns:
        How many Monte-Carlo standard errors each moment is off (means, then products of deviations from the exact
        mean), and the standard error of every variance relative to it: the power of the comparison.
    """
    off = draws - law.mean
    rows, columns = np.triu_indices(off.shape[-1])
    products = (off[..., rows] * off[..., columns]).mean(axis=1)
    firsts = off.mean(axis=1)
    exact = law.covariance[rows, columns]
    error = standard_error(products)
    z = np.concatenate([firsts.mean(0) / standard_error(firsts), (products.mean(0) - exact) / error])
    diagonal = rows == columns
    return z, error[diagonal] / exact[diagonal]
