"""What becomes of the clients of ranks that died: others host them, or the run goes on without them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.config import RunConfig
from fedlangevin_mpi.errors import FedLangevinError
from fedlangevin_mpi.runtime import folder
from fedlangevin_mpi.runtime.placement import placement_of
from fedlangevin_mpi.runtime.survivors import Loss
from fedlangevin_mpi.store import metadata

log = logging.getLogger(__name__)


def drops(world: World, config: RunConfig) -> bool:
    """Return whether the clients of lost ranks are dropped, as `lost_clients` says. Collective.

    Where it says that they are hosted if they can be, all clients are as long as each rank can read those that it would
    host: to be dealt out on fewer ranks moves some of the others, too, which it does not where the lost are dropped.
    """
    if config.lost_clients != "host_or_drop":
        return config.lost_clients == "drop"
    try:
        placement = world.agree(lambda: placement_of(config, world.size))
        numbers = placement.numbers(world.rank)
        world.agree(lambda: config.data.shards(numbers, placement.everyone, config.seed))
    except FedLangevinError as error:
        log.warning("the clients of the lost cannot be hosted: %s", error)
        return True
    return False


def without_lost(config: RunConfig, losses: Sequence[Loss]) -> RunConfig:
    """Return a config that drops the clients of lost ranks.

    Raises:
        ConfigError: clients, ranks and the algorithm do not fit together.
    """
    for loss in losses:
        gone = (*config.dropped_clients, *_clients_of(config, loss))
        config = config.model_copy(update={"dropped_clients": tuple(sorted(gone))})
    return config


def tell(
    losses: Sequence[Loss], config: RunConfig, dropping: bool, hosts: Sequence[str], iteration: int, segment: int
) -> list[metadata.Loss]:
    """Return what `run.yaml` tells of losses.

    Args:
        losses: that it does not tell of yet.
        config: of the run before them.
        dropping: whether the clients of lost ranks are dropped.
        hosts: of the ranks before them.
        iteration: from which the others go on.
        segment: that they begin.
    """
    told = []
    for loss in losses:
        clients = _clients_of(config, loss)
        told.append(
            metadata.Loss(
                iteration=iteration,
                ranks=loss.ranks,
                of=loss.size,
                hosts=[hosts[rank] for rank in loss.ranks if len(hosts) == loss.size],
                hosted=[] if dropping else clients,
                dropped=clients if dropping else [],
                segment=segment,
                seen=folder.now(),
            )
        )
        if dropping:
            config = without_lost(config, [loss])
    return told


def _clients_of(config: RunConfig, loss: Loss) -> list[int]:
    placement = placement_of(config, loss.size)
    return [number for rank in loss.ranks for number in placement.numbers(rank)]
