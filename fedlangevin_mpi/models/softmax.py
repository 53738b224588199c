"""Softmax (multinomial logistic) regression: `P(y = k | x) ∝ exp(x' W[:, k])`, with a Gaussian prior on `W`."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numba.extending import register_jitable
from pydantic import Field
from scipy.special import log_softmax, softmax

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.generic import Everything, Rows, define, gradient
from fedlangevin_mpi.models.base import Array, Curvature, Facts, Model, PriorScale
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

_TILE = 128
"""Rows a matrix product takes of a full gradient: their scores stay in the cache."""


class SoftmaxData(NamedTuple):
    """The rows of the clients here.

    Attributes:
        x: `(rows, p)`.
        y: `(rows,)` integers 0, ..., classes - 1.
        offsets: `(clients_here + 1,)` client c owns the rows from `offsets[c]` to `offsets[c + 1] - 1`.
        prior_precision: `(clients_here,)` `w_i / s^2`.
    """

    x: Array
    y: Array
    offsets: Array
    prior_precision: Array


class SoftmaxRegression(Model):
    """`U_ij = log sum_k exp(x' W[:, k]) - x' W[:, y]`, `U0 = |W|^2 / (2 prior_scale^2)`; a position is `W`, row by row.

    Every class has weights of its own (`W` is not reduced by a reference class), as the prior makes them identifiable.
    """

    summary: ClassVar[str] = "softmax regression for several classes with a Gaussian prior"

    name: Literal["softmax_regression"] = "softmax_regression"
    classes: Annotated[
        int | None, Field(ge=2, description="labels are 0 to classes - 1; absent: as many as all clients' labels need")
    ] = None
    prior_scale: PriorScale = 1.0

    def facts(self, shard: Shard) -> Facts:
        """Check `x (n, p)` and the labels `y (n,)`."""
        x, y = supervised_arrays(shard)
        found = check_labels(shard, y, self.classes)
        return Facts(features=x.shape[1], classes=self.classes or max(found, 2))

    def dimension(self, facts: Facts) -> int:
        """Return `p classes`."""
        return facts.features * facts.classes

    def parameters(self, facts: Facts) -> dict[str, tuple[int, ...]]:
        """Return one matrix, `weights (p, classes)`."""
        return {"weights": (facts.features, facts.classes)}

    def pack(self, shards: Sequence[Shard], prior_weights: Sequence[float], facts: Facts, dtype: Any) -> SoftmaxData:
        """Return the shards' rows."""
        x, y, offsets = stack_rows(shards, dtype)
        precision = gaussian_prior_precision(prior_weights, self.prior_scale, dtype)
        return SoftmaxData(x, y.astype(np.int64), offsets, precision)

    def normal_prior(self, facts: Facts) -> tuple[Array, Array]:
        """Return that of `N(0, prior_scale^2 I)`."""
        return isotropic_normal(self.dimension(facts), self.prior_scale)

    def potential(self, theta: Array, data: SoftmaxData) -> Array:
        """Return `U_i` up to a constant."""
        result = gaussian_prior_potential(theta, data)
        for c in range(len(theta)):
            rows = slice(data.offsets[c], data.offsets[c + 1])
            log_probabilities = log_softmax(data.x[rows] @ _matrices(theta[c], data), axis=-1)  # (chains, n, classes)
            result[c] -= np.take_along_axis(log_probabilities, data.y[None, rows, None], -1).sum((1, 2))
        return result

    def curvature(self, data: SoftmaxData) -> Curvature:
        """Return the prior's precision, and above it `X'X / 2`, which `X'X` times `diag(p) - pp'` never exceeds."""
        _, largest = gram_eigenvalues(data)
        return Curvature(data.prior_precision, largest / 2 + data.prior_precision)

    def prior_draws(self, generator: np.random.Generator, chains: int, dim: int) -> Array | None:
        """Return draws of `N(0, prior_scale^2 I)`."""
        return gaussian_prior_draws(generator, chains, dim, self.prior_scale)

    def predict(self, positions: Array, x: Array, facts: Facts) -> Array:
        """Return the classes' probabilities, `(draws, n, classes)`."""
        result: Array = softmax(x @ positions.reshape(-1, facts.features, facts.classes), axis=-1)
        return result


def _matrices(theta: Array, data: SoftmaxData) -> Array:
    return theta.reshape(*theta.shape[:-1], data.x.shape[1], -1)


def _residuals(x: Array, y: Array, weights: Array) -> Array:
    """Return `softmax(x W) - onehot(y)`."""
    result: Array = softmax(x @ weights, axis=-1)
    classes = np.arange(result.shape[-1])
    result -= y[..., None] == classes
    return result


def _rows(theta: Array, data: SoftmaxData, batch: Rows, k: int) -> Array:
    index = batch.row[k]
    x = data.x[index]  # (clients_here, chains, n, p)
    residuals = _residuals(x, data.y[index], _matrices(theta, data)) * batch.weight[:, None, :, None]
    result: Array = data.prior_precision[:, None, None] * theta
    result += (x.swapaxes(-1, -2) @ residuals).reshape(theta.shape)
    return result


def _everything(theta: Array, data: SoftmaxData, batch: Everything, k: int) -> Array:
    result: Array = data.prior_precision[:, None, None] * theta
    for c in range(len(theta)):
        rows = slice(data.offsets[c], data.offsets[c + 1])
        residuals = _residuals(data.x[rows], data.y[rows], _matrices(theta[c], data))  # (chains, n, classes)
        result[c] += (data.x[rows].T @ residuals).reshape(theta[c].shape)
    return result


# Numba compiles what follows; it refuses a text with annotated parameters. Products by BLAS: loops took 2 to 5 times
# as long, even for 4 x 3 weights.


@register_jitable(inline="always")
def _add_rows(x: Array, y: Array, factors: Array, weights: Array, out: Array) -> None:
    """Add `x' (factors (softmax(x weights) - onehot(y)))` to `out (p, classes)`."""
    residuals = np.dot(x, weights)
    rows, classes = residuals.shape
    for i in range(rows):
        largest = residuals[i, 0]
        for b in range(1, classes):
            largest = max(largest, residuals[i, b])
        total = residuals.dtype.type(0)
        for b in range(classes):
            residuals[i, b] = np.exp(residuals[i, b] - largest)
            total += residuals[i, b]
        for b in range(classes):
            residuals[i, b] *= factors[i] / total
        residuals[i, y[i]] -= factors[i]
    out += np.dot(x.T, residuals)


def _compiled_rows(theta, data, batch, k):  # type: ignore[no-untyped-def]
    clients, chains, dim = theta.shape
    n, p = batch.row.shape[3], data.x.shape[1]
    x, y = np.empty((n, p), data.x.dtype), np.empty(n, data.y.dtype)
    out = np.empty_like(theta)
    for c in range(clients):
        drawn = batch.drawn[c]
        for j in range(chains):
            for i in range(drawn):
                row = batch.row[k, c, j, i]
                y[i] = data.y[row]
                for a in range(p):
                    x[i, a] = data.x[row, a]
            for a in range(dim):
                out[c, j, a] = data.prior_precision[c] * theta[c, j, a]
            weights, slope = theta[c, j].reshape(p, -1), out[c, j].reshape(p, -1)
            _add_rows(x[:drawn], y[:drawn], batch.weight[c], weights, slope)
    return out


def _compiled_all(theta, data, batch, k):  # type: ignore[no-untyped-def]
    clients, chains, dim = theta.shape
    p = data.x.shape[1]
    out = np.empty_like(theta)
    ones = np.ones(_TILE, theta.dtype)
    for c in range(clients):
        for j in range(chains):
            for a in range(dim):
                out[c, j, a] = data.prior_precision[c] * theta[c, j, a]
        for first in range(data.offsets[c], data.offsets[c + 1], _TILE):
            rows = slice(first, min(first + _TILE, data.offsets[c + 1]))
            for j in range(chains):
                weights, slope = theta[c, j].reshape(p, -1), out[c, j].reshape(p, -1)
                _add_rows(data.x[rows], data.y[rows], ones, weights, slope)
    return out


define(gradient, SoftmaxData, Rows, interpreted=_rows, compiled=_compiled_rows)
define(gradient, SoftmaxData, Everything, interpreted=_everything, compiled=_compiled_all)
