"""Distances between laws."""

from __future__ import annotations

import numpy as np

from fedlangevin_mpi.evaluate.recursion import Law


def gaussian_w2(one: Law, other: Law) -> float:
    """Return the 2-Wasserstein distance of two Gaussian laws, in the units of `x` (Dowson, Landau 1982).

        W2^2 = |m1 - m2|^2 + tr(C1 + C2 - 2 (C1^1/2 C2 C1^1/2)^1/2)

    The difference loses digits: distances below some `1e-8 sqrt(tr C1)` are rounding.
    """
    variances, basis = np.linalg.eigh(one.covariance)
    root = basis * np.sqrt(np.maximum(variances, 0)) @ basis.T
    cross = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ other.covariance @ root), 0)).sum()
    off = one.mean - other.mean
    square = off @ off + np.trace(one.covariance) + np.trace(other.covariance) - 2 * cross
    return float(np.sqrt(max(square, 0.0)))
