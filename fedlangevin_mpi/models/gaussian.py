"""Gaussian potentials `U_i(x) = 1/2 (x - m_i)' C_i^-1 (x - m_i)`, the case whose laws are known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.errors import ShardError
from fedlangevin_mpi.generic import Everything, define, gradient
from fedlangevin_mpi.models.base import Array, Curvature, Facts, Model, array_of


class GaussianData(NamedTuple):
    """The clients here.

    Attributes:
        mean: `(clients_here, dim)`.
        precision: `(clients_here, dim, dim)`, symmetric.
    """

    mean: Array
    precision: Array


class Gaussian(Model):
    """`U_i(x) = 1/2 (x - m_i)' C_i^-1 (x - m_i)`: the posterior is the normalised product, no prior is added."""

    summary: ClassVar[str] = "Gaussian potentials with given means and covariances (no prior, no rows)"
    has_rows: ClassVar[bool] = False

    name: Literal["gaussian"] = "gaussian"

    def facts(self, shard: Shard) -> Facts:
        """Check `mean (d,)` and `covariance (d, d)`, symmetric positive definite."""
        mean, covariance = array_of(shard, "mean"), array_of(shard, "covariance")
        if mean.ndim != 1 or len(mean) == 0:
            raise ShardError(shard.client, shard.origin, f"mean has shape {mean.shape}; allowed: (d,)")
        d = len(mean)
        if covariance.shape != (d, d):
            problem = f"covariance has shape {covariance.shape}; allowed: ({d}, {d})"
            raise ShardError(shard.client, shard.origin, problem)
        off = float(abs(covariance - covariance.T).max())
        if off > 1e-6 * float(abs(covariance).max()):  # as far as float32 files are
            raise ShardError(shard.client, shard.origin, f"covariance is not symmetric: off by {off:g}")
        smallest = np.linalg.eigvalsh(covariance)[0]
        if smallest <= 0:
            problem = f"covariance is not positive definite: its smallest eigenvalue is {smallest:g}"
            raise ShardError(shard.client, shard.origin, problem)
        return Facts(features=d)

    def dimension(self, facts: Facts) -> int:
        """Return `d`."""
        return facts.features

    def parameters(self, facts: Facts) -> dict[str, tuple[int, ...]]:
        """Return one vector, `x`."""
        return {"x": (facts.features,)}

    def pack(self, shards: Sequence[Shard], prior_weights: Sequence[float], facts: Facts, dtype: Any) -> GaussianData:
        """Return means and precisions, inverted in float64."""
        precision = np.stack([np.linalg.inv(s.arrays["covariance"].astype(np.float64)) for s in shards])
        mean = np.stack([s.arrays["mean"] for s in shards])
        symmetric = (precision + precision.swapaxes(1, 2)) / 2
        return GaussianData(np.ascontiguousarray(mean, dtype), np.ascontiguousarray(symmetric, dtype))

    def prior_only(self, facts: Facts, dtype: Any) -> GaussianData:
        """Return a potential of zero: there is no prior."""
        d = facts.features
        return GaussianData(np.zeros((1, d), dtype), np.zeros((1, d, d), dtype))

    def normal_prior(self, facts: Facts) -> tuple[Array, Array]:
        """Return a flat prior."""
        return np.zeros(facts.features), np.zeros((facts.features, facts.features))

    def potential(self, theta: Array, data: GaussianData) -> Array:
        """Return the quadratic form."""
        off = theta - data.mean[:, None]
        result: Array = (off * np.matmul(off, data.precision)).sum(-1) / 2
        return result

    def curvature(self, data: GaussianData) -> Curvature:
        """Return the extreme eigenvalues of the precisions."""
        values = np.linalg.eigvalsh(data.precision)
        return Curvature(values[:, 0], values[:, -1])

    def quadratic(self, data: GaussianData) -> tuple[Array, Array]:
        """Return the means and precisions."""
        return data.mean, data.precision

    def prior_draws(self, generator: np.random.Generator, chains: int, dim: int) -> None:
        """Return None: there is no prior."""
        return


def _interpreted(theta: Array, data: GaussianData, batch: Everything, k: int) -> Array:
    # (H (x - m))' = (x - m)' H: a row vector a chain, so that one product serves all chains of a client.
    result: Array = (theta - data.mean[:, None]) @ data.precision
    return result


def _compiled(theta, data, batch, k):  # type: ignore[no-untyped-def]  # compiled by Numba
    clients, chains, dim = theta.shape
    out = np.empty_like(theta)
    if chains >= 8 and dim >= 8:  # BLAS pays from here on
        off = np.empty((chains, dim), theta.dtype)
        for c in range(clients):
            for j in range(chains):
                for a in range(dim):
                    off[j, a] = theta[c, j, a] - data.mean[c, a]
            np.dot(off, data.precision[c], out[c])
        return out
    for c in range(clients):
        for j in range(chains):
            for a in range(dim):
                total = theta.dtype.type(0)
                for b in range(dim):
                    total += data.precision[c, a, b] * (theta[c, j, b] - data.mean[c, b])
                out[c, j, a] = total
    return out


define(gradient, GaussianData, Everything, interpreted=_interpreted, compiled=_compiled)
