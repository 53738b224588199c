"""From a config to what a run holds on this rank: shards, the model's data, where chains start. Agreed by all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedlangevin_mpi.algorithms.serving import Serving, Target
from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.config import RunConfig
from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.data.standardize import Standardization
from fedlangevin_mpi.errors import ConfigError, ShardError
from fedlangevin_mpi.models.base import Facts, agree
from fedlangevin_mpi.models.network import Network
from fedlangevin_mpi.runtime.checkpoint import Snapshot
from fedlangevin_mpi.runtime.initial import initial_positions
from fedlangevin_mpi.runtime.placement import Placement, placement_of
from fedlangevin_mpi.topology.scheduled import Mixing, mixing_of

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Prepared:
    """What a rank holds before its first iteration.

    Attributes:
        config: of the run.
        placement: who hosts whom.
        clients: hosted here, by their places among those that take part.
        numbers: of the clients here, which tell them from all others for good.
        facts: of all shards.
        dim: parameters.
        sizes: `N_i` of the clients here; zeros for a model without rows.
        data: what `gradient` takes; with a server, a `Target` a client here.
        example: of the type of what `gradient` takes; with a server, the `Target` of an agent that has no rows.
        theta: `(clients_here, chains, dim)` positions to begin with; with a server, `(1, particles, dim)` on all ranks.
        checksums: `(clients_here,)` of the shards.
        features: names of the columns of `x`, where they are known.
        standardization: of the features, where there is one.
        mixing: the mixing matrices, of an algorithm that gossips.
    """

    config: RunConfig
    placement: Placement
    clients: range
    numbers: list[int]
    facts: Facts
    dim: int
    sizes: list[int]
    data: Any
    example: Any
    theta: Array
    checksums: Array
    features: tuple[str, ...] | None
    standardization: Standardization | None
    mixing: Mixing | None

    def notes(self) -> list[str]:
        """Return what a user should be told before the run."""
        found = self.config.algorithm.notes() + (self.mixing.notes if self.mixing else [])
        start, algorithm = self.config.initial.name, self.config.algorithm
        if isinstance(algorithm, Serving) and algorithm.natural and start != "prior":
            found.append(f"initial: {start} changes nothing: q of {algorithm.name} starts as the prior")
        return found


def prepare(world: World, config: RunConfig, found: Snapshot | None = None) -> Prepared:
    """Load this rank's shards and nothing of the others, and agree with all ranks that they fit together.

    Args:
        world: the ranks.
        config: of the run.
        found: the checkpoint to go on from; None: begin where the config says.

    Raises:
        ConfigError: the config does not fit the number of ranks or the algorithm, or a topology the clients.
        ShardError: a shard is unreadable, does not fit the model, or is not that of the checkpoint; on all ranks the
            same.
    """
    serving = isinstance(config.algorithm, Serving)
    placement = world.agree(lambda: placement_of(config, world.size))
    clients, numbers = placement.of_rank[world.rank], placement.numbers(world.rank)
    # Rank 0's matrices are everybody's: on unlike processors their last digits could differ.
    mixing = world.from_root(lambda: mixing_of(config, placement.everyone)) if config.topologies else None
    raw = world.agree(lambda: config.data.shards(numbers, placement.everyone, config.seed))
    checksums = world.agree(lambda: _checksums(raw, found))
    standardization = _standardization(world, config, raw)
    shards = world.agree(lambda: [config.data.prepared(shard, standardization) for shard in raw])
    facts, features = _agreed_facts(world, config, shards)
    dim = world.agree(lambda: config.model.dimension(facts))
    world.agree(lambda: _check_images(config, facts))
    if serving:
        example, *data = world.agree(lambda: _targets(config, shards, facts))
        theta = np.zeros((1, config.chains, dim))  # a checkpoint holds what became of the first
        if found is None:
            theta = initial_positions(world, config, None, facts, 1, dim)
            world.agree(lambda: _check_serving(config, dim, example, theta[0]))
    else:
        weights = [1 / placement.total] * len(shards)
        data = example = world.agree(lambda: config.model.pack(shards, weights, facts, np.dtype(config.dtype)))
        if found is None:
            theta = initial_positions(world, config, data, facts, len(shards), dim)
        else:
            theta = found.of_clients["position"]
    sizes = [config.model.rows(shard) for shard in shards]
    layout = placement, clients, numbers, facts, dim, sizes
    return Prepared(config, *layout, data, example, theta, checksums, features, standardization, mixing)


def _checksums(shards: Sequence[Shard], found: Snapshot | None) -> Array:
    checksums = np.array([shard.checksum() for shard in shards], np.uint32)
    before = checksums if found is None or not shards else found.of_clients["checksum"]
    for shard, now, then in zip(shards, checksums, before, strict=True):
        if now != then:
            raise ShardError(
                shard.client, shard.origin, "its data are not those that the run was begun with; allowed: the same"
            )
    return checksums


def _standardization(world: World, config: RunConfig, shards: Sequence[Shard]) -> Standardization | None:
    """Return what features are standardised with. Moments are the only statistics that clients ever share."""
    here = world.agree(lambda: config.data.moments(shards))
    everyone = [m for of_rank in world.comm.allgather(here) for m in of_rank]
    return world.agree(lambda: config.data.standardization(everyone))


def _targets(config: RunConfig, shards: Sequence[Shard], facts: Facts) -> list[Target]:
    """Return the target of an agent without rows, and those of the agents here."""
    model, dtype = config.model, np.dtype(config.dtype)
    prior, normal = model.prior_only(facts, dtype), model.normal_prior(facts)
    likelihoods = [prior, *(model.pack([shard], [0.0], facts, dtype) for shard in shards)]
    found = [model.quadratic(likelihood) for likelihood in likelihoods]
    quadratics = [None if one is None else (one[0][0], one[1][0]) for one in found]
    return [Target(one, prior, quadratic, normal) for one, quadratic in zip(likelihoods, quadratics, strict=True)]


def _check_images(config: RunConfig, facts: Facts) -> None:
    if config.augmentation is not None and isinstance(config.model, Network):
        shape = config.model.row_shape(facts)
        if len(shape) != 3:
            allowed = "null, or an input_shape of [channels, height, width]"
            raise ConfigError(f"data.augmentation: found one for rows of shape {list(shape)}; allowed: {allowed}")


def _check_serving(config: RunConfig, dim: int, example: Target, start: Array) -> None:
    assert isinstance(config.algorithm, Serving)
    problem = config.algorithm.refusal(dim, example, start)
    if problem:
        raise ConfigError(problem)


def _agreed_facts(world: World, config: RunConfig, shards: Sequence[Shard]) -> tuple[Facts, tuple[str, ...] | None]:
    """Return what all shards say of the model's shape, and the names of their columns."""
    here = world.agree(lambda: [(s.client, s.origin, s.features, config.model.facts(s)) for s in shards])
    everyone = [found for of_rank in world.comm.allgather(here) for found in of_rank]
    return world.agree(lambda: _facts_of_all(everyone))


def _facts_of_all(
    everyone: Sequence[tuple[int, str, tuple[str, ...] | None, Facts]],
) -> tuple[Facts, tuple[str, ...] | None]:
    _, _, columns, _ = everyone[0]
    for client, origin, features, _ in everyone:
        if features != columns:
            raise ShardError(client, origin, f"its columns are {features}, client 0's are {columns}; allowed: the same")
    facts = agree({client: f for client, *_, f in everyone}, {client: origin for client, origin, *_ in everyone})
    return facts, columns
