"""Generated data: every client's from a generator of its own, so that a rank makes its clients' only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedlangevin_mpi.data.shard import Array, DataSource, Shard, TestSet
from fedlangevin_mpi.data.tabular import FeatureSource
from fedlangevin_mpi.keys import Purpose, generator

# A data set has no blocks of iterations: the last part of its keys tells its parts apart.
_CLIENT, _TRUTH, _TEST = range(3)


class SyntheticGaussian(DataSource):
    """A Gaussian potential a client: `m_i ~ N(0, mean_scale^2 I)`, `C_i = Q diag(v) Q'` with a uniform rotation `Q`.

    The variances `v` lie log-uniformly between `condition^-1/2` and `condition^1/2`; from two dimensions on both ends
    are among them, so that every `C_i` has the condition number `condition`.
    """

    summary: ClassVar[str] = "a Gaussian potential a client, with spread means and rotated covariances"

    name: Literal["synthetic_gaussian"] = "synthetic_gaussian"
    dim: int = Field(default=2, ge=1, description="dimension of the potentials, at least 1")
    mean_scale: float = Field(
        default=1.0, ge=0, description="standard deviation of the clients' means in each coordinate, >= 0; 0: all equal"
    )
    condition: float = Field(
        default=10.0, ge=1, description="condition number of every covariance, >= 1; 1: all are the identity"
    )

    def shards(self, clients: Sequence[int], total: int, seed: int) -> list[Shard]:
        """Return `mean (dim,)` and `covariance (dim, dim)` of each client."""
        return [Shard(client, self._potential(client, seed), self.name) for client in clients]

    def test_set(self, total: int, seed: int) -> None:
        """Return None: there are no rows."""
        return

    def _potential(self, client: int, seed: int) -> dict[str, Array]:
        own = generator(seed, Purpose.DATA, client, _CLIENT)
        mean = self.mean_scale * own.standard_normal(self.dim)
        exponents = own.uniform(-0.5, 0.5, self.dim)
        if self.dim > 1:
            exponents[:2] = -0.5, 0.5
        # Q diag(v) Q' does not see the signs that make QR's Q uniform, so they are left out.
        rotation = np.linalg.qr(own.standard_normal((self.dim, self.dim)))[0]
        covariance = rotation * self.condition**exponents @ rotation.T
        return {"mean": mean, "covariance": (covariance + covariance.T) / 2}


class GeneratedRows(FeatureSource):
    """Rows of one law that all clients share. A subclass gives `names` and `draw`."""

    rows: int = Field(default=100, ge=1, description="training rows of each client, at least 1")
    test_rows: int = Field(default=0, ge=0, description="rows of the test set, from the same law; 0: no test set")

    def names(self) -> list[str]:
        """Return the names of the columns of `x`."""
        raise NotImplementedError

    def draw(self, rows: int, seed: int, own: np.random.Generator) -> tuple[Array, Array]:
        """Return `x (rows, p)` and `y (rows,)`.

        Args:
            rows: how many.
            seed: of the run, for what all clients share.
            own: the client's generator.
        """
        raise NotImplementedError

    def shards(self, clients: Sequence[int], total: int, seed: int) -> list[Shard]:
        """Return `x (rows, p)` and `y (rows,)` of each client."""
        columns = tuple(self.names())
        drawn = [(c, *self.draw(self.rows, seed, generator(seed, Purpose.DATA, c, _CLIENT))) for c in clients]
        return [Shard(client, {"x": x, "y": y}, self.name, columns) for client, x, y in drawn]

    def test_set(self, total: int, seed: int) -> TestSet | None:
        """Return `test_rows` further rows."""
        if not self.test_rows:
            return None
        return TestSet(*self.draw(self.test_rows, seed, generator(seed, Purpose.DATA, 0, _TEST)))


class SyntheticRows(GeneratedRows):
    """Rows of a generalised linear model whose true coefficients all clients share. A subclass gives the law of `y`."""

    features: int = Field(default=2, ge=1, description="columns of x, at least 1 (the intercept apart)")
    x_scale: float = Field(default=1.0, gt=0, description="standard deviation of the features, N(0, x_scale^2 I), > 0")
    coefficient_scale: float = Field(
        default=1.0, ge=0, description="standard deviation of the true coefficients, N(0, coefficient_scale^2 I), >= 0"
    )

    def coefficients(self, seed: int) -> Array:
        """Return the true coefficients `(features,)`, of `x` as generated."""
        return self.coefficient_scale * generator(seed, Purpose.DATA, 0, _TRUTH).standard_normal(self.features)

    def respond(self, predictor: Array, own: np.random.Generator) -> Array:
        """Draw `y (n,)` given the linear predictor `(n,)`."""
        raise NotImplementedError

    def names(self) -> list[str]:
        """Return x0, x1, ..."""
        return [f"x{column}" for column in range(self.features)]

    def draw(self, rows: int, seed: int, own: np.random.Generator) -> tuple[Array, Array]:
        """Return normal features and what `respond` makes of them."""
        x = self.x_scale * own.standard_normal((rows, self.features))
        return x, self.respond(x @ self.coefficients(seed), own)


class SyntheticLinear(SyntheticRows):
    """`y ~ N(x' beta, noise_scale^2)`."""

    summary: ClassVar[str] = "linear regression: normal features, normal noise, coefficients that all clients share"

    name: Literal["synthetic_linear"] = "synthetic_linear"
    noise_scale: float = Field(default=1.0, ge=0, description="standard deviation of the noise of y, in y's unit, >= 0")

    def respond(self, predictor: Array, own: np.random.Generator) -> Array:
        """Add noise."""
        return predictor + self.noise_scale * own.standard_normal(len(predictor))


class SyntheticLogistic(SyntheticRows):
    """`y ~ Bernoulli(1 / (1 + exp(-x' beta)))`."""

    summary: ClassVar[str] = "logistic regression: normal features, two classes, coefficients that all clients share"

    name: Literal["synthetic_logistic"] = "synthetic_logistic"

    def respond(self, predictor: Array, own: np.random.Generator) -> Array:
        """Return 1 where the predictor and standard logistic noise are positive together, else 0."""
        return (predictor + own.logistic(size=len(predictor)) > 0).astype(np.int64)
