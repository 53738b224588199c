"""Gradients of a user's own model, whose functions take one client's rows and one chain's position at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedlangevin_mpi.generic import Everything, Rows, define, gradient
from fedlangevin_mpi.models.base import Array

if TYPE_CHECKING:
    from fedlangevin_mpi.models.custom import CustomModel

Slope = Callable[[Array, Array, Array, Any, Any], Array]
"""`(theta (d,), x (n, p), y (n,), scale, prior_weight) -> scale sum_j grad U_j + prior_weight grad U0`, `(d,)`."""

_PREFIX = "CustomData_"


class CustomData(NamedTuple):
    """The rows of the clients here. Every model of a user's has a subclass, since `gradient` chooses by type.

    Attributes:
        x: `(rows, p)`.
        y: `(rows,)`.
        offsets: `(clients_here + 1,)` client c owns the rows from `offsets[c]` to `offsets[c + 1] - 1`.
        prior_weight: `(clients_here,)` `w_i`.
    """

    x: Array
    y: Array
    offsets: Array
    prior_weight: Array


def __getattr__(name: str) -> type[CustomData]:
    # Numba's cache on disk names the types of the arguments, those of models that this process has not loaded too.
    if not name.startswith(_PREFIX):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    kind = type(name, (CustomData,), {"__module__": __name__, "__slots__": ()})
    globals()[name] = kind
    return kind


def define_custom(model: CustomModel, fingerprint: str) -> type[CustomData]:
    """Return the type of data for which `gradient` means this model's gradient."""
    name = _PREFIX + fingerprint[:24]
    kind: type[CustomData] = globals().get(name) or __getattr__(name)
    interpreted = _interpreted(numpy_slope(model) if model.gradient else torch_slope(model))
    rows, everything = _compiled(model) if is_compiled(model.gradient) else (None, None)
    define(gradient, kind, Rows, interpreted=interpreted, compiled=rows)
    define(gradient, kind, Everything, interpreted=interpreted, compiled=everything)
    return kind


def is_compiled(function: Any) -> bool:
    """Return whether the user decorated a function with `numba.njit`."""
    return hasattr(function, "py_func")


def numpy_slope(model: CustomModel) -> Slope:
    """Return the slope from the user's gradients."""
    likelihood, prior = model.gradient, model.prior_gradient or _flat
    assert likelihood is not None

    def slope(theta: Array, x: Array, y: Array, scale: Any, prior_weight: Any) -> Array:
        result: Array = scale * likelihood(theta, x, y) + prior_weight * prior(theta)
        return result

    return slope


def torch_slope(model: CustomModel) -> Slope:
    """Return the slope by automatic differentiation of the user's log density."""
    import torch

    def slope(theta: Array, x: Array, y: Array, scale: Any, prior_weight: Any) -> Array:
        position = torch.from_numpy(theta).requires_grad_()
        assert model.log_likelihood is not None
        value = float(scale) * model.log_likelihood(position, torch.from_numpy(x), torch.from_numpy(y))
        if model.log_prior is not None:
            value = value + float(prior_weight) * model.log_prior(position)
        (result,) = torch.autograd.grad(-value, position)
        array: Array = result.numpy()
        return array

    return slope


def _interpreted(slope: Slope) -> Callable[..., Array]:
    def interpreted(theta: Array, data: CustomData, batch: Rows | Everything, k: int) -> Array:
        out = np.empty_like(theta)
        for c, j in np.ndindex(theta.shape[:2]):
            rows: Any = slice(data.offsets[c], data.offsets[c + 1])
            scale = 1.0
            if isinstance(batch, Rows):
                rows, scale = batch.row[k, c, j, : batch.drawn[c]], batch.weight[c, 0]
            out[c, j] = slope(theta[c, j], data.x[rows], data.y[rows], scale, data.prior_weight[c])
        return out

    return interpreted


def _compiled(model: CustomModel) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Return the texts for `Rows` and `Everything` that call the user's functions."""
    import numba

    likelihood, prior = model.gradient, model.prior_gradient or _flat
    assert likelihood is not None
    if not is_compiled(prior):
        prior = numba.njit(prior)

    def rows(theta, data, batch, k):  # type: ignore[no-untyped-def]  # compiled by Numba
        clients, chains, _ = theta.shape
        n, p = batch.row.shape[3], data.x.shape[1]
        x, y = np.empty((n, p), data.x.dtype), np.empty(n, data.y.dtype)
        out = np.empty_like(theta)
        for c in range(clients):
            drawn = batch.drawn[c]
            for j in range(chains):
                for i in range(drawn):
                    row = batch.row[k, c, j, i]
                    x[i], y[i] = data.x[row], data.y[row]
                slope = batch.weight[c, 0] * likelihood(theta[c, j], x[:drawn], y[:drawn])
                out[c, j] = slope + data.prior_weight[c] * prior(theta[c, j])
        return out

    def everything(theta, data, batch, k):  # type: ignore[no-untyped-def]  # compiled by Numba
        clients, chains, _ = theta.shape
        out = np.empty_like(theta)
        for c in range(clients):
            x = data.x[data.offsets[c] : data.offsets[c + 1]]
            y = data.y[data.offsets[c] : data.offsets[c + 1]]
            for j in range(chains):
                out[c, j] = likelihood(theta[c, j], x, y) + data.prior_weight[c] * prior(theta[c, j])
        return out

    return rows, everything


def _flat(theta: Array) -> Array:
    return np.zeros_like(theta)
