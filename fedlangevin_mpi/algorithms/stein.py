# mypy: disable-error-code="untyped-decorator"
"""Stein variational gradient descent (SVGD), the local step of SVGD, U-DSVGD and DSVGD.

Particles move along the direction that lowers the KL divergence to a target p fastest in an RKHS:

    phi(theta_n) = (1/N) sum_j [ k(theta_j, theta_n) grad log p(theta_j) + grad_{theta_j} k(theta_j, theta_n) ]
    k(x, y) = exp(-|x - y|^2 / h),   h = med^2 / log N

with `med` the median of the pairwise distances; `h = 1` for one particle, and where the median is 0. Targets are
products and ratios of the prior, the likelihood, and Gaussian kernel density estimates of particles, whose
log-gradients are sums with softmax weights: no density vanishes, however far a particle is in however many dimensions.

Liu, Wang: Stein variational gradient descent: a general purpose Bayesian inference algorithm, NeurIPS 2016; Kassab,
Simeone 2020 (`serving`), eqs. (10)-(12), (17) and table 3 (AdaGrad with momentum).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numba.extending import overload
from pydantic import Field
from scipy.spatial.distance import cdist
from scipy.special import softmax

from fedlangevin_mpi.algorithms.base import Array
from fedlangevin_mpi.algorithms.serving import Serving, Target
from fedlangevin_mpi.generic import OPTIONS, Everything, gradient

_MANY_DIMENSIONS = 1000


class SteinTarget(NamedTuple):
    """A target `p_0^a exp(-b L_k) prod_r q_r^c_r`, q the KDEs of particles.

    Attributes:
        prior_weight: a.
        likelihood_weight: b.
        densities: `(R, N, d)` particles of the `q_r`.
        weights: `(R,)` the powers `c_r`.
    """

    prior_weight: float
    likelihood_weight: float
    densities: Array
    weights: Array


class SteinOptions(NamedTuple):
    """How particles step.

    Attributes:
        kde_bandwidth: lambda, standard deviation of the Gaussians of a KDE.
        kernel_bandwidth: h; 0: from the median.
        momentum: of AdaGrad's running mean of `phi^2`; below 0: plain steps.
        fudge: what AdaGrad adds to the root of that mean.
    """

    kde_bandwidth: float
    kernel_bandwidth: float
    momentum: float
    fudge: float


class Accumulated(NamedTuple):
    """AdaGrad's memory: `square (N, d)` the running mean of `phi^2`, `made (1,)` how many steps are in it."""

    square: Array
    made: Array


def accumulated(shape: tuple[int, ...]) -> Accumulated:
    """Return an empty memory for particles `(N, d)`."""
    return Accumulated(np.zeros(shape), np.zeros(1, np.int64))


def median_bandwidth(squares: Array) -> float:
    """Return `h = med^2 / log N` of the pairwise squared distances `(N, N)`."""
    n = len(squares)
    if n == 1:
        return 1.0
    h = float(np.median(np.sqrt(squares[np.tril_indices(n, -1)])) ** 2 / np.log(n))
    return h if h > 0 and np.isfinite(h) else 1.0


def stein_direction(theta: Array, slope: Array, bandwidth: float) -> Array:
    """Return phi at every particle.

    Args:
        theta: `(N, d)`.
        slope: `(N, d)` grad log p at the particles.
        bandwidth: h; 0: from the median.
    """
    n, x = len(theta), theta - theta.mean(0)
    squares = squared_distances(x, x)
    h = bandwidth if bandwidth > 0 else median_bandwidth(squares)
    kernel = np.exp(-squares / h)
    # grad_{theta_j} k(theta_j, theta_n) = -(2/h) (theta_j - theta_n) k.
    push = (2 / h) * (np.diag(kernel.sum(1)) - kernel)
    result: Array = (kernel / n) @ slope
    result += (push / n) @ x
    return result


def squared_distances(x: Array, y: Array) -> Array:
    """Return `|x_i - y_j|^2`, `(N, M)`, of centred points `(N, d)` and `(M, d)`.

    In many dimensions by inner products, in half the time; where they lose digits, close points, one by one.
    """
    if x.shape[1] < _MANY_DIMENSIONS:
        return cdist(x, y, "sqeuclidean")  # type: ignore[no-any-return]
    own, others = (np.einsum("nd,nd->n", z, z) for z in (x, y))
    total = own[:, None] + others
    squares: Array = total - 2 * (x @ y.T)
    for i, j in np.argwhere(squares < 1e-6 * total):
        off = x[i] - y[j]
        squares[i, j] = off @ off
    return squares


def kde_score(theta: Array, points: Array, bandwidth: float) -> Array:
    """Return the gradient of `log sum_m N(theta | points_m, lambda^2 I)` at every `theta`, `(N, d)`.

    Args:
        theta: `(N, d)`.
        points: `(M, d)`.
        bandwidth: lambda.
    """
    centre = points.mean(0)
    weights = softmax(squared_distances(theta - centre, points - centre) / (-2 * bandwidth**2), axis=1)
    result: Array = weights @ points
    result -= theta
    result /= bandwidth**2
    return result


def accumulate(total: Array, weight: float, terms: Array) -> None:
    """Add `weight terms` to `total (1, N, d)`; the terms are of this shape or `(N, d)`."""
    total += weight * terms


def ascend(theta: Array, memory: Accumulated, phi: Array, step: float, options: SteinOptions) -> None:
    """Move particles `theta (1, N, d)` along phi `(N, d)`, by a plain step or by one of AdaGrad with momentum."""
    if options.momentum < 0:
        theta += step * phi
        return
    new = 1 - options.momentum if memory.made[0] else 1.0  # phi^2 itself at first
    memory.made[0] += 1
    square, rate = memory.square, phi * phi  # one temporary for all: particles of a network are most of the memory
    rate *= new
    square *= 1 - new
    square += rate
    np.sqrt(square, out=rate)
    rate += options.fudge
    np.divide(phi, rate, out=rate)
    rate *= step
    theta += rate


# The same for Numba, in loops: they compile in a fifth of the time of array expressions. Few particles gain most.


@overload(stein_direction, jit_options=OPTIONS)
def _stein_direction(theta, slope, bandwidth):  # type: ignore[no-untyped-def]
    def compiled(theta, slope, bandwidth):  # type: ignore[no-untyped-def]
        n, d = theta.shape
        kernel, pairs = np.empty((n, n)), np.empty(n * (n - 1) // 2)
        filled = 0
        for i in range(n):
            for j in range(i):
                total = 0.0
                for a in range(d):
                    off = theta[i, a] - theta[j, a]
                    total += off * off
                kernel[i, j] = total
                pairs[filled] = np.sqrt(total)
                filled += 1
        h = bandwidth
        if h <= 0:
            h = 1.0
            if n > 1:
                found = np.median(pairs) ** 2 / np.log(n)
                if found > 0 and np.isfinite(found):
                    h = found
        for i in range(n):
            kernel[i, i] = 1.0
            for j in range(i):
                kernel[i, j] = kernel[j, i] = np.exp(-kernel[i, j] / h)
        centre, pull = np.zeros(d), np.empty_like(theta)
        for i in range(n):
            for a in range(d):
                centre[a] += theta[i, a] / n
        for i in range(n):
            for a in range(d):
                pull[i, a] = slope[i, a] - 2 / h * (theta[i, a] - centre[a])
        out = np.dot(kernel, pull)
        for i in range(n):
            weight = 0.0
            for j in range(n):
                weight += kernel[i, j]
            for a in range(d):
                out[i, a] = (out[i, a] + 2 / h * weight * (theta[i, a] - centre[a])) / n
        return out

    return compiled


@overload(kde_score, jit_options=OPTIONS)
def _kde_score(theta, points, bandwidth):  # type: ignore[no-untyped-def]
    def compiled(theta, points, bandwidth):  # type: ignore[no-untyped-def]
        (n, d), m = theta.shape, len(points)
        weights = np.empty((n, m))
        for i in range(n):
            top = -np.inf
            for j in range(m):
                total = 0.0
                for a in range(d):
                    off = theta[i, a] - points[j, a]
                    total += off * off
                weights[i, j] = total / (-2 * bandwidth**2)
                top = max(top, weights[i, j])
            total = 0.0
            for j in range(m):
                weights[i, j] = np.exp(weights[i, j] - top)
                total += weights[i, j]
            for j in range(m):
                weights[i, j] /= total
        out = np.dot(weights, points)
        for i in range(n):
            for a in range(d):
                out[i, a] = (out[i, a] - theta[i, a]) / bandwidth**2
        return out

    return compiled


@overload(accumulate, jit_options=OPTIONS)
def _accumulate(total, weight, terms):  # type: ignore[no-untyped-def]
    def compiled(total, weight, terms):  # type: ignore[no-untyped-def]
        flat, added = total.reshape(total.size), terms.reshape(terms.size)
        for a in range(len(flat)):
            flat[a] += weight * added[a]

    return compiled


@overload(ascend, jit_options=OPTIONS)
def _ascend(theta, memory, phi, step, options):  # type: ignore[no-untyped-def]
    def compiled(theta, memory, phi, step, options):  # type: ignore[no-untyped-def]
        adaptive = options.momentum >= 0
        new = 1 - options.momentum if memory.made[0] > 0 else 1.0
        for n in range(phi.shape[0]):
            for a in range(phi.shape[1]):
                rate = step
                if adaptive:
                    square = (1 - new) * memory.square[n, a] + new * phi[n, a] ** 2
                    memory.square[n, a] = square
                    rate = step / (options.fudge + np.sqrt(square))
                theta[0, n, a] += rate * phi[n, a]
        memory.made[0] += adaptive

    return compiled


def stein_steps(
    theta: Array,
    memory: Accumulated,
    aim: SteinTarget,
    likelihood: Any,
    prior: Any,
    batch: Any,
    everything: Any,
    steps: Array,
    options: SteinOptions,
) -> None:
    """Move particles `theta (1, N, d)` and AdaGrad's memory by `len(steps)` steps of SVGD (module's docstring)."""
    for step in range(len(steps)):
        slope = np.zeros_like(theta)
        if aim.likelihood_weight != 0:
            accumulate(slope, -aim.likelihood_weight, gradient(theta, likelihood, batch, step))
        if aim.prior_weight != 0:
            accumulate(slope, -aim.prior_weight, gradient(theta, prior, everything, 0))
        for r in range(len(aim.densities)):
            accumulate(slope, aim.weights[r], kde_score(theta[0], aim.densities[r], options.kde_bandwidth))
        ascend(theta, memory, stein_direction(theta[0], slope[0], options.kernel_bandwidth), steps[step], options)


class Stein(Serving):
    """What SVGD, U-DSVGD and DSVGD share."""

    kernel: ClassVar[Any] = staticmethod(stein_steps)

    optimizer: Annotated[
        Literal["adagrad", "plain"],
        Field(description="adagrad: step_size phi / (fudge + sqrt of phi^2's running mean); plain: step_size phi"),
    ] = "adagrad"
    momentum: Annotated[float, Field(ge=0, lt=1, description="of adagrad's running mean of phi^2")] = 0.9
    fudge: Annotated[float, Field(gt=0, description="added to the root in adagrad")] = 1e-9
    kernel_bandwidth: Annotated[
        float | None, Field(gt=0, description="h of the kernel exp(-|x-y|^2 / h); absent: median^2 / log N")
    ] = None

    def _options(self) -> SteinOptions:
        momentum = self.momentum if self.optimizer == "adagrad" else -1.0
        kde_bandwidth = getattr(self, "kde_bandwidth", 1.0)  # SVGD has no densities
        return SteinOptions(kde_bandwidth, self.kernel_bandwidth or 0.0, momentum, self.fudge)

    def refusal(self, dim: int, target: Target, start: Array) -> str | None:
        """Refuse particles that all start at one point: they would stay together."""
        if len(start) > 1 and (start == start[0]).all():
            return (
                f"initial: all {len(start)} particles start at the same point and would stay together; allowed: a "
                "proper prior to draw them from, a file with different ones, or particles: 1"
            )
        return None

    def example(self, start: Array, target: Target, batch: Any) -> tuple[Any, ...]:
        """Return arguments of the kernel for no step."""
        nothing = np.empty((0, *start.shape))
        aim = SteinTarget(1.0, 1.0, nothing, np.empty(0))
        return self._arguments(start[None].copy(), accumulated(start.shape), aim, target, batch, np.empty(0))

    def run_kernel(
        self, kernel: Any, theta: Array, memory: Accumulated, aim: SteinTarget, target: Target, batch: Any, steps: Array
    ) -> Array:
        """Return where the particles `theta (N, d)` go towards `aim`."""
        moved = np.ascontiguousarray(theta)[None].copy()
        kernel(*self._arguments(moved, memory, aim, target, batch, steps))
        result: Array = moved[0]
        return result

    def _arguments(
        self, theta: Array, memory: Accumulated, aim: SteinTarget, target: Target, batch: Any, steps: Array
    ) -> tuple[Any, ...]:
        data = target.likelihood, target.prior, batch, Everything(1)
        return theta, memory, aim, *data, steps, self._options()
