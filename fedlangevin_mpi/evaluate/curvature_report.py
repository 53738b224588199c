"""What one process can say of all clients together: their data, and the steps that their curvature allows."""

from __future__ import annotations

from typing import Any

from fedlangevin_mpi.algorithms.de_sghmc import DeSghmc
from fedlangevin_mpi.config import RunConfig
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.evaluate.target import all_clients
from fedlangevin_mpi.topology import Topology, mixing_matrix, step_size_bound


def data_of_all(config: RunConfig) -> Any:
    """Return what `gradient` takes, with the shards of all clients in this process.

    Raises:
        ConfigError: `clients` is absent.
        ShardError: a shard is unreadable or does not fit the model.
    """
    return all_clients(config).data


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
    bound = step_size_bound(mixing_matrix(topology, config.clients, config.dropped_clients), L, mu, friction)
    sampler = "DE-SGLD" if friction is None else f"DE-SGHMC with friction {friction:g}"
    return (
        f"step size of {sampler}: the theorem holds below {bound.theory:.4g}, stable below {bound.stability:.4g} "
        f"(curvature of a client's potential {mu:.4g} to {L:.4g})"
    )
