"""Distances between laws: of Gaussians, of samples, and of densities on a grid."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from scipy.special import logsumexp

from fedlangevin_mpi.evaluate.recursion import Law

Array = np.ndarray[Any, np.dtype[Any]]


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


def empirical_w2(one: Array, other: Array) -> float:
    """Return the exact 2-Wasserstein distance of two samples, `(n, d)` and `(m, d)`, in the units of `x`, by POT.

    Samples of one law are not at distance 0: their own distance, of the order of `sd n^(-1/max(d, 2))`, is the floor
    of what can be told. Time grows like n^3; 1,000 points take about a second.

    Raises:
        ValueError: the samples are empty or differ in dimension.
    """
    one, other = _samples(one, other)
    ot = _pot()
    cost = ot.dist(one, other)  # squared Euclidean
    square = ot.emd2(ot.unif(len(one)), ot.unif(len(other)), cost, numItermax=10_000_000)
    return float(np.sqrt(max(square, 0.0)))


def sliced_w2(one: Array, other: Array, projections: int = 200, seed: int = 0) -> float:
    """Return the sliced 2-Wasserstein distance of two samples, `(n, d)` and `(m, d)`, in the units of `x`, by POT.

    The root mean square, over random directions, of the distance of the samples' projections: of two laws that differ
    by a shift v it is `|v| / sqrt(d)`. Time grows like n log n.

    Raises:
        ValueError: the samples are empty or differ in dimension.
    """
    one, other = _samples(one, other)
    return float(_pot().sliced_wasserstein_distance(one, other, n_projections=projections, seed=seed))


def grid_kl(log_p: Array, log_q: Array) -> float:
    """Return the Kullback-Leibler divergence KL(p || q), in nats, of two densities on the points of one even grid.

    Both are normalised on the grid: constants do not matter, what lies outside does not count.

    Args:
        log_p: unnormalised log density at every point, of any shape; -inf where there is none.
        log_q: the same of q.

    Raises:
        ValueError: the shapes differ, or p or q vanishes everywhere.
    """
    log_p, log_q = np.asarray(log_p, float), np.asarray(log_q, float)
    if log_p.shape != log_q.shape:
        raise ValueError(f"the densities have shapes {log_p.shape} and {log_q.shape}; allowed: the same")
    with np.errstate(invalid="ignore"):  # of a density that vanishes everywhere
        log_p, log_q = log_p - logsumexp(log_p), log_q - logsumexp(log_q)
    if np.isnan(log_p).any() or np.isnan(log_q).any():
        raise ValueError("a density is NaN, or 0 at every point of the grid")
    p = np.exp(log_p)
    held = p > 0
    return float((p[held] * (log_p[held] - log_q[held])).sum())


def grid(low: float, high: float, points: int, dim: int) -> Array:
    """Return the `(points^dim, dim)` points of an even grid on `[low, high]^dim`."""
    axes = np.meshgrid(*[np.linspace(low, high, points)] * dim, indexing="ij")
    return np.stack([axis.ravel() for axis in axes], axis=1)


def hpd_threshold(potentials: Array, probability: float = 0.95) -> float:
    """Return the potential eta below which the highest posterior density region `{x: U(x) <= eta}` lies.

    Args:
        potentials: `(n,)` U at draws of the posterior.
        probability: of the region, in (0, 1).

    Raises:
        ValueError: there are no draws, or the probability is no such number.
    """
    if not 0 < probability < 1 or np.size(potentials) == 0:
        raise ValueError(
            f"probability {probability} of {np.size(potentials)} draws; allowed: in (0, 1), of one or more"
        )
    return float(np.quantile(potentials, probability))


def hpd_relative_error(potentials: Array, reference: Array, probability: float = 0.95) -> float:
    """Return `|eta - eta_ref| / |eta_ref|` of the thresholds of two samples (Vono et al. 2022; Plassier et al. 2023).

    The constant in U matters: measure U from its minimum to compare with a Gaussian's `chi2_d / 2`.

    Args:
        potentials: `(n,)` U at the draws.
        reference: `(m,)` the same U at draws of the reference.
        probability: of the regions, in (0, 1).

    Raises:
        ValueError: as `hpd_threshold`.
    """
    exact = hpd_threshold(reference, probability)
    return abs(hpd_threshold(potentials, probability) - exact) / abs(exact)


def _samples(one: Array, other: Array) -> tuple[Array, Array]:
    one, other = np.asarray(one, float), np.asarray(other, float)
    if one.ndim != 2 or other.ndim != 2 or one.shape[1] != other.shape[1] or not one.size or not other.size:
        raise ValueError(f"the samples have shapes {one.shape} and {other.shape}; allowed: (n, d) and (m, d)")
    return one, other


def _pot() -> Any:
    """Return POT without the libraries that it would import where they are installed: torch alone takes seconds."""
    names = [f"POT_BACKEND_DISABLE_{library}" for library in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW")]
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        import ot
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return ot
