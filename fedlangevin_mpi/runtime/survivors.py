"""Runs that outlive their ranks (`on_failure: shrink`): those that are left go on together from the last checkpoint.

A process that dies fails the MPI calls of those that talk to it. The first rank to notice revokes the run's
communicators, which wakes all others; they agree that one is gone, shrink the communicator (User-Level Failure
Mitigation: Bland et al., Post-failure recovery of MPI communication capability, IJHPCA 2013) and begin again on what is
left, as a resume on fewer ranks would, in the same processes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from mpi4py import MPI

from fedlangevin_mpi.comm.world import RankLostError, World
from fedlangevin_mpi.config import RunConfig
from fedlangevin_mpi.errors import ConfigError

log = logging.getLogger(__name__)

_ENABLED = "OMPI_MCA_mpi_ft_enable"


class Loss(NamedTuple):
    """Ranks whose processes died together.

    Attributes:
        ranks: that died, by their numbers then.
        size: how many ranks there were.
    """

    ranks: list[int]
    size: int


def outlive(
    comm: MPI.Intracomm | None, attempt: Callable[[World, Sequence[Loss]], None], on_loss: Callable[[int], None]
) -> None:
    """Run `attempt` on all ranks of `comm`; where a rank dies in it, again on those that are left. Collective.

    Args:
        comm: the ranks, COMM_WORLD by default; duplicated, not used.
        attempt: takes the ranks there are and the losses so far. It sets `survives` of the former, or a rank that dies
            ends the job.
        on_loss: called with the new number of this rank.

    Raises:
        FedLangevinError: from `attempt`, the same on every rank.
    """
    world, losses = World(comm), list[Loss]()
    while True:
        before = world
        try:
            with world:
                return attempt(world, losses)
        except RankLostError as error:
            world, lost = before.shrunk()
            if not lost:  # MPI failed for another reason: that ends the job
                with world:
                    raise RuntimeError(str(error)) from error
        losses.append(Loss(lost, before.size))
        on_loss(world.rank)
        ranks = ("rank " if len(lost) == 1 else "ranks ") + ", ".join(map(str, lost))
        log.warning("%s of %d lost: going on with %d", ranks, before.size, world.size)


def check_shrinking(world: World, config: RunConfig, environment: Mapping[str, str] = os.environ) -> None:
    """Refuse `on_failure: shrink` where it would not work.

    Raises:
        ConfigError: another MPI than Open MPI, a launcher without fault tolerance, or one rank alone.
    """
    if config.on_failure != "shrink":
        return
    allowed = (
        "allowed: shrink under Open MPI's `mpirun --with-ft ulfm` on two ranks or more (--ranks does so), or abort"
    )
    found = "on_failure: found 'shrink'"
    library = MPI.get_vendor()[0]
    if library != "Open MPI":
        raise ConfigError(f"{found} with {library}; {allowed}")
    if environment.get(_ENABLED, "") not in ("1", "true") or "PRTE_LAUNCHED" not in environment:
        raise ConfigError(f"{found}, but the launcher is not one that lets ranks go on when one dies; {allowed}")
    if world.size == 1:
        raise ConfigError(f"{found} on one rank, which no other would outlive; {allowed}")
