"""Gaussian mixture factors, the toy targets of federated particle methods: multimodal, and known in closed form.

Kassab, Simeone: Federated generalized Bayesian learning via distributed Stein variational gradient descent, 2020,
section 6 and appendix B.1 to B.2. The posterior is the prior times the product of the clients' factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.errors import ConfigError, ShardError
from fedlangevin_mpi.generic import Everything, define, gradient
from fedlangevin_mpi.models.base import Array, Facts, Model, array_of


class MixtureData(NamedTuple):
    """The clients here; those with fewer components than others have some of weight zero.

    Attributes:
        log_weight: `(clients_here, k)` of `w_m |2 pi C_m|^-1/2`, -inf where there is no component.
        mean: `(clients_here, k, dim)`.
        precision: `(clients_here, k, dim, dim)`, symmetric.
        prior_mean: `(dim,)`.
        prior_precision: `(clients_here, dim, dim)`, every client's share; 0 of a uniform prior.
        low: `(clients_here, dim)` bounds of a uniform prior, -inf where a client has no share of one.
        high: `(clients_here, dim)`.
    """

    log_weight: Array
    mean: Array
    precision: Array
    prior_mean: Array
    prior_precision: Array
    low: Array
    high: Array


class _Prior(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class NormalPrior(_Prior):
    """`N(mean, scale^2 C)`, `C` the identity unless a covariance is given."""

    name: Literal["normal"] = "normal"
    mean: Annotated[float, Field(description="of every coordinate")] = 0.0
    scale: Annotated[float, Field(gt=0, description="standard deviation, or factor of the covariance's root")] = 1.0
    covariance: Annotated[
        tuple[tuple[float, ...], ...] | None,
        Field(description="C (d, d), symmetric positive definite; absent: the identity"),
    ] = None

    @model_validator(mode="after")
    def _is_a_covariance(self) -> Self:
        if self.covariance is None:
            return self
        sizes = [len(self.covariance), *map(len, self.covariance)]
        if min(sizes) != max(sizes) or not sizes[0]:
            raise ValueError(f"covariance: found rows of length {sizes[1:]}; allowed: a square matrix")
        if problem := _covariance_problem(np.array(self.covariance)):
            raise ValueError(f"covariance: it {problem}; allowed: symmetric positive definite")
        return self

    def matrix(self, dim: int) -> Array:
        """Return the covariance, `(dim, dim)`.

        Raises:
            ConfigError: the config gives one of another dimension.
        """
        if self.covariance is None:
            return self.scale**2 * np.eye(dim)
        if len(self.covariance) != dim:
            found = f"found {len(self.covariance)} rows for dimension {dim}"
            raise ConfigError(f"model.prior.covariance: {found}; allowed: one a dimension")
        return self.scale**2 * np.array(self.covariance)


class UniformPrior(_Prior):
    """Uniform on the box `[low, high]^d`."""

    name: Literal["uniform"] = "uniform"
    low: Annotated[float, Field(description="lower bound of every coordinate")]
    high: Annotated[float, Field(description="upper bound of every coordinate")]

    @model_validator(mode="after")
    def _is_a_box(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"found low {self.low} and high {self.high}; allowed: low < high")
        return self


class GaussianMixture(Model):
    """`U_i(x) = w_i U0(x) - log sum_m w_im N(x | mu_im, C_im)`, `N` the normal density; weights need not sum to 1.

    A uniform prior makes the potential infinite outside its box, but has no gradient there or anywhere: what follows
    gradients alone does not see it. It is meant, as in the paper, for likelihoods that are negligible outside.
    """

    summary: ClassVar[str] = "Gaussian mixture factors with given components, and a normal or uniform prior (no rows)"
    has_rows: ClassVar[bool] = False

    name: Literal["gaussian_mixture"] = "gaussian_mixture"
    prior: Annotated[
        NormalPrior | UniformPrior, Field(discriminator="name", description="normal or uniform, once over all clients")
    ] = NormalPrior()

    def facts(self, shard: Shard) -> Facts:
        """Check `weights (k,)`, `means (k, d)` and `covariances (k, d, d)`, symmetric positive definite.

        Raises:
            ShardError: one is missing, shaped otherwise, or no mixture.
            ConfigError: the prior's covariance is of another dimension.
        """
        weights, means, covariances = (array_of(shard, name) for name in ("weights", "means", "covariances"))
        if problem := _shape_problem(weights, means, covariances) or _component_problem(weights, covariances):
            raise ShardError(shard.client, shard.origin, problem)
        d = means.shape[1]
        if isinstance(self.prior, NormalPrior):
            self.prior.matrix(d)
        return Facts(features=d)

    def dimension(self, facts: Facts) -> int:
        """Return `d`."""
        return facts.features

    def parameters(self, facts: Facts) -> dict[str, tuple[int, ...]]:
        """Return one vector, `x`."""
        return {"x": (facts.features,)}

    def pack(self, shards: Sequence[Shard], prior_weights: Sequence[float], facts: Facts, dtype: Any) -> MixtureData:
        """Return all components, their covariances inverted in float64."""
        d, shares = facts.features, np.asarray(prior_weights, np.float64)
        k = max(len(shard.arrays["weights"]) for shard in shards)
        log_weight = np.full((len(shards), k), -np.inf)
        mean, precision = np.zeros((len(shards), k, d)), np.zeros((len(shards), k, d, d))
        for c, shard in enumerate(shards):
            weights, means, covariances = (shard.arrays[n].astype(float) for n in ("weights", "means", "covariances"))
            count = len(weights)
            log_weight[c, :count] = np.log(weights) - np.linalg.slogdet(2 * np.pi * covariances)[1] / 2
            mean[c, :count] = means
            inverse = np.linalg.inv(covariances)
            precision[c, :count] = (inverse + inverse.swapaxes(1, 2)) / 2
        prior_mean, prior_precision = np.zeros(d), np.zeros((len(shards), d, d))
        low, high = np.full((len(shards), d), -np.inf), np.full((len(shards), d), np.inf)
        if isinstance(self.prior, NormalPrior):
            prior_mean += self.prior.mean
            prior_precision += shares[:, None, None] * np.linalg.inv(self.prior.matrix(d))
        else:
            low[shares > 0], high[shares > 0] = self.prior.low, self.prior.high
        arrays = log_weight, mean, precision, prior_mean, prior_precision, low, high
        return MixtureData(*(np.ascontiguousarray(array, dtype) for array in arrays))

    def prior_only(self, facts: Facts, dtype: Any) -> MixtureData:
        """Return the prior with a factor that is 1 everywhere."""
        d = facts.features
        one = Shard(-1, {"weights": np.ones(1), "means": np.zeros((1, d)), "covariances": np.eye(d)[None]}, "prior")
        packed = self.pack([one], [1.0], facts, dtype)
        return packed._replace(log_weight=np.zeros((1, 1), dtype), precision=np.zeros((1, 1, d, d), dtype))

    def normal_prior(self, facts: Facts) -> tuple[Array, Array] | None:
        """Return that of a normal prior; None of a uniform one."""
        if not isinstance(self.prior, NormalPrior):
            return None
        d = facts.features
        return np.full(d, self.prior.mean), np.linalg.inv(self.prior.matrix(d))

    def potential(self, theta: Array, data: MixtureData) -> Array:
        """Return `U_i`, of a normal prior up to a constant; infinite outside a uniform prior's box."""
        off = theta[:, :, None] - data.mean[:, None]  # (clients_here, chains, k, dim)
        squares = (off * np.matmul(off[..., None, :], data.precision[:, None])[..., 0, :]).sum(-1)
        likelihood = np.logaddexp.reduce(data.log_weight[:, None] - squares / 2, axis=-1)
        away = theta - data.prior_mean
        prior = (away * np.matmul(away, data.prior_precision)).sum(-1) / 2
        outside = (theta < data.low[:, None]) | (theta > data.high[:, None])
        result: Array = np.where(outside.any(-1), np.inf, prior - likelihood)
        return result

    def prior_draws(self, generator: np.random.Generator, chains: int, dim: int) -> Array:
        """Return draws of the prior."""
        if isinstance(self.prior, UniformPrior):
            return generator.uniform(self.prior.low, self.prior.high, (chains, dim))
        root = np.linalg.cholesky(self.prior.matrix(dim))
        return self.prior.mean + generator.standard_normal((chains, dim)) @ root.T


def _shape_problem(weights: Array, means: Array, covariances: Array) -> str | None:
    if weights.ndim != 1 or len(weights) == 0:
        return f"weights have shape {weights.shape}; allowed: (k,)"
    k = len(weights)
    if means.ndim != 2 or len(means) != k or means.shape[1] == 0:
        return f"means have shape {means.shape}; allowed: ({k}, d) for {k} weights"
    d = means.shape[1]
    if covariances.shape != (k, d, d):
        return f"covariances have shape {covariances.shape}; allowed: ({k}, {d}, {d})"
    return None


def _component_problem(weights: Array, covariances: Array) -> str | None:
    for number, (weight, covariance) in enumerate(zip(weights, covariances, strict=True)):
        if weight <= 0:
            return f"weight {weight:g} of component {number}; allowed: above 0"
        if problem := _covariance_problem(covariance):
            return f"the covariance of component {number} {problem}; allowed: symmetric positive definite"
    return None


def _covariance_problem(covariance: Array) -> str | None:
    off = float(abs(covariance - covariance.T).max())
    if off > 1e-6 * float(abs(covariance).max()):  # as far as float32 files are
        return f"is not symmetric: off by {off:g}"
    smallest = np.linalg.eigvalsh(covariance)[0]
    return None if smallest > 0 else f"is not positive definite: its smallest eigenvalue is {smallest:g}"


# One text for NumPy and for Numba, vectorised over chains: particles are many, components few.
def _gradient(theta, data, batch, k):  # type: ignore[no-untyped-def]
    clients, chains, _ = theta.shape
    components = data.log_weight.shape[1]
    out = np.empty_like(theta)
    logs = np.empty((components, chains), theta.dtype)
    slopes = np.empty((components, *theta.shape[1:]), theta.dtype)
    for c in range(clients):
        top = np.full(chains, -np.inf)
        for m in range(components):
            off = theta[c] - data.mean[c, m]
            slopes[m] = np.dot(off, data.precision[c, m])
            logs[m] = data.log_weight[c, m] - (off * slopes[m]).sum(1) / 2
            top = np.maximum(top, logs[m])
        out[c] = 0
        total = np.zeros(chains)
        for m in range(components):
            share = np.exp(logs[m] - top)  # the nearest component has 1: no sum of them vanishes
            total += share
            out[c] += np.expand_dims(share, 1) * slopes[m]
        out[c] /= np.expand_dims(total, 1)
        out[c] += np.dot(theta[c] - data.prior_mean, data.prior_precision[c])
    return out


define(gradient, MixtureData, Everything, interpreted=_gradient, compiled=_gradient)
