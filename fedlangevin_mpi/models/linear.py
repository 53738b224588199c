"""Linear regression `y = x'theta + N(0, s^2)` with known noise, and its Gaussian posterior in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

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
from fedlangevin_mpi.models.supervised import (
    gaussian_prior_draws,
    gaussian_prior_potential,
    gaussian_prior_precision,
    gram_eigenvalues,
    isotropic_normal,
    rows_of,
    stack_rows,
    supervised_arrays,
)


class LinearData(NamedTuple):
    """The rows of the clients here, divided by the noise's standard deviation: unit noise is left.

    Attributes:
        x: `(rows, p)`.
        y: `(rows,)`.
        offsets: `(clients_here + 1,)` client c owns the rows from `offsets[c]` to `offsets[c + 1] - 1`.
        prior_precision: `(clients_here,)` `w_i / s^2`.
    """

    x: Array
    y: Array
    offsets: Array
    prior_precision: Array


class LinearRegression(Model):
    """`U_ij(theta) = (y - x'theta)^2 / (2 noise_scale^2)`, `U0 = |theta|^2 / (2 prior_scale^2)`."""

    summary: ClassVar[str] = "linear regression with known noise and a Gaussian prior"

    name: Literal["linear_regression"] = "linear_regression"
    noise_scale: Annotated[
        float, Field(gt=0, description="standard deviation of the noise, in the units of y; known, not sampled")
    ] = 1.0
    prior_scale: PriorScale = 1.0

    def facts(self, shard: Shard) -> Facts:
        """Check `x (n, p)` and `y (n,)`."""
        x, _ = supervised_arrays(shard)
        return Facts(features=x.shape[1])

    def dimension(self, facts: Facts) -> int:
        """Return `p`."""
        return facts.features

    def parameters(self, facts: Facts) -> dict[str, tuple[int, ...]]:
        """Return one vector, `coefficients`."""
        return {"coefficients": (facts.features,)}

    def pack(self, shards: Sequence[Shard], prior_weights: Sequence[float], facts: Facts, dtype: Any) -> LinearData:
        """Return the shards' rows in units of the noise."""
        x, y, offsets = stack_rows(shards, dtype)
        precision = gaussian_prior_precision(prior_weights, self.prior_scale, dtype)
        return LinearData(x / self.noise_scale, y / self.noise_scale, offsets, precision)

    def normal_prior(self, facts: Facts) -> tuple[Array, Array]:
        """Return that of `N(0, prior_scale^2 I)`."""
        return isotropic_normal(self.dimension(facts), self.prior_scale)

    def potential(self, theta: Array, data: LinearData) -> Array:
        """Return `U_i` up to a constant."""
        losses = negative_log_likelihood(theta, data, lambda z, y: (z - y) ** 2 / 2)
        return losses + gaussian_prior_potential(theta, data)

    def curvature(self, data: LinearData) -> Curvature:
        """Return the extreme eigenvalues of `X'X / noise_scale^2 + w_i I / prior_scale^2`."""
        smallest, largest = gram_eigenvalues(data)
        return Curvature(smallest + data.prior_precision, largest + data.prior_precision)

    def quadratic(self, data: LinearData) -> tuple[Array, Array]:
        """Return every client's least-squares fit, shrunk by its share of the prior, and its precision."""
        means, precisions = [], []
        for c, prior in enumerate(data.prior_precision):
            x, y = rows_of(data, c)
            precision = x.T @ x + prior * np.eye(x.shape[1])
            precisions.append(precision)
            # With few rows and a flat prior any mean on which the likelihood is largest gives the same potential.
            means.append(np.linalg.pinv(precision, hermitian=True) @ (x.T @ y))
        return np.array(means), np.array(precisions)

    def prior_draws(self, generator: np.random.Generator, chains: int, dim: int) -> Array | None:
        """Return draws of `N(0, prior_scale^2 I)`."""
        return gaussian_prior_draws(generator, chains, dim, self.prior_scale)

    def predict(self, positions: Array, x: Array, facts: Facts) -> Array:
        """Return the means `x'theta`, `(draws, n)`."""
        return positions @ x.T

    def predictive_noise(self, positions: Array) -> Array:
        """Return `noise_scale`, whatever the position."""
        return np.full((len(positions), 1), self.noise_scale)


def _residual(z: Any, y: Any) -> Any:
    return z - y


define_glm(
    LinearData,
    interpreted=Terms(_residual, gaussian_prior),
    compiled=CompiledTerms(_residual, compiled_gaussian_prior),
)
