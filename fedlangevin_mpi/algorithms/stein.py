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

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from numba.extending import register_jitable
from pydantic import Field

from fedlangevin_mpi.algorithms.base import Array
from fedlangevin_mpi.algorithms.serving import Serving, Target
from fedlangevin_mpi.generic import Everything, gradient

F = TypeVar("F", bound=Callable[..., Any])


def _jitable(function: F) -> F:
    """Let compiled code call a function, with the flags of all compiled code; not inlined, as it is no small one."""
    known: F = register_jitable(fastmath={"reassoc", "contract", "nsz", "arcp"}, error_model="numpy")(function)
    return known


class SteinTarget(NamedTuple):
    """A target `p_0^a exp(-b L_k) prod_r q_r / prod_s q_s`, q the KDEs of particles.

    Attributes:
        prior_weight: a.
        likelihood_weight: b.
        factors: `(R, N, d)` particles of the `q_r`.
        divisors: `(S, N, d)` particles of the `q_s`.
    """

    prior_weight: float
    likelihood_weight: float
    factors: Array
    divisors: Array


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


@_jitable
def squared_distances(a: Array, b: Array) -> Array:
    """Return `|a_n - b_m|^2`, `(N, M)`; of points near the origin, or digits are lost."""
    norms = np.expand_dims((a * a).sum(1), 1) + np.expand_dims((b * b).sum(1), 0)
    result: Array = np.maximum(norms - 2 * np.dot(a, b.T), 0.0)
    return result


@_jitable
def median_bandwidth(squares: Array) -> float:
    """Return `h = med^2 / log N` of the pairwise squared distances `(N, N)`."""
    n = len(squares)
    if n == 1:
        return 1.0
    pairs = np.empty(n * (n - 1) // 2)
    filled = 0
    for i in range(n - 1):
        pairs[filled : filled + n - 1 - i] = squares[i, i + 1 :]
        filled += n - 1 - i
    h = np.median(np.sqrt(pairs)) ** 2 / np.log(n)
    return h if h > 0 and np.isfinite(h) else 1.0


@_jitable
def stein_direction(theta: Array, slope: Array, bandwidth: float) -> Array:
    """Return phi at every particle.

    Args:
        theta: `(N, d)`.
        slope: `(N, d)` grad log p at the particles.
        bandwidth: h; 0: from the median.
    """
    n = len(theta)
    x = theta - theta.sum(0) / n
    squares = squared_distances(x, x)
    h = bandwidth if bandwidth > 0 else median_bandwidth(squares)
    kernel = np.exp(-squares / h)
    # grad_{theta_j} k(theta_j, theta_n) = -(2/h) (theta_j - theta_n) k: both sums over j in one product.
    pull = slope - (2 / h) * x
    result: Array = (np.dot(kernel, pull) + (2 / h) * np.expand_dims(kernel.sum(1), 1) * x) / n
    return result


@_jitable
def kde_score(theta: Array, points: Array, bandwidth: float) -> Array:
    """Return the gradient of `log sum_m N(theta | points_m, lambda^2 I)` at every `theta`, `(N, d)`.

    Args:
        theta: `(N, d)`.
        points: `(M, d)`.
        bandwidth: lambda.
    """
    centre = points.sum(0) / len(points)
    a, b = theta - centre, points - centre
    logs = squared_distances(a, b) / (-2 * bandwidth**2)
    for n in range(len(theta)):
        weights = np.exp(logs[n] - logs[n].max())
        logs[n] = weights / weights.sum()
    result: Array = (np.dot(logs, b) - a) / bandwidth**2
    return result


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
            slope -= aim.likelihood_weight * gradient(theta, likelihood, batch, step)
        if aim.prior_weight != 0:
            slope -= aim.prior_weight * gradient(theta, prior, everything, 0)
        for r in range(len(aim.factors)):
            slope[0] += kde_score(theta[0], aim.factors[r], options.kde_bandwidth)
        for s in range(len(aim.divisors)):
            slope[0] -= kde_score(theta[0], aim.divisors[s], options.kde_bandwidth)
        phi = stein_direction(theta[0], slope[0], options.kernel_bandwidth)
        if options.momentum < 0:
            theta[0] = theta[0] + steps[step] * phi
        else:
            if memory.made[0] == 0:
                memory.square[:] = phi * phi
            else:
                memory.square[:] = options.momentum * memory.square + (1 - options.momentum) * (phi * phi)
            memory.made[0] += 1
            theta[0] = theta[0] + steps[step] * phi / (options.fudge + np.sqrt(memory.square))


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
        aim = SteinTarget(1.0, 1.0, nothing, nothing)
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
