"""The protocol of a model: what it needs of the shards, its potential, its prior and its predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.errors import ShardError

Array = np.ndarray[Any, np.dtype[Any]]

PriorScale = Annotated[
    float, Field(gt=0, allow_inf_nan=True, description="standard deviation of the N(0, s^2 I) prior; inf: flat")
]


class Facts(NamedTuple):
    """What the ranks must agree on about all shards before a position has a shape.

    Attributes:
        features: columns of `x`, or the dimension of a Gaussian potential.
        classes: labels run from 0 to `classes - 1`; 0 where there are none.
    """

    features: int
    classes: int = 0


class Curvature(NamedTuple):
    """Bounds of the eigenvalues of the Hessian of every `U_i` here, over all positions.

    Attributes:
        smallest: `(clients_here,)` mu_i, 0 where `U_i` is convex but not strongly.
        largest: `(clients_here,)` L_i.
    """

    smallest: Array
    largest: Array


class Model(BaseModel):
    """A family of potentials `U_i = w_i U0 + sum_j U_ij`. A subclass is one choice of `model.name`.

    `U0` is the negative log prior, counted once over all clients (`sum_i w_i = 1`); `U_ij` the negative log
    likelihood of row `j` of client `i`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    summary: ClassVar[str]
    """One line for `fedlangevin list models`."""

    has_rows: ClassVar[bool] = True
    """Whether a shard is a set of rows that can be subsampled."""

    name: str

    def facts(self, shard: Shard) -> Facts:
        """Check one shard and return what it says about the model's shape.

        Raises:
            ShardError: an array is missing, has the wrong shape, or holds a value the model does not admit.
        """
        raise NotImplementedError

    def dimension(self, facts: Facts) -> int:
        """Return the number of parameters."""
        raise NotImplementedError

    def parameters(self, facts: Facts) -> dict[str, tuple[int, ...]]:
        """Return the shape of every named parameter, in the order in which they lie in a position."""
        raise NotImplementedError

    def pack(self, shards: Sequence[Shard], prior_weights: Sequence[float], facts: Facts, dtype: Any) -> Any:
        """Return the NamedTuple that `gradient` takes: the shards of this rank's clients, one behind the other.

        Args:
            shards: of the clients here, in order.
            prior_weights: their `w_i`.
            facts: of all clients.
            dtype: of the run's positions.
        """
        raise NotImplementedError

    def prior_only(self, facts: Facts, dtype: Any) -> Any:
        """Return the data of one client without a likelihood, whose potential is the whole `U0`, as `pack` would.

        With `pack` and weight 0, it gives the gradients of likelihood and prior apart.
        """
        if not self.has_rows:
            raise NotImplementedError
        empty = Shard(-1, {"x": np.empty((0, facts.features)), "y": np.empty(0)}, "prior")
        return self.pack([empty], [1.0], facts, dtype)

    def normal_prior(self, facts: Facts) -> tuple[Array, Array] | None:
        """Return mean `(d,)` and precision of a Gaussian prior, None of another.

        The precision is a matrix `(d, d)` or, of independent parameters, its diagonal `(d,)`; 0 where it is flat.
        """
        return None

    def potential(self, theta: Array, data: Any) -> Array:
        """Return `U_i` at `theta (clients_here, chains, dim)`, as `(clients_here, chains)`."""
        raise NotImplementedError

    def curvature(self, data: Any) -> Curvature | None:
        """Return bounds of the potentials' curvature, or None where none are known or potentials are not convex."""
        return None

    def quadratic(self, data: Any) -> tuple[Array, Array] | None:
        """Return `m (clients_here, d)` and `H (clients_here, d, d)` where `U_i` is `1/2 (x - m_i)' H_i (x - m_i)`.

        None for a model whose potentials are not quadratic: its samplers have no exact laws.
        """
        return None

    def prior_draws(self, generator: np.random.Generator, chains: int, dim: int) -> Array | None:
        """Return `(chains, dim)` draws of the prior, or None where it is flat."""
        raise NotImplementedError

    def own_draws(self, generator: np.random.Generator, chains: int, facts: Facts) -> Array | None:
        """Return `(chains, dim)` starts of the model's own, or None where it has none."""
        return None

    def predict(self, positions: Array, x: Array, facts: Facts) -> Array | None:
        """Return the predictive of every position, or None where the model predicts nothing.

        Args:
            positions: `(draws, dim)`.
            x: `(n, p)` features.
            facts: of the run.

        Returns:
            `(draws, n, classes)` probabilities for a classifier; `(draws, n)` means for a regression.
        """
        return None

    def predict_kde(self, positions: Array, x: Array, facts: Facts, bandwidth: float) -> Array | None:
        """Return the predictive of `N(position, bandwidth^2 I)` around every position; None where it is not known.

        It is what a kernel density estimate of the posterior predicts. Arguments and result as of `predict`.
        """
        return None

    def predictive_noise(self, positions: Array) -> Array | None:
        """Return the standard deviation of a target given its mean at `positions (draws, dim)`, `(draws, 1)`.

        None for a classifier, and for a model that does not say.
        """
        return None

    def predictive_positions(self, dim: int, rows: int) -> int:
        """Return the most positions whose predictions of `rows` rows are averaged for a run's metrics."""
        return 10_000

    def coordinates(self, facts: Facts, features: Sequence[str] | None) -> dict[str, list[str] | None]:
        """Return labels along an axis of every parameter: the features' names, where one has an axis of features."""
        shapes = self.parameters(facts)
        return {name: list(features) if features and len(features) in shape else None for name, shape in shapes.items()}

    def fingerprint(self) -> str:
        """Return what besides this package's sources decides the gradient's code: of a user's model, its sources."""
        return ""

    def rows(self, shard: Shard) -> int:
        """Return how many rows a shard has; 0 for a model without rows."""
        return len(shard.arrays["y"]) if self.has_rows else 0


def agree(all_facts: Mapping[int, Facts], origins: Mapping[int, str]) -> Facts:
    """Return the facts of all clients together; every client must have the same number of features.

    Raises:
        ShardError: a client differs from the first.
    """
    first = min(all_facts)
    features = all_facts[first].features
    for client, facts in sorted(all_facts.items()):
        if facts.features != features:
            problem = f"has dimension {facts.features}, but client {first} has {features}; allowed: one for all"
            raise ShardError(client, origins[client], problem)
    return Facts(features, max(facts.classes for facts in all_facts.values()))


def array_of(shard: Shard, name: str) -> Array:
    """Return one array of a shard.

    Raises:
        ShardError: the shard has no such array.
    """
    if name not in shard.arrays:
        found = ", ".join(sorted(shard.arrays)) or "nothing"
        raise ShardError(shard.client, shard.origin, f"array {name!r} is missing; found: {found}")
    return shard.arrays[name]
