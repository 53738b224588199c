"""A model of the user's own: `model: {name: custom, factory: "my_module:make_model", options: {...}}`.

The factory returns a `CustomModel`, with a log density in torch or with gradients in NumPy:

    def make_model(scale=1.0):
        return CustomModel(
            dim=lambda features: features,
            log_likelihood=lambda theta, x, y: -((y - x @ theta) ** 2).sum() / 2,
            log_prior=lambda theta: -(theta**2).sum() / (2 * scale**2),
        )
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from numbers import Integral
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, JsonValue, field_validator

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.models.base import Array, Facts, Model
from fedlangevin_mpi.models.custom_gradients import CustomData, define_custom, torch_slope
from fedlangevin_mpi.models.supervised import stack_rows, supervised_arrays
from fedlangevin_mpi.models.user_code import Loaded, check_unchanged, load, refused


@dataclass(frozen=True, kw_only=True)
class CustomModel:
    """A potential `U_i = w_i U0 + sum_j U_ij` by functions of one client's rows and one chain's position.

    In torch, give `log_likelihood` and `log_prior`; autograd finds the gradients, `gradient` is absent. In NumPy, give
    `gradient` and `prior_gradient`; decorate `gradient` with `numba.njit` for the compiled engine. Each function sums
    over the rows that it is given; the factor `N_i / n_i` of a minibatch and the prior's share `w_i` are applied to
    what it returns. Arrays have the run's dtype (labels too) and must not be changed.

    Attributes:
        dim: number of parameters, or a function of the number of features that returns it.
        log_likelihood: `(theta (dim,), x (n, p), y (n,))` -> scalar, up to a constant. In NumPy needed only where the
            potential itself is (`initial: map`).
        log_prior: `(theta (dim,))` -> scalar, up to a constant; absent: flat.
        gradient: `(theta (dim,), x (n, p), y (n,))` -> `(dim,)` of *minus* the log likelihood.
        prior_gradient: `(theta (dim,))` -> `(dim,)` of *minus* the log prior; absent: flat.
        predict: `(theta (dim,), x (n, p))` -> `(n, classes)` probabilities or `(n,)` means; absent: no predictions.
        parameters: shape of every named parameter, in the order in which they lie in `theta`; absent: one vector.

    Raises:
        TypeError: what should be a function is not callable.
        ValueError: functions are missing that belong to those given.
    """

    dim: int | Callable[[int], int]
    log_likelihood: Callable[[Any, Any, Any], Any] | None = None
    log_prior: Callable[[Any], Any] | None = None
    gradient: Callable[[Any, Any, Any], Any] | None = None
    prior_gradient: Callable[[Any], Any] | None = None
    predict: Callable[[Any, Any], Any] | None = None
    parameters: Mapping[str, tuple[int, ...]] | None = None

    def __post_init__(self) -> None:
        for name in ("log_likelihood", "log_prior", "gradient", "prior_gradient", "predict"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise TypeError(f"{name} is {function!r}; allowed: a function, or None")
        if self.gradient is None and self.log_likelihood is None:
            raise ValueError("neither gradient (NumPy) nor log_likelihood (torch) is given; allowed: one at least")
        if self.gradient is None and self.prior_gradient is not None:
            raise ValueError("prior_gradient is given without gradient; allowed: both, or log densities in torch")
        if self.gradient is not None and self.log_prior is not None and self.prior_gradient is None:
            raise ValueError("log_prior and gradient are given without prior_gradient; the prior would not be sampled")
        if self.log_likelihood is not None and self.prior_gradient is not None and self.log_prior is None:
            raise ValueError("log_likelihood and prior_gradient are given without log_prior; the potential lacks it")


class Custom(Model):
    """A model of the user's own (module's docstring). Only the module that `factory` names is imported."""

    summary: ClassVar[str] = "a model of your own: a factory that returns gradients (NumPy) or a log density (torch)"

    name: Literal["custom"] = "custom"
    factory: Annotated[
        str,
        Field(
            description="module:function that returns a fedlangevin_mpi.CustomModel; the module lies in the current "
            "directory or is installed"
        ),
    ]
    options: Annotated[
        dict[str, JsonValue], Field(description="keyword arguments of the factory", default_factory=dict)
    ]

    @field_validator("factory")
    @classmethod
    def _names_a_function(cls, factory: str) -> str:
        if not re.fullmatch(r"\w+(\.\w+)*:\w+", factory):
            raise ValueError(f"found {factory!r}; allowed: module:function, as my_module:make_model")
        return factory

    def facts(self, shard: Shard) -> Facts:
        """Check `x (n, p)` and `y (n,)`."""
        x, _ = supervised_arrays(shard)
        return Facts(features=x.shape[1])

    def dimension(self, facts: Facts) -> int:
        """Return what the user's `dim` says.

        Raises:
            ConfigError: the factory fails, or `dim` is not a positive integer.
        """
        dim: Any = self._model.dim
        try:
            dim = dim(facts.features) if callable(dim) else dim
        except Exception as error:
            raise self._refused(f"dim({facts.features}) raised", error) from error
        if not isinstance(dim, Integral) or dim < 1:
            raise self._refused(f"dim is {dim!r}; allowed: a positive integer")
        return int(dim)

    def parameters(self, facts: Facts) -> dict[str, tuple[int, ...]]:
        """Return the user's shapes, or one vector `theta`.

        Raises:
            ConfigError: the factory fails, or the shapes do not add up to `dim`.
        """
        dim = self.dimension(facts)
        shapes = {name: tuple(shape) for name, shape in (self._model.parameters or {"theta": (dim,)}).items()}
        if (total := sum(prod(shape) for shape in shapes.values())) != dim:
            raise self._refused(f"parameters {shapes} have {total} entries; allowed: dim = {dim}")
        return shapes

    def pack(self, shards: Sequence[Shard], prior_weights: Sequence[float], facts: Facts, dtype: Any) -> CustomData:
        """Return the shards' rows, as the type whose gradient is the user's.

        Raises:
            ConfigError: the factory fails, or a gradient of two rows does.
        """
        x, y, offsets = stack_rows(shards, dtype)
        self._try(np.zeros(self.dimension(facts), dtype), x[:2], y[:2])
        kind = define_custom(self._model, self._loaded.fingerprint)
        return kind(x, y, offsets, np.asarray(prior_weights, dtype))

    def potential(self, theta: Array, data: CustomData) -> Array:
        """Return `U_i` up to a constant.

        Raises:
            ConfigError: the user gave gradients only.
        """
        if self._model.log_likelihood is None:
            raise self._refused("it gives gradients only; log_likelihood and log_prior are needed here")
        log_prior = self._model.log_prior or (lambda _: 0.0)
        result = np.empty(theta.shape[:2], theta.dtype)
        for c, j in np.ndindex(result.shape):
            rows = slice(data.offsets[c], data.offsets[c + 1])
            position, x, y = (self._argument(array) for array in (theta[c, j], data.x[rows], data.y[rows]))
            value = self._model.log_likelihood(position, x, y)
            result[c, j] = -float(value) - data.prior_weight[c] * float(log_prior(position))
        return result

    def prior_draws(self, generator: np.random.Generator, chains: int, dim: int) -> None:
        """Return None: the prior is known by its density only."""
        return

    def predict(self, positions: Array, x: Array, facts: Facts) -> Array | None:
        """Return the user's predictions at every position, or None where there are none.

        Raises:
            ConfigError: they have the wrong shape.
        """
        if self._model.predict is None:
            return None
        rows = self._argument(np.asarray(x, positions.dtype))
        result = np.stack([_as_array(self._model.predict(self._argument(theta), rows)) for theta in positions])
        if result.ndim not in (2, 3) or result.shape[1] != len(x):
            allowed = f"({len(x)},) or ({len(x)}, classes)"
            raise self._refused(f"predict returned shape {result.shape[1:]} for {len(x)} rows; allowed: {allowed}")
        return result

    def fingerprint(self) -> str:
        """Return a hash of the user's module, of what it imported from the same folder, and of the options.

        Raises:
            ConfigError: the factory fails, or a source was edited after this process imported it.
        """
        check_unchanged("model.factory", self.factory, self._loaded)
        return self._loaded.fingerprint

    @property
    def _loaded(self) -> Loaded:
        loaded = load("model.factory", self.factory, json.dumps(self.options, sort_keys=True))
        if not isinstance(loaded.value, CustomModel):
            kind = type(loaded.value).__name__
            raise self._refused(f"it returned {kind}; allowed: fedlangevin_mpi.CustomModel")
        return loaded

    @property
    def _model(self) -> CustomModel:
        model: CustomModel = self._loaded.value
        return model

    def _argument(self, array: Array) -> Any:
        if self._model.gradient is not None:
            return array
        import torch

        return torch.tensor(array)

    def _try(self, theta: Array, x: Array, y: Array) -> None:
        """Evaluate the gradient once: what is wrong with it is said now, not in the middle of a run."""
        if self._model.gradient is None:
            try:
                torch_slope(self._model)(theta, x, y, 1.0, 1.0)
            except ImportError as error:
                raise self._refused("without gradient it needs torch: pip install 'fedlangevin_mpi[torch]'") from error
            except Exception as error:
                raise self._refused("torch cannot differentiate its log density", error) from error
            return
        calls = (
            ("gradient", self._model.gradient, (theta, x, y)),
            ("prior_gradient", self._model.prior_gradient, (theta,)),
        )
        for name, function, arguments in calls:
            if function is None:
                continue
            try:
                with np.errstate(all="ignore"):
                    shape = np.shape(getattr(function, "py_func", function)(*arguments))  # not compiled for one call
            except Exception as error:
                raise self._refused(f"{name} raised", error) from error
            if shape != theta.shape:
                raise self._refused(f"{name} returned shape {shape}; allowed: {theta.shape}")

    def _refused(self, problem: str, error: Exception | None = None) -> ConfigError:
        return refused("model.factory", self.factory, problem, error)


def _as_array(value: Any) -> Array:
    return np.asarray(value.detach() if hasattr(value, "detach") else value)
