"""The posterior of all clients in one process: its data, its density and its score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedlangevin_mpi.algorithms.base import Method
from fedlangevin_mpi.algorithms.serving import Serving
from fedlangevin_mpi.config import RunConfig
from fedlangevin_mpi.data.standardize import Standardization
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.generic import Everything, gradient
from fedlangevin_mpi.models.base import Facts, agree

Array = np.ndarray[Any, np.dtype[Any]]


class AllClients(NamedTuple):
    """What one process holds of all clients.

    Attributes:
        data: what `gradient` takes, float64.
        facts: of all shards.
        features: names of the columns of `x`, where they are known.
        standardization: of the features, where there is one.
    """

    data: Any
    facts: Facts
    features: tuple[str, ...] | None
    standardization: Standardization | None


class Target(NamedTuple):
    """The law that a config's algorithm is after, at its temperature.

    Attributes:
        clients: all of them.
        dim: of a position.
        log_density: maps positions `(n, dim)` to `(n,)`, up to a constant.
        score: maps positions `(n, dim)` to the gradient of the log density there, `(n, dim)`.
    """

    clients: AllClients
    dim: int
    log_density: Callable[[Array], Array]
    score: Callable[[Array], Array]


def all_clients(config: RunConfig, prior_weight: float = 1.0) -> AllClients:
    """Read the shards of all clients into this process.

    Args:
        config: of the run.
        prior_weight: how often the prior counts over all clients.

    Raises:
        ConfigError: `clients` is absent.
        ShardError: a shard is unreadable or does not fit the model.
    """
    if config.clients is None:
        raise ConfigError("clients: missing; allowed: their number, since no ranks tell it here")
    raw = config.data.shards(config.taking_part(config.clients), config.clients, config.seed)
    standardization = config.data.standardization(config.data.moments(raw))
    shards = [config.data.prepared(shard, standardization) for shard in raw]
    facts = agree({s.client: config.model.facts(s) for s in shards}, {s.client: s.origin for s in shards})
    data = config.model.pack(shards, [prior_weight / len(shards)] * len(shards), facts, np.float64)
    return AllClients(data, facts, shards[0].features, standardization)


def prior_weight(algorithm: Method) -> float:
    """Return how often the prior counts in U, of the target `exp(-U / T)`.

    A server's temperature is alpha of generalised Bayes, which leaves the prior as it is: T times.
    """
    return algorithm.temperature if isinstance(algorithm, Serving) else 1.0


def target_of(config: RunConfig) -> Target:
    """Return the law that a config's algorithm is after, `exp(-U / T)`; with a server `p_0 exp(-L / T)`.

    Raises:
        ConfigError: `clients` is absent.
        ShardError: a shard is unreadable or does not fit the model.
    """
    temperature = getattr(config.algorithm, "temperature", 1.0)
    clients = all_clients(config, prior_weight(config.algorithm))
    count = len(config.taking_part(config.clients or 1))

    def log_density(x: Array) -> Array:
        result: Array = -config.model.potential(_for_all(x, count), clients.data).sum(0) / temperature
        return result

    def score(x: Array) -> Array:
        result: Array = -gradient(_for_all(x, count), clients.data, Everything(count), 0).sum(0) / temperature
        return result

    return Target(clients, config.model.dimension(clients.facts), log_density, score)


def _for_all(x: Array, clients: int) -> Array:
    """Return positions `(n, dim)` for every client, as models take them."""
    return np.ascontiguousarray(np.broadcast_to(x, (clients, *x.shape)), np.float64)
