"""Kernel density estimates of particles or draws, by SciPy and scikit-learn."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

Bandwidth = float | Literal["scott", "silverman"]


def log_kde(points: Array, particles: Array, bandwidth: Bandwidth = "scott") -> Array:
    """Return the log of a Gaussian kernel density estimate, `(m,)`, finite however far out.

    Args:
        points: `(m, d)` where to evaluate it.
        particles: `(n, d)`.
        bandwidth: a number lambda: kernels `N(0, lambda^2 I)`, as particle methods use; scott, silverman: kernels
            with the particles' covariance times `n^(-2/(d + 4))`, or `(n (d + 2) / 4)^(-2/(d + 4))`.

    Raises:
        ValueError: shapes do not fit, a bandwidth is not positive, or a rule meets particles without a covariance of
            full rank.
    """
    points, particles = np.asarray(points, float), np.asarray(particles, float)
    if points.ndim != 2 or particles.ndim != 2 or points.shape[1] != particles.shape[1] or not len(particles):
        raise ValueError(f"points {points.shape} and particles {particles.shape}; allowed: (m, d) and (n, d)")
    if isinstance(bandwidth, str):
        from scipy.stats import gaussian_kde

        n, d = particles.shape
        if n <= d or np.linalg.matrix_rank(np.atleast_2d(np.cov(particles.T))) < d:
            raise ValueError(f"{n} particles span less than {d} dimensions; allowed for them: a number as bandwidth")
        return np.asarray(gaussian_kde(particles.T, bandwidth).logpdf(points.T))
    if not bandwidth > 0:
        raise ValueError(f"bandwidth {bandwidth:g}; allowed: above 0, scott, silverman")
    from sklearn.neighbors import KernelDensity

    return np.asarray(KernelDensity(bandwidth=bandwidth).fit(particles).score_samples(points))
