"""Gradients of generalised linear models: row `(x, y)` adds `residual(x'w, y) x` for the coefficients `w`.

Models differ in the residual and in the prior; both are given twice, for NumPy arrays and for Numba. The first `p` of
a position's entries are the coefficients; a prior may have more parameters behind them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from fedlangevin_mpi.generic import Everything, Rows, define, gradient
from fedlangevin_mpi.models.base import Array
from fedlangevin_mpi.models.supervised import rows_of


class Terms(NamedTuple):
    """What tells one generalised linear model from another, for NumPy.

    Attributes:
        residual: `(x'w, y) -> d/dz of the negative log likelihood at z = x'w`, elementwise.
        prior: `(theta, data) -> (clients_here, chains, dim)` gradient of `w_i U0`.
    """

    residual: Callable[[Array, Array], Array]
    prior: Callable[[Array, Any], Array]


class CompiledTerms(NamedTuple):
    """The same for Numba, which inlines both functions.

    Attributes:
        residual: `(x'w, y)` of one row.
        prior: `(theta, data, c, j, out)` writes the gradient of `w_i U0` of client `c`, chain `j`, to `out[c, j]`.
    """

    residual: Callable[[Any, Any], Any]
    prior: Callable[[Array, Any, int, int, Array], None]


def define_glm(data: type, interpreted: Terms, compiled: CompiledTerms) -> None:
    """Define `gradient` for a type of data with fields `x (rows, p)`, `y (rows,)` and `offsets (clients_here + 1,)`."""
    prior = _inlined(compiled.prior)
    add_row = _compiled_add_row(compiled.residual)
    define(gradient, data, Rows, interpreted=_rows(*interpreted), compiled=_compiled_rows(add_row, prior))
    define(gradient, data, Everything, interpreted=_everything(*interpreted), compiled=_compiled_all(add_row, prior))


def negative_log_likelihood(theta: Array, data: Any, loss: Callable[[Array, Array], Array]) -> Array:
    """Return `sum_j loss(x_j'w, y_j)` over every client's rows, `(clients_here, chains)`."""
    result = np.empty(theta.shape[:2], theta.dtype)
    for c in range(len(theta)):
        x, y = rows_of(data, c)
        result[c] = loss(x @ theta[c, :, : x.shape[1]].T, y[:, None]).sum(0)
    return result


def gaussian_prior(theta: Array, data: Any) -> Array:
    """Return the gradient of `w_i |theta|^2 / (2 s^2)`."""
    result: Array = data.prior_precision[:, None, None] * theta
    return result


def compiled_gaussian_prior(theta: Array, data: Any, c: int, j: int, out: Array) -> None:
    """Write the gradient of `w_i |theta|^2 / (2 s^2)`."""
    for a in range(theta.shape[2]):
        out[c, j, a] = data.prior_precision[c] * theta[c, j, a]


def _rows(residual: Callable[..., Array], prior: Callable[..., Array]) -> Callable[..., Array]:
    def interpreted(theta: Array, data: Any, batch: Rows, k: int) -> Array:
        index, p = batch.row[k], data.x.shape[1]
        x = data.x[index]  # (clients_here, chains, n, p)
        z = (x @ theta[..., :p, None])[..., 0]
        factor = batch.weight[:, None] * residual(z, data.y[index])
        out = prior(theta, data)
        out[..., :p] += (factor[..., None, :] @ x)[..., 0, :]
        return out

    return interpreted


def _everything(residual: Callable[..., Array], prior: Callable[..., Array]) -> Callable[..., Array]:
    def interpreted(theta: Array, data: Any, batch: Everything, k: int) -> Array:
        out = prior(theta, data)
        for c in range(len(theta)):
            x, y = rows_of(data, c)
            p = x.shape[1]
            out[c, :, :p] += residual(x @ theta[c, :, :p].T, y[:, None]).T @ x
        return out

    return interpreted


# Numba compiles what follows. It refuses a text with annotated parameters (`compiled`). A function that is called
# instead of inlined doubles the time of a row.


def _inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    known: Callable[..., Any] = register_jitable(inline="always")(function)
    return known


def _compiled_add_row(residual: Callable[[Any, Any], Any]) -> Callable[..., None]:
    residual = _inlined(residual)

    def add_row(theta: Array, data: Any, c: int, j: int, row: int, weight: Any, out: Array) -> None:
        z = theta.dtype.type(0)
        for a in range(data.x.shape[1]):
            z += data.x[row, a] * theta[c, j, a]
        factor = theta.dtype.type(weight * residual(z, data.y[row]))
        for a in range(data.x.shape[1]):
            out[c, j, a] += factor * data.x[row, a]

    return _inlined(add_row)


def _compiled_rows(add_row: Callable[..., None], prior: Callable[..., None]) -> Callable[..., Array]:
    def compiled(theta, data, batch, k):  # type: ignore[no-untyped-def]
        clients, chains, _ = theta.shape
        out = np.empty_like(theta)
        for c in range(clients):
            for j in range(chains):
                prior(theta, data, c, j, out)
                for i in range(batch.drawn[c]):
                    add_row(theta, data, c, j, batch.row[k, c, j, i], batch.weight[c, i], out)
        return out

    return compiled


def _compiled_all(add_row: Callable[..., None], prior: Callable[..., None]) -> Callable[..., Array]:
    def compiled(theta, data, batch, k):  # type: ignore[no-untyped-def]
        clients, chains, _ = theta.shape
        out = np.empty_like(theta)
        for c in range(clients):
            for j in range(chains):
                prior(theta, data, c, j, out)
            for row in range(data.offsets[c], data.offsets[c + 1]):  # the rows once, whatever the number of chains
                for j in range(chains):
                    add_row(theta, data, c, j, row, 1, out)
        return out

    return compiled
