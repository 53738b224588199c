"""Gradients of generalised linear models: row `(x, y)` adds `residual(x'w, y) x` for the coefficients `w`.

Models differ in the residual and in the prior; both are given twice, for NumPy arrays and for Numba. The first `p` of
a position's entries are the coefficients; a prior may have more parameters behind them.
"""

# mypy: disable-error-code="untyped-decorator"
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
        residual: `(x'w, y)` of one row; without branches, so that several rows are computed at once.
        prior: `(theta, data, c, j, out)` writes the gradient of `w_i U0` of client `c`, chain `j`, to `out[c, j]`.
    """

    residual: Callable[[Any, Any], Any]
    prior: Callable[[Array, Any, int, int, Array], None]


def define_glm(data: type, interpreted: Terms, compiled: CompiledTerms) -> None:
    """Define `gradient` for a type of data with fields `x (rows, p)`, `y (rows,)` and `offsets (clients_here + 1,)`."""
    prior = _inlined(compiled.prior)
    add_rows = _compiled_add_rows(compiled.residual)
    define(gradient, data, Rows, interpreted=_rows(*interpreted), compiled=_compiled_rows(add_rows, prior))
    define(gradient, data, Everything, interpreted=_everything(*interpreted), compiled=_compiled_all(add_rows, prior))


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

_TILE = 64
"""Rows that a full gradient takes at once: they stay in the cache for all chains."""


def _inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    known: Callable[..., Any] = register_jitable(inline="always")(function)
    return known


@register_jitable(inline="always")
def _products(x: Array, rows: Array, count: int, theta: Array, c: int, j: int, out: Array) -> None:
    """Write `x[rows[i]]'theta[c, j]` to `out[i]`, four rows at a time: they share the loads of `theta`."""
    p, zero = x.shape[1], theta.dtype.type(0)
    for i in range(0, count - 3, 4):
        x0, x1, x2, x3 = x[rows[i]], x[rows[i + 1]], x[rows[i + 2]], x[rows[i + 3]]
        z0 = z1 = z2 = z3 = zero
        for a in range(p):
            z0 += x0[a] * theta[c, j, a]
            z1 += x1[a] * theta[c, j, a]
            z2 += x2[a] * theta[c, j, a]
            z3 += x3[a] * theta[c, j, a]
        out[i], out[i + 1], out[i + 2], out[i + 3] = z0, z1, z2, z3
    for i in range(count - count % 4, count):
        x0, z0 = x[rows[i]], zero
        for a in range(p):
            z0 += x0[a] * theta[c, j, a]
        out[i] = z0


@register_jitable(inline="always")
def _add_combination(x: Array, rows: Array, count: int, factors: Array, c: int, j: int, out: Array) -> None:
    """Add `sum_i factors[i] x[rows[i]]` to `out[c, j]`, four rows at a time: they share its loads and stores."""
    p = x.shape[1]
    for i in range(0, count - 3, 4):
        x0, x1, x2, x3 = x[rows[i]], x[rows[i + 1]], x[rows[i + 2]], x[rows[i + 3]]
        f0, f1, f2, f3 = factors[i], factors[i + 1], factors[i + 2], factors[i + 3]
        for a in range(p):
            out[c, j, a] += f0 * x0[a] + f1 * x1[a] + f2 * x2[a] + f3 * x3[a]
    for i in range(count - count % 4, count):
        x0, f0 = x[rows[i]], factors[i]
        for a in range(p):
            out[c, j, a] += f0 * x0[a]


def _compiled_add_rows(residual: Callable[[Any, Any], Any]) -> Callable[..., None]:
    residual = _inlined(residual)

    def add_rows(
        theta: Array, data: Any, c: int, j: int, rows: Array, weight: Array, count: int, room: Array, out: Array
    ) -> None:
        factors, labels = room[0], room[1]
        _products(data.x, rows, count, theta, c, j, factors)
        for i in range(count):
            labels[i] = data.y[rows[i]]  # in a loop of its own: the compiler vectorises the next one
        for i in range(count):
            factors[i] = weight[i] * residual(factors[i], labels[i])
        _add_combination(data.x, rows, count, factors, c, j, out)

    return _inlined(add_rows)


def _compiled_rows(add_rows: Callable[..., None], prior: Callable[..., None]) -> Callable[..., Array]:
    def compiled(theta, data, batch, k):  # type: ignore[no-untyped-def]
        clients, chains, _ = theta.shape
        out, room = np.empty_like(theta), np.empty((2, batch.row.shape[3]), theta.dtype)
        for c in range(clients):
            for j in range(chains):
                prior(theta, data, c, j, out)
                add_rows(theta, data, c, j, batch.row[k, c, j], batch.weight[c], batch.drawn[c], room, out)
        return out

    return compiled


def _compiled_all(add_rows: Callable[..., None], prior: Callable[..., None]) -> Callable[..., Array]:
    def compiled(theta, data, batch, k):  # type: ignore[no-untyped-def]
        clients, chains, _ = theta.shape
        out, room = np.empty_like(theta), np.empty((2, _TILE), theta.dtype)
        ones, rows = np.ones(_TILE, theta.dtype), np.empty(_TILE, np.int64)
        for c in range(clients):
            for j in range(chains):
                prior(theta, data, c, j, out)
            for first in range(data.offsets[c], data.offsets[c + 1], _TILE):
                count = min(_TILE, data.offsets[c + 1] - first)
                for i in range(count):
                    rows[i] = first + i
                for j in range(chains):
                    add_rows(theta, data, c, j, rows, ones, count, room, out)
        return out

    return compiled
