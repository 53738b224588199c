"""Logistic regression, labels 0 and 1, with a Gaussian prior of known scale or of unknown precision.

With `precision_prior`, the prior of Gershman, Hoffman, Blei: Nonparametric variational inference, ICML 2012, as used
by Kassab, Simeone: Federated generalized Bayesian learning via distributed Stein variational gradient descent, 2020,
section 6: `w | alpha ~ N(0, I / alpha)`, `alpha ~ Gamma(a, b)`, sampled as `theta = [w, log alpha]`. In `log alpha` the
density gains the Jacobian `alpha`, so that

    U0(w, log alpha) = alpha (|w|^2 / 2 + b) - (p / 2 + a) log alpha.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from scipy.special import expit

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.models.base import Array, Curvature, Facts, Model, PriorScale
from fedlangevin_mpi.models.glm import (
    CompiledTerms,
    Terms,
    compiled_gaussian_prior,
    define_glm,
    gaussian_prior,
    negative_log_likelihood,
)
from fedlangevin_mpi.models.sigmoid import sigmoid
from fedlangevin_mpi.models.supervised import (
    check_labels,
    gaussian_prior_draws,
    gaussian_prior_potential,
    gaussian_prior_precision,
    gram_eigenvalues,
    isotropic_normal,
    stack_rows,
    supervised_arrays,
)


class LogisticData(NamedTuple):
    """The rows of the clients here.

    Attributes:
        x: `(rows, p)`.
        y: `(rows,)` 0 or 1.
        offsets: `(clients_here + 1,)` client c owns the rows from `offsets[c]` to `offsets[c + 1] - 1`.
        prior_precision: `(clients_here,)` `w_i / s^2`.
    """

    x: Array
    y: Array
    offsets: Array
    prior_precision: Array


class HierarchicalLogisticData(NamedTuple):
    """The rows of the clients here, for a position `[w, log alpha]`.

    Attributes:
        x: `(rows, p)`.
        y: `(rows,)` 0 or 1.
        offsets: `(clients_here + 1,)` client c owns the rows from `offsets[c]` to `offsets[c + 1] - 1`.
        prior_weight: `(clients_here,)` `w_i`.
        shape: `a` of `alpha ~ Gamma(a, b)`.
        rate: its `b`.
    """

    x: Array
    y: Array
    offsets: Array
    prior_weight: Array
    shape: np.floating[Any]
    rate: np.floating[Any]


class PrecisionPrior(BaseModel):
    """`alpha ~ Gamma(shape, rate)`, the precision of the coefficients' prior `N(0, I / alpha)`; mean `shape / rate`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    shape: Annotated[float, Field(gt=0, description="of the Gamma distribution")] = 1.0
    rate: Annotated[float, Field(gt=0, description="of the Gamma distribution, one over its scale")] = 0.01


class LogisticRegression(Model):
    """`U_ij = log(1 + exp(x'w)) - y x'w`; `U0 = |w|^2 / (2 prior_scale^2)`, or hierarchical (module's docstring)."""

    summary: ClassVar[str] = "logistic regression with a Gaussian prior, of known scale or of Gamma precision"

    name: Literal["logistic_regression"] = "logistic_regression"
    prior_scale: Annotated[PriorScale | None, Field(description="1 unless precision_prior is given")] = None
    precision_prior: Annotated[
        PrecisionPrior | None, Field(description="Gamma prior of the coefficients' precision; absent: prior_scale")
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _one_prior(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        if values.get("precision_prior") is None:
            return {**values, "prior_scale": 1.0 if values.get("prior_scale") is None else values["prior_scale"]}
        if values.get("prior_scale") is not None:
            raise ValueError(
                f"prior_scale: found {values['prior_scale']} together with precision_prior; allowed: one of them "
                "(prior_scale for a known standard deviation, precision_prior to sample the precision)"
            )
        return values

    def facts(self, shard: Shard) -> Facts:
        """Check `x (n, p)` and `y (n,)` in {0, 1}."""
        x, y = supervised_arrays(shard)
        check_labels(shard, y, classes=2)
        return Facts(features=x.shape[1], classes=2)

    def dimension(self, facts: Facts) -> int:
        """Return `p`, or `p + 1` where the precision is sampled."""
        return facts.features + (self.precision_prior is not None)

    def parameters(self, facts: Facts) -> dict[str, tuple[int, ...]]:
        """Return `coefficients`, and `log_precision` where it is sampled."""
        coefficients: dict[str, tuple[int, ...]] = {"coefficients": (facts.features,)}
        return coefficients if self.precision_prior is None else coefficients | {"log_precision": ()}

    def pack(
        self, shards: Sequence[Shard], prior_weights: Sequence[float], facts: Facts, dtype: Any
    ) -> LogisticData | HierarchicalLogisticData:
        """Return the shards' rows with the prior of this config."""
        rows = stack_rows(shards, dtype)
        if self.precision_prior is None:
            assert self.prior_scale is not None  # by _one_prior
            return LogisticData(*rows, gaussian_prior_precision(prior_weights, self.prior_scale, dtype))
        scalar = np.dtype(dtype).type
        prior = self.precision_prior
        return HierarchicalLogisticData(
            *rows, np.asarray(prior_weights, dtype), scalar(prior.shape), scalar(prior.rate)
        )

    def normal_prior(self, facts: Facts) -> tuple[Array, Array] | None:
        """Return that of `N(0, prior_scale^2 I)`; None where the precision is sampled."""
        return None if self.prior_scale is None else isotropic_normal(self.dimension(facts), self.prior_scale)

    def potential(self, theta: Array, data: LogisticData | HierarchicalLogisticData) -> Array:
        """Return `U_i` up to a constant."""
        losses = negative_log_likelihood(theta, data, lambda z, y: np.logaddexp(0, z) - y * z)
        if isinstance(data, HierarchicalLogisticData):
            return losses + _hierarchical_potential(theta, data)
        return losses + gaussian_prior_potential(theta, data)

    def curvature(self, data: LogisticData | HierarchicalLogisticData) -> Curvature | None:
        """Return the prior's precision, and above it `X'X / 4`; None with an unknown precision, as it is not convex."""
        if isinstance(data, HierarchicalLogisticData):
            return None
        _, largest = gram_eigenvalues(data)
        return Curvature(data.prior_precision, largest / 4 + data.prior_precision)

    def prior_draws(self, generator: np.random.Generator, chains: int, dim: int) -> Array | None:
        """Return draws of the prior."""
        if self.precision_prior is None:
            assert self.prior_scale is not None  # by _one_prior
            return gaussian_prior_draws(generator, chains, dim, self.prior_scale)
        alpha = generator.gamma(self.precision_prior.shape, 1 / self.precision_prior.rate, (chains, 1))
        w = generator.standard_normal((chains, dim - 1)) / np.sqrt(alpha)
        return np.hstack([w, np.log(alpha)])

    def predict(self, positions: Array, x: Array, facts: Facts) -> Array:
        """Return the probabilities of 0 and 1, `(draws, n, 2)`."""
        return _probabilities(positions[:, : facts.features] @ x.T)

    def predict_kde(self, positions: Array, x: Array, facts: Facts, bandwidth: float) -> Array:
        """Return the probabilities of 0 and 1 under `w ~ N(position, bandwidth^2 I)`, by the probit approximation.

        The mean of the sigmoid over `x'w ~ N(mu, s^2)`, `s^2 = bandwidth^2 x'x`, is about that of
        `mu / sqrt(1 + pi s^2 / 8)` (Kassab, Simeone 2020, eqs. (25)-(27), where `s^2` is misprinted).
        """
        variance = bandwidth**2 * np.square(x).sum(1)
        return _probabilities(positions[:, : facts.features] @ x.T / np.sqrt(1 + np.pi * variance / 8))


def _probabilities(z: Array) -> Array:
    return np.stack([expit(-z), expit(z)], axis=-1)


def _hierarchical_potential(theta: Array, data: HierarchicalLogisticData) -> Array:
    w, log_alpha = theta[..., :-1], theta[..., -1]
    energy = np.exp(log_alpha) * ((w * w).sum(-1) / 2 + data.rate)
    result: Array = data.prior_weight[:, None] * (energy - (w.shape[-1] / 2 + data.shape) * log_alpha)
    return result


def _residual(z: Array, y: Array) -> Array:
    result: Array = expit(z) - y
    return result


def _hierarchical_prior(theta: Array, data: HierarchicalLogisticData) -> Array:
    w, alpha = theta[..., :-1], np.exp(theta[..., -1:])
    out = np.empty_like(theta)
    out[..., :-1] = alpha * w
    out[..., -1:] = alpha * ((w * w).sum(-1, keepdims=True) / 2 + data.rate) - (w.shape[-1] / 2 + data.shape)
    out *= data.prior_weight[:, None, None]
    return out


def _compiled_residual(z: Any, y: Any) -> Any:
    return sigmoid(z) - y


def _compiled_hierarchical_prior(theta: Array, data: HierarchicalLogisticData, c: int, j: int, out: Array) -> None:
    p = data.x.shape[1]
    weight, alpha = data.prior_weight[c], np.exp(theta[c, j, p])
    squares = theta.dtype.type(0)
    for a in range(p):
        squares += theta[c, j, a] * theta[c, j, a]
        out[c, j, a] = weight * alpha * theta[c, j, a]
    out[c, j, p] = weight * (alpha * (squares / 2 + data.rate) - (p / 2 + data.shape))


define_glm(
    LogisticData,
    interpreted=Terms(_residual, gaussian_prior),
    compiled=CompiledTerms(_compiled_residual, compiled_gaussian_prior),
)
define_glm(
    HierarchicalLogisticData,
    interpreted=Terms(_residual, _hierarchical_prior),
    compiled=CompiledTerms(_compiled_residual, _compiled_hierarchical_prior),
)
