"""What one process can say of all clients together: their data, and the steps that their curvature allows."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedlangevin_mpi.algorithms.de_sghmc import DeSghmc
from fedlangevin_mpi.config import RunConfig
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.models.base import agree
from fedlangevin_mpi.topology import Topology, mixing_matrix, step_size_bound


def data_of_all(config: RunConfig, prior_weight: float = 1.0) -> Any:
    """Return what `gradient` takes, with the shards of all clients in this process.

    Args:
        config: of the run.
        prior_weight: how often the prior counts over all clients.

    Raises:
        ConfigError: `clients` is absent.
        ShardError: a shard is unreadable or does not fit the model.
    """
    if config.clients is None:
        raise ConfigError("clients: missing; allowed: their number, since no ranks tell it here")
    clients = range(config.clients)
    raw = config.data.shards(clients, config.clients, config.seed)
    standardization = config.data.standardization(config.data.moments(raw))
    shards = [config.data.prepared(shard, standardization) for shard in raw]
    facts = agree({s.client: config.model.facts(s) for s in shards}, {s.client: s.origin for s in shards})
    return config.model.pack(shards, [prior_weight / config.clients] * config.clients, facts, np.float64)


def step_size_line(config: RunConfig, topology: Topology) -> str:
    """Return one line on the step sizes that a topology and a config's clients allow DE-SGLD, or DE-SGHMC.

    Raises:
        ConfigError: `clients` is absent, or the model knows no bounds of its curvature.
        ShardError: a shard is unreadable or does not fit the model.
    """
    bounds = config.model.curvature(data_of_all(config))
    if bounds is None or config.clients is None:
        raise ConfigError(f"model.name: found {config.model.name!r}, which knows no bounds of its curvature")
    L, mu = float(bounds.largest.max()), float(bounds.smallest.min())
    friction = config.algorithm.friction if isinstance(config.algorithm, DeSghmc) else None
    bound = step_size_bound(mixing_matrix(topology, config.clients), L, mu, friction)
    sampler = "DE-SGLD" if friction is None else f"DE-SGHMC with friction {friction:g}"
    return (
        f"step size of {sampler}: the theorem holds below {bound.theory:.4g}, stable below {bound.stability:.4g} "
        f"(curvature of a client's potential {mu:.4g} to {L:.4g})"
    )
