"""A Bayesian neural network: any torch module, its parameters under a Gaussian prior.

    model: {name: network, module: "my_module:MyNet", likelihood: categorical}
    model: {name: network, module: mlp, options: {hidden: [100], activation: tanh}, likelihood: gaussian}

The module's forward takes rows `(n, p)`, or `(n, *input_shape)`, and returns `(n, classes)` logits, or `(n, 1)` means.
Every parameter that requires a gradient is sampled; the others, and buffers, are constants, made from the same random
numbers on all ranks. Batch statistics, dropout and whatever else makes a row's likelihood random or dependent on other
rows is refused: `exp(-U)` would not be the posterior.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, JsonValue, field_validator, model_validator

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.generic import AugmentedRows, Everything, Rows, define, gradient
from fedlangevin_mpi.models.base import Array, Facts, Model, PriorScale
from fedlangevin_mpi.models.supervised import (
    check_labels,
    gaussian_prior_draws,
    gaussian_prior_potential,
    gaussian_prior_precision,
    isotropic_normal,
    stack_rows,
    supervised_arrays,
)
from fedlangevin_mpi.models.user_code import Loaded, check_unchanged, load, refused
from fedlangevin_mpi.networks.device import current

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedlangevin_mpi.networks.flat import FlatNetwork
    from fedlangevin_mpi.networks.likelihoods import Likelihood

_KEY = "model.module"
_BUILT_IN = ("lenet5", "mlp", "resnet20")
_IMAGES = ("lenet5", "resnet20")
_PREDICTED = 10**10
"""Parameters times rows times positions of a predictive: LeNet-5 takes about 10 s for as many on 1,000 images."""


class NetworkData(NamedTuple):
    """The rows of the clients here.

    Attributes:
        x: `(rows, p)`.
        y: `(rows,)` labels as integers, or targets.
        offsets: `(clients_here + 1,)` client c owns the rows from `offsets[c]` to `offsets[c + 1] - 1`.
        prior_precision: `(clients_here,)` `w_i / s^2`.
        network: whose losses are the negative log likelihood.
    """

    x: Array
    y: Array
    offsets: Array
    prior_precision: Array
    network: FlatNetwork


class Network(Model):
    """`U_ij(theta)` is a module's loss of row j, `U0 = |theta|^2 / (2 prior_scale^2)` (module's docstring)."""

    summary: ClassVar[str] = "a neural network: mlp, lenet5, resnet20 or a torch module of your own"

    name: Literal["network"] = "network"
    module: Annotated[
        str,
        Field(
            description="mlp, lenet5, resnet20, or module:Class of a torch.nn.Module of your own, in the current "
            "directory or installed"
        ),
    ]
    options: Annotated[
        dict[str, JsonValue],
        Field(
            description="keyword arguments of the module: of mlp, hidden (list of units) and activation (gelu, relu, "
            "sigmoid, tanh); of resnet20, groups",
            default_factory=dict,
        ),
    ]
    input_shape: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...] | None,
        Field(
            min_length=1,
            description="shape of a row as the module takes it, as [1, 28, 28]; absent: (p,), and for lenet5 and "
            "resnet20 a square image of 1 or 3 channels",
        ),
    ] = None
    likelihood: Annotated[
        Literal["categorical", "gaussian"],
        Field(description="of y: categorical takes the module's outputs for logits, gaussian its output for the mean"),
    ] = "categorical"
    classes: Annotated[
        int | None, Field(ge=2, description="labels are 0 to classes - 1; absent: as many as all clients' labels need")
    ] = None
    noise_scale: Annotated[
        Annotated[float, Field(gt=0)] | Literal["learned"],
        Field(
            description="of likelihood gaussian: standard deviation of y given its mean, in its units; learned: its "
            "logarithm is one more parameter, under the same prior"
        ),
    ] = 1.0
    prior_scale: Annotated[PriorScale | None, Field(description="absent: 1, unless weight_decay is given")] = None
    weight_decay: Annotated[
        float | None, Field(gt=0, description="the prior's precision 1 / prior_scale^2, in place of prior_scale")
    ] = None

    @field_validator("module")
    @classmethod
    def _names_a_module(cls, module: str) -> str:
        if module not in _BUILT_IN and not re.fullmatch(r"\w+(\.\w+)*:\w+", module):
            raise ValueError(f"found {module!r}; allowed: {', '.join(_BUILT_IN)}, or module:Class as my_module:MyNet")
        return module

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.prior_scale is not None and self.weight_decay is not None:
            raise ValueError("found prior_scale and weight_decay; allowed: one of them")
        if self.likelihood == "gaussian" and self.classes is not None:
            raise ValueError(f"classes: found {self.classes}; allowed: absent, since likelihood gaussian has none")
        if self.likelihood == "categorical" and self.noise_scale != 1:
            raise ValueError(f"noise_scale: found {self.noise_scale}; allowed: absent with likelihood categorical")
        return self

    def facts(self, shard: Shard) -> Facts:
        """Check `x (n, p)` and the labels or targets `y (n,)`."""
        x, y = supervised_arrays(shard)
        if self.likelihood == "gaussian":
            return Facts(features=x.shape[1])
        found = check_labels(shard, y, self.classes)
        return Facts(features=x.shape[1], classes=self.classes or max(found, 2))

    def dimension(self, facts: Facts) -> int:
        """Return how many numbers the module's parameters hold.

        Raises:
            ConfigError: the module cannot be made, or is not one that can be sampled.
        """
        return _made(self.model_dump_json(), facts, "float32", "cpu").dim

    def parameters(self, facts: Facts) -> dict[str, tuple[int, ...]]:
        """Return the module's parameters, named as it names them, in its order."""
        return dict(_made(self.model_dump_json(), facts, "float32", "cpu").shapes)

    def pack(self, shards: Sequence[Shard], prior_weights: Sequence[float], facts: Facts, dtype: Any) -> NetworkData:
        """Return the shards' rows with the module.

        Raises:
            ConfigError: the module cannot be made, is not one that can be sampled, or fails for some of these rows.
        """
        network = self._network(facts, np.dtype(dtype).name)
        x, y, offsets = stack_rows(shards, dtype)
        if len(x):  # a server's prior has none
            self._try(network, facts, x[:4])
        y = y if self.likelihood == "gaussian" else y.astype(np.int64)
        return NetworkData(x, y, offsets, gaussian_prior_precision(prior_weights, self._scale, dtype), network)

    def potential(self, theta: Array, data: NetworkData) -> Array:
        """Return `U_i` up to a constant."""
        return data.network.losses(theta, data) + gaussian_prior_potential(theta, data)

    def normal_prior(self, facts: Facts) -> tuple[Array, Array]:
        """Return `N(0, prior_scale^2 I)`."""
        return isotropic_normal(self.dimension(facts), self._scale)

    def prior_draws(self, generator: np.random.Generator, chains: int, dim: int) -> Array | None:
        """Return draws of `N(0, prior_scale^2 I)`."""
        return gaussian_prior_draws(generator, chains, dim, self._scale)

    def own_draws(self, generator: np.random.Generator, chains: int, facts: Facts) -> Array:
        """Return the parameters of modules as they are made, each from random numbers of its own, `(chains, dim)`."""
        import torch

        network, made = self._network(facts), []
        with torch.random.fork_rng(devices=[]):
            for seed in generator.integers(2**32, size=chains):
                torch.manual_seed(int(seed))
                made.append(network.position_of(self._factory(facts)()).numpy())
        return np.stack(made)

    def predict(self, positions: Array, x: Array, facts: Facts) -> Array:
        """Return the classes' probabilities `(draws, n, classes)`, or the means `(draws, n)`."""
        dtype = positions.dtype
        network = self._network(facts, dtype.name)
        return network.predict(np.ascontiguousarray(positions), np.ascontiguousarray(x, dtype))

    def predictive_noise(self, positions: Array) -> Array | None:
        """Return the noise's standard deviation at every position, or None of a classifier."""
        if self.likelihood == "categorical":
            return None
        if self.noise_scale == "learned":
            with np.errstate(over="ignore"):  # far from any mode
                return np.exp(positions[:, -1:])
        return np.full((len(positions), 1), self.noise_scale)

    def predictive_positions(self, dim: int, rows: int) -> int:
        """Return at how many positions, 100 to 10,000, predictions are made: a network's are slow."""
        return min(max(_PREDICTED // (dim * rows), 100), super().predictive_positions(dim, rows))

    def coordinates(self, facts: Facts, features: Sequence[str] | None) -> dict[str, list[str] | None]:
        """Return the features' names along the inputs of a matrix of weights that has them all."""
        shapes = self.parameters(facts)
        of_features = {name for name, shape in shapes.items() if len(shape) == 2 and shape[1] == facts.features}
        return {name: list(features) if features and name in of_features else None for name in shapes}

    def fingerprint(self) -> str:
        """Return a hash of the user's module, of what it imported from the same folder, and of the options.

        Raises:
            ConfigError: it cannot be imported, or a source was edited after this process imported it.
        """
        if self.module in _BUILT_IN:
            return ""
        check_unchanged(_KEY, self.module, self._loaded)
        return self._loaded.fingerprint

    @property
    def _scale(self) -> float:
        if self.weight_decay is not None:
            return 1 / math.sqrt(self.weight_decay)
        return 1.0 if self.prior_scale is None else self.prior_scale

    @property
    def _loaded(self) -> Loaded:
        return load(_KEY, self.module, json.dumps(self.options, sort_keys=True))

    def _network(self, facts: Facts, dtype: str = "float32") -> FlatNetwork:
        return _made(self.model_dump_json(), facts, dtype, current())

    def _likelihood(self, facts: Facts) -> Likelihood:
        from fedlangevin_mpi.networks.likelihoods import Categorical, Gaussian

        if self.likelihood == "categorical":
            return Categorical(facts.classes)
        return Gaussian(None if self.noise_scale == "learned" else self.noise_scale)

    def _factory(self, facts: Facts) -> Callable[[], nn.Module]:
        """Return what makes the module, with parameters from torch's generator."""
        if self.module not in _BUILT_IN:
            return self._loaded.make
        from fedlangevin_mpi.networks.architectures import ARCHITECTURES

        outputs = facts.classes if self.likelihood == "categorical" else 1
        return partial(ARCHITECTURES[self.module], self.row_shape(facts), outputs, **self.options)

    def row_shape(self, facts: Facts) -> tuple[int, ...]:
        """Return the shape of a row as the module takes it.

        Raises:
            ConfigError: it has another number of features.
        """
        p = facts.features
        shape = self.input_shape or (_image(p) if self.module in _IMAGES else (p,))
        if math.prod(shape) != p:
            raise ConfigError(f"model.input_shape: found {list(shape)} for rows of {p} numbers; allowed: as many")
        return shape

    def _make(self, facts: Facts, dtype: str, device: str) -> FlatNetwork:
        try:
            import torch

            from fedlangevin_mpi.networks.checks import problem_of_module
            from fedlangevin_mpi.networks.flat import FlatNetwork
            from fedlangevin_mpi.networks.memory import keep_freed_memory
        except ImportError as error:
            raise self._refused("it needs torch: pip install 'fedlangevin_mpi[torch]'", error) from error
        shape = self.row_shape(facts)
        factory = self._factory(facts)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # what is not sampled is the same on all ranks
            try:
                module = factory()
            except Exception as error:
                raise self._refused("making it raised", error) from error
        if problem := problem_of_module(module):
            raise self._refused(problem)
        keep_freed_memory()
        return FlatNetwork(module, self._likelihood(facts), shape, np.dtype(dtype), device)

    def _try(self, network: FlatNetwork, facts: Facts, x: Array) -> None:
        """Evaluate the module on some rows: what is wrong with it is said now, not in the middle of a run."""
        from fedlangevin_mpi.networks.checks import problem_of_outputs

        try:
            problem = problem_of_outputs(network, self._likelihood(facts), x)
        except Exception as error:
            raise self._refused(f"forward of rows of shape {(len(x), *self.row_shape(facts))} raised", error) from error
        if problem:
            raise self._refused(problem)
        network.probe(x)

    def _refused(self, problem: str, error: Exception | None = None) -> ConfigError:
        return refused(_KEY, self.module, problem, error)


@cache
def _made(model: str, facts: Facts, dtype: str, device: str) -> FlatNetwork:
    return Network.model_validate_json(model)._make(facts, dtype, device)


def _image(p: int) -> tuple[int, ...]:
    """Return the shape of a square image of `p` numbers, grey or in three colours."""
    for channels in (1, 3):
        side = math.isqrt(p // channels)
        if channels * side**2 == p:
            return channels, side, side
    raise ConfigError(f"model.input_shape: missing for rows of {p} numbers, which are no square image; allowed: a list")


def _rows(theta: Array | Tensor, data: NetworkData, batch: Rows | AugmentedRows, k: int) -> Array | Tensor:
    return data.network.gradient_of_rows(theta, data, batch, k)


def _everything(theta: Array | Tensor, data: NetworkData, batch: Everything, k: int) -> Array | Tensor:
    return data.network.gradient_of_all(theta, data)


define(gradient, NetworkData, Rows, interpreted=_rows)
define(gradient, NetworkData, AugmentedRows, interpreted=_rows)
define(gradient, NetworkData, Everything, interpreted=_everything)
