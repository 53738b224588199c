"""PVI, partitioned variational inference, with Gaussian factors.

The server holds `q = p_0 prod_k t_k` by its natural parameters `eta = eta_0 + sum_k eta_k` (`natural`). The scheduled
agent k divides its factor out and fits q again,

    q^(i) = argmin_q E_q[L_k] + alpha KL(q || q^(i-1) / t_k),   eta_k^(i) = eta_k^(i-1) + eta^(i) - eta^(i-1)

in closed form where `L_k` is quadratic and the prior Gaussian; else by L natural-gradient steps, for which the optimum
is a fixed point (Bui et al. 2018, property 4):

    eta <- (1 - rho) eta + rho (eta^(i-1) - eta_k + grad_mu E_q[-L_k / alpha])

with `grad_mu` that of the mean parameters: `(E[H] m - E[g], -E[H] / 2)` for gradient g and Hessian H of `L_k`. Both
expectations come from gradients at S reparameterised samples `theta = m + R^-T z`, in pairs z and -z, as
`E[H] = E[g z'] R'` (Price). A step that would leave a precision P without `P / 2` is halved until it does not, of a
diagonal covariance each parameter's own: noise of the gradients must not take q to where variances are unbounded.

Scheduled alone and undamped, agents replace q (the paper's algorithm 1). Several at once add damped changes,
`eta += rho_d sum_k (eta^k - eta)`, and keep the same share in their factors, so `eta = eta_0 + sum_k eta_k` always
holds, and a point that no agent's fit changes is a fixed point of every schedule: PVI's. On quadratic `L_k` with full
covariance the fit is `eta_k = ` the likelihood's own parameters whatever the cavity, so any schedule is exact after
every agent had one undamped turn, and with damping converges as `(1 - rho_d)^turns`.

Bui, Nguyen, Swaroop, Turner: Partitioned variational inference: a unified framework encompassing federated and
continual learning, 2018; Kassab, Simeone 2020 (`serving`), eqs. (4)-(9) and algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from fedlangevin_mpi.algorithms.base import Array
from fedlangevin_mpi.algorithms.natural import (
    Root,
    checked_root,
    is_mean_field,
    mean_of,
    natural,
    precision_of,
    root_of,
    sample,
    spread,
)
from fedlangevin_mpi.algorithms.schedule import StepSize, steps_at
from fedlangevin_mpi.algorithms.serving import Sent, Target, Together, Turn
from fedlangevin_mpi.generic import gradient

_HALVINGS = 60

MOST_FULL = 2_000
"""Parameters whose covariance is worth a matrix: 32 MB for q, each factor and draw, and a Cholesky factor a step."""


@dataclass
class GaussianFactor:
    """What an agent remembers: the natural parameters of its factor `t_k`."""

    eta: Array


def conjugate_fit(cavity: Array, quadratic: tuple[Array, Array], alpha: float, diagonal: bool) -> Array:
    """Return the exact fit to `cavity * exp(-L / alpha)` for `L = 1/2 (theta - m)' H (theta - m)`.

    With a diagonal covariance, the fit has the exact mean and the diagonal of the precision.
    """
    m, H = quadratic
    linear, precision = cavity[0] + H @ m / alpha, precision_of(cavity) + H / alpha
    if not diagonal:
        return natural(linear, precision)
    own = np.diagonal(precision)
    return natural(own * np.linalg.solve(precision, linear), own)


def reparameterised_fit(start: Array, cavity: Array, target: Target, turn: Turn, alpha: float) -> Array:
    """Return q after natural-gradient steps from `start` towards the fit to `cavity * exp(-L / alpha)`.

    `turn.noise (L, S / 2, d)` holds the normals, each used with both signs.
    """
    eta = start
    for step, half in enumerate(turn.noise):
        root = checked_root(eta)
        mean, z = mean_of(eta, root), np.concatenate([half, -half])
        theta = np.ascontiguousarray(mean + spread(root, z))[None]
        slopes = gradient(theta, target.likelihood, turn.batch, step)[0]
        hessian = _mean_hessian(slopes, z, root)
        pull = hessian * mean if hessian.ndim == 1 else hessian @ mean
        optimum = cavity + natural(pull - slopes.mean(0), hessian) / alpha
        if not np.isfinite(optimum).all():
            return optimum  # an agent that would send it says so
        eta = _damped(eta, optimum, turn.steps[step])
    return eta


def _mean_hessian(slopes: Array, z: Array, root: Root) -> Array:
    """Return `E[H] = E[g z'] R'` of gradients g at `theta = m + R^-T z` (Price); of mean field its diagonal, `(d,)`."""
    if root.root.ndim == 1:
        return np.asarray((slopes * z).mean(0) * root.root)
    hessian = (slopes.T @ z / len(z)) @ root.root.T
    return np.asarray((hessian + hessian.T) / 2)


def _damped(eta: Array, optimum: Array, rho: float) -> Array:
    """Return `(1 - rho) eta + rho optimum`, rho halved until the precision is more than half of what it was."""
    share: Any = np.full(eta.shape[1], rho) if is_mean_field(eta) else rho
    for _ in range(_HALVINGS):
        new: Array = (1 - share) * eta + share * optimum
        if root_of(new - eta / 2) is not None:
            return new
        share = np.where(new[1] < eta[1] / 2, share, share / 2) if is_mean_field(eta) else share / 2
    return eta


def _is_proper(precision: Array) -> bool:
    smallest = precision.min() if precision.ndim == 1 else np.linalg.eigvalsh(precision)[0]
    return bool(smallest > 0)


class GaussianVariational(Together):
    """What PVI and GVI share."""

    natural: ClassVar[bool] = True

    covariance: Annotated[
        Literal["full", "diagonal"], Field(description="of q: full, d + d^2 numbers travel; diagonal: 2 d")
    ] = "full"
    step_size: Annotated[
        StepSize, Field(description="rho of a natural-gradient step, at most 1; a decaying one averages noise out")
    ] = 0.1
    samples: Annotated[int, Field(ge=2, multiple_of=2, description="S: of q in a natural-gradient step")] = 32

    @field_validator("step_size")
    @classmethod
    def _is_a_share(cls, step_size: StepSize) -> StepSize:
        first = float(steps_at(step_size, np.zeros(1))[0])
        if first > 1:
            raise ValueError(f"found {first:g}; allowed: at most 1, the whole way to the optimum")
        return step_size

    def positions(self, rows: int) -> int:
        """Return S."""
        return self.samples

    def normals(self, rows: int) -> int:
        """Return S / 2."""
        return self.samples // 2

    def refusal(self, dim: int, target: Target, start: Array) -> str | None:
        """Refuse a prior that is not Gaussian, and matrices that are too large."""
        if self.covariance == "full" and dim > MOST_FULL:
            return (
                f"algorithm.covariance: found full, a matrix of {dim:,} x {dim:,}; allowed: diagonal for more than "
                f"{MOST_FULL:,} parameters"
            )
        if target.normal_prior is None or (target.quadratic is None and not _is_proper(target.normal_prior[1])):
            found = "not Gaussian" if target.normal_prior is None else "flat"
            return (
                f"model: found a prior that is {found}; allowed: a Gaussian one for {self.name}, whose q starts with "
                "it (a finite prior_scale, or prior: {name: normal})"
            )
        return None

    def served(self, start: Array, target: Target) -> Array:
        """Return the prior's natural parameters: `q^(0) = p_0`."""
        assert target.normal_prior is not None  # by refusal
        mean, precision = target.normal_prior
        full = self.covariance == "full"
        if precision.ndim == 1:
            return natural(precision * mean, np.diag(precision) if full else precision)
        return natural(precision @ mean, precision if full else np.diagonal(precision))

    def agent(self, start: Array, target: Target) -> GaussianFactor:
        """Return the factor 1."""
        return GaussianFactor(np.zeros_like(self.served(start, target)))

    def work(self, kernel: Any, memory: GaussianFactor, target: Target, received: Array, turn: Turn) -> Array:
        """Return the fit of q with this agent's factor replaced, eq. (5)."""
        cavity = received - memory.eta
        if target.quadratic is not None:
            fit = conjugate_fit(cavity, target.quadratic, self.temperature, self.covariance == "diagonal")
        else:
            fit = reparameterised_fit(received, cavity, target, turn, self.temperature)
        return fit

    def settle(
        self, kernel: Any, memory: GaussianFactor, target: Target, received: Array, sent: Sent, turn: Turn
    ) -> None:
        """Give the factor its share of the change, eq. (9)."""
        memory.eta = memory.eta + self.damping * (sent.own - received)

    def draw(self, served: Array, normals: Array) -> Array:
        """Return draws of q."""
        return sample(served, normals)

    def gradients(self, target: Target, steps: int, rows: int) -> int:
        """Return L S, or 0 in closed form."""
        return 0 if target.quadratic is not None else super().gradients(target, steps, rows)


class Pvi(GaussianVariational):
    """PVI with Gaussian factors, full or mean field (Bui et al. 2018)."""

    summary: ClassVar[str] = "partitioned variational inference: Gaussian factors, one agent's fitted at a time"

    name: Literal["pvi"] = "pvi"
