"""FSGLD, federated SGLD: travelling chains (`dsgld`) with conducive gradients.

Every agent s fits a Gaussian surrogate q_s to its likelihood `exp(-L_s / alpha)`, once and on its own data; the sum of
their natural parameters makes `q = prod_s q_s` known to all. At agent s the drift gets

    g_s = grad log q - (1 / f_s) grad log q_s

which averages to zero over agents and pulls a chain to the others' data while it is with one: where surrogates are
exact, L_s quadratic and gradients full, every step is one of the unadjusted Langevin algorithm on the whole posterior,
for any number of local steps.

The surrogate is the second-order expansion of L_s at the mode of `p_0 exp(-L_s / alpha)`, its curvature made positive
semi-definite; quadratic L_s are their own. One message of `d + d^2` numbers leaves every agent before iteration 0.

El Mekkaoui, Mesquita, Blomstedt, Kaski: Federated stochastic gradient Langevin dynamics, UAI 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fedlangevin_mpi.algorithms.base import Array
from fedlangevin_mpi.algorithms.dsgld import TravellingChains
from fedlangevin_mpi.algorithms.natural import natural, precision_of
from fedlangevin_mpi.algorithms.serving import Target, Turn
from fedlangevin_mpi.algorithms.travelling import Force
from fedlangevin_mpi.generic import Everything, gradient

MOST_FITTED = 5_000
"""Parameters of a surrogate whose Hessian is worth its 2 d gradients a Newton step: 0.8 GB."""

_NEWTON_STEPS = 100
_HALVINGS = 30
_DIFFERENCE = 1e-4


@dataclass
class Surrogates:
    """What an agent knows: natural parameters `(1 + d, d)` of its own surrogate, and of all agents' product."""

    own: Array
    product: Array


class Fsgld(TravellingChains):
    """FSGLD: DSGLD whose drift is corrected by Gaussian surrogates of all likelihoods (El Mekkaoui et al. 2021)."""

    summary: ClassVar[str] = "DSGLD with conducive gradients: Gaussian surrogates of all clients take its bias away"
    shares: ClassVar[bool] = True

    name: Literal["fsgld"] = "fsgld"

    def refusal(self, dim: int, target: Target, start: Array) -> str | None:
        """Refuse Hessians that are too large."""
        if dim > MOST_FITTED and target.quadratic is None:
            return (
                f"algorithm.name: found fsgld for {dim:,} parameters; allowed: up to {MOST_FITTED:,}, as a client's "
                "surrogate has a Hessian; or dsgld, which has none"
            )
        return None

    def agent(self, start: Array, target: Target) -> Surrogates:
        """Fit this agent's surrogate."""
        own = surrogate(target, start.mean(0), self.temperature)
        return Surrogates(own, np.zeros_like(own))

    def shared(self, memory: Surrogates) -> Array:
        """Return the own surrogate."""
        return memory.own

    def learn(self, memory: Surrogates, total: Array) -> None:
        """Take the product of all surrogates."""
        memory.product = total

    def work(self, kernel: Any, memory: Surrogates, target: Target, received: Array, turn: Turn) -> Array:
        """Return the chains after tau_s steps."""
        eta = memory.product - memory.own / self.share(turn.agent, turn.agents)
        return self.moved(kernel, target, received, turn, self.weights(turn), Force(eta[0].copy(), precision_of(eta)))


def surrogate(target: Target, point: Array, alpha: float) -> Array:
    """Return the natural parameters of a Gaussian fit of `exp(-L / alpha)`, searched for from `point (d,)`."""
    if target.quadratic is not None:
        mean, precision = target.quadratic
        return natural(precision @ mean / alpha, precision / alpha)
    mode = _mode(target, point, alpha)
    slope, curvature = _expansion(target.likelihood, mode)
    curvature = _positive(curvature, 0.0)
    return natural((curvature @ mode - slope) / alpha, curvature / alpha)


def _mode(target: Target, point: Array, alpha: float) -> Array:
    """Return where the gradient of `U0 + L / alpha` vanishes, or is as small as Newton steps make it."""
    slope, curvature = _posterior_expansion(target, point, alpha)
    for _ in range(_NEWTON_STEPS):
        step = np.linalg.solve(_positive(curvature, 1e-8), slope)
        for _ in range(_HALVINGS):
            new = _posterior_expansion(target, point - step, alpha)
            if np.linalg.norm(new[0]) < np.linalg.norm(slope):
                break
            step /= 2
        else:
            break
        point, (slope, curvature) = point - step, new
    return point


def _posterior_expansion(target: Target, point: Array, alpha: float) -> tuple[Array, Array]:
    (a, A), (b, B) = _expansion(target.prior, point), _expansion(target.likelihood, point)
    return a + b / alpha, A + B / alpha


def _expansion(data: Any, point: Array) -> tuple[Array, Array]:
    """Return gradient `(d,)` and Hessian `(d, d)`, by central differences, of a potential."""
    d = len(point)
    offsets = np.diag(_DIFFERENCE * (1 + np.abs(point)))
    points = np.concatenate([point[None], point + offsets, point - offsets])
    slopes = gradient(np.ascontiguousarray(points[None]), data, Everything(1), 0)[0]
    hessian = (slopes[1 : d + 1] - slopes[d + 1 :]) / (2 * np.diagonal(offsets)[:, None])
    return slopes[0], (hessian + hessian.T) / 2


def _positive(symmetric: Array, least: float) -> Array:
    """Return a matrix with eigenvalues that are too small raised to `least` times the largest."""
    values, vectors = np.linalg.eigh(symmetric)
    floor = least * max(float(np.abs(values).max()), 1.0)
    return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)
