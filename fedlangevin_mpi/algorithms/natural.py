"""Gaussians by their natural parameters, full or with a diagonal covariance (mean field).

    log N(theta | eta) = eta_1' theta + theta' eta_2 theta + const,   eta_1 = P m,   eta_2 = -P / 2

for mean m and precision P. They are kept as one array: `eta_1 (d,)` in row 0; below it `eta_2`, `(d, d)`, or its
diagonal in row 1. Products and quotients of Gaussians are sums and differences of arrays; where `eta_2` is not negative
definite the array is a factor, but no density.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedlangevin_mpi.algorithms.base import Array
from fedlangevin_mpi.errors import FedLangevinError


class Root(NamedTuple):
    """R with `P = R R'`, and its inverse: `(d, d)` triangular; of mean field the diagonals alone, `(d,)`."""

    root: Array
    inverse: Array


def natural(linear: Array, precision: Array) -> Array:
    """Return the natural parameters: `(1 + d, d)`, or `(2, d)` of a diagonal precision.

    Args:
        linear: `P m`, `(d,)`.
        precision: `P (d, d)`, or its diagonal `(d,)`.
    """
    return np.concatenate([linear[None], np.atleast_2d(precision) / -2])


def precision_of(eta: Array) -> Array:
    """Return P, `(d, d)`, symmetric."""
    second = eta[1:]
    return np.diag(-2 * second[0]) if is_mean_field(eta) else -(second + second.T)


def is_mean_field(eta: Array) -> bool:
    """Say whether the covariance is diagonal; in one dimension the two forms are the same."""
    return len(eta) == 2


def root_of(eta: Array) -> Root | None:
    """Return the root of P, or None where P is not positive definite."""
    if is_mean_field(eta):
        precision = -2 * eta[1]
        proper = np.isfinite(precision).all() and (precision > 0).all()
        return Root(np.sqrt(precision), 1 / np.sqrt(precision)) if proper else None
    try:
        root: Array = np.linalg.cholesky(precision_of(eta))
        # Products with the inverse: OpenBLAS solves small triangular systems in threads that wait for each other.
        return Root(root, np.linalg.inv(root)) if np.isfinite(root).all() else None
    except np.linalg.LinAlgError:
        return None


def checked_root(eta: Array) -> Root:
    """Return what `root_of` does.

    Raises:
        FedLangevinError: the precision is not positive definite.
    """
    root = root_of(eta)
    if root is None:
        raise FedLangevinError(
            "q is no density, as its precision is not positive definite: with a flat prior, the agents that had a turn "
            "may not fix every direction yet; undamped changes of several agents at once can add up to too much. A "
            "proper prior or a smaller damping helps"
        )
    return root


def mean_of(eta: Array, root: Root) -> Array:
    """Return m, given the root of P."""
    inverse = root.inverse
    return np.asarray(inverse**2 * eta[0] if inverse.ndim == 1 else inverse.T @ (inverse @ eta[0]))


def spread(root: Root, normals: Array) -> Array:
    """Return deviations from the mean `(n, d)` of covariance `P^-1`, made from standard normals `(n, d)`."""
    return np.asarray(normals * root.inverse if root.inverse.ndim == 1 else normals @ root.inverse)


def sample(eta: Array, normals: Array) -> Array:
    """Return draws `(n, d)` made from standard normals `(n, d)`.

    Raises:
        FedLangevinError: the precision is not positive definite.
    """
    root = checked_root(eta)
    return mean_of(eta, root) + spread(root, normals)
