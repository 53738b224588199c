"""Kernel Stein discrepancy: how far particles are from a posterior of which only the gradient is known.

With the score `s = grad log p`, the Stein kernel of a kernel k,

    u(x, y) = s(x)'s(y) k + s(x)' grad_y k + s(y)' grad_x k + tr grad_x grad_y k,

has mean 0 under p, so that `KSD^2 = E u(X, Y)` is 0 where X and Y follow p, and positive elsewhere. Liu, Lee, Jordan:
A kernelized Stein discrepancy for goodness-of-fit tests, ICML 2016; Gorham, Mackey: Measuring sample quality with
kernels, ICML 2017, whose inverse multiquadric kernel also sees mass that escapes, as the RBF kernel does not from three
dimensions on.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist, pdist

Array = np.ndarray[Any, np.dtype[Any]]

_BLOCK = 1 << 22  # pairs worked on at a time


class SteinKernel(NamedTuple):
    """`imq`: `(scale^2 + |x - y|^2)^-1/2`; `rbf`: `exp(-|x - y|^2 / scale^2)`.

    Attributes:
        name: which.
        scale: in the units of x.
    """

    name: Literal["imq", "rbf"] = "imq"
    scale: float = 1.0

    def derivatives(self, squares: Array) -> tuple[Array, Array, Array]:
        """Return k and its first and second derivative in `|x - y|^2`."""
        if self.name == "rbf":
            h = self.scale**2
            k = np.exp(-squares / h)
            return k, -k / h, k / h**2
        base = self.scale**2 + squares
        k = base**-0.5
        return k, -k / (2 * base), 3 * k / (4 * base**2)


_IMQ = SteinKernel()


def squared_stein_discrepancy(
    x: Array, scores: Array, kernel: SteinKernel = _IMQ, statistic: Literal["u", "v"] = "v"
) -> float:
    """Return an estimate of `KSD^2` (module's docstring).

    Args:
        x: `(n, d)` particles.
        scores: `(n, d)` gradients of the log density, unnormalised, at the particles.
        kernel: k.
        statistic: v: the mean of u over all pairs, never negative, with a bias of the order 1/n; u: over pairs of
            different particles, unbiased for independent draws, negative now and then.

    Raises:
        ValueError: the shapes differ, there are too few particles, a number is not finite or the scale not positive.
    """
    x, scores = np.asarray(x, float), np.asarray(scores, float)
    fewest = 2 if statistic == "u" else 1
    if x.ndim != 2 or x.shape != scores.shape or len(x) < fewest:
        raise ValueError(f"particles {x.shape} and scores {scores.shape}; allowed: (n, d) twice, n >= {fewest}")
    if not (np.isfinite(x).all() and np.isfinite(scores).all() and kernel.scale > 0):
        raise ValueError(f"kernel scale {kernel.scale:g}; allowed: above 0, with finite particles and scores")
    x = x - x.mean(0)  # differences alone matter; near the origin their products keep their digits
    n = len(x)
    step = max(1, _BLOCK // n)
    total = sum(_stein_sums(x, scores, slice(first, first + step), kernel) for first in range(0, n, step))
    if statistic == "v":
        return max(float(total) / n**2, 0.0)
    k, slope, _ = kernel.derivatives(np.zeros(1))
    diagonal = float(k[0]) * np.square(scores).sum() - 2 * float(slope[0]) * x.size
    return float(total - diagonal) / (n * (n - 1))


def median_scale(x: Array) -> float:
    """Return the scale of an RBF kernel as in SVGD, `med / sqrt(log n)`, med the median distance of `x (n, d)`.

    1 for a single particle, and where the median is 0.
    """
    if len(x) < 2:
        return 1.0
    median = float(np.median(pdist(x)))
    return median / np.sqrt(np.log(len(x))) if median > 0 else 1.0


def _stein_sums(x: Array, scores: Array, rows: slice, kernel: SteinKernel) -> float:
    """Return the sum of u over the pairs of some rows with all particles.

    With k a function of `|x - y|^2`: `grad_x k = 2 k' (x - y) = -grad_y k`, `tr grad_x grad_y k = -2 d k' - 4 r^2 k''`.
    """
    squares = cdist(x[rows], x, "sqeuclidean")
    k, first, second = kernel.derivatives(squares)
    own = (scores * x).sum(1)
    pulls = own[rows, None] + own - scores[rows] @ x.T - x[rows] @ scores.T  # (s(x) - s(y))'(x - y)
    u = k * (scores[rows] @ scores.T) - 2 * first * pulls - 2 * x.shape[1] * first - 4 * squares * second
    return float(u.sum())
