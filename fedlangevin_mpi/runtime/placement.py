"""Who hosts whom: clients in contiguous groups, whose sizes differ by at most one."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from fedlangevin_mpi.algorithms.serving import Serving
from fedlangevin_mpi.config import RunConfig
from fedlangevin_mpi.errors import ConfigError


class Placement(NamedTuple):
    """The clients of every rank, by their places: their numbers, where none is dropped.

    Attributes:
        total: all clients that take part, b.
        of_rank: the clients that each rank hosts.
        dropped: numbers of clients that take no part.
    """

    total: int
    of_rank: list[range]
    dropped: tuple[int, ...] = ()

    @property
    def everyone(self) -> int:
        """How many clients there are, dropped ones too."""
        return self.total + len(self.dropped)

    def numbers(self, rank: int) -> list[int]:
        """Return the numbers of the clients that a rank hosts."""
        taking_part = sorted(set(range(self.everyone)) - set(self.dropped))
        return [taking_part[place] for place in self.of_rank[rank]]


def place(clients: int | None, ranks: int) -> Placement:
    """Return who hosts whom: one client a rank where `clients` is None.

    Raises:
        ConfigError: more ranks than clients.
    """
    total = ranks if clients is None else clients
    if ranks > total:
        raise ConfigError(
            f"clients: found {total} for {ranks} ranks, which would leave {ranks - total} without a client; "
            f"allowed: at least one client a rank (start at most {total} ranks, or raise clients)"
        )
    small, larger = divmod(total, ranks)
    starts = [rank * small + min(rank, larger) for rank in range(ranks + 1)]
    return Placement(total, [range(a, b) for a, b in itertools.pairwise(starts)])


def place_behind_server(clients: int | None, ranks: int) -> Placement:
    """Return who hosts whom where rank 0 is a server without clients; of one rank alone, it plays every role.

    Raises:
        ConfigError: more ranks besides the server than clients.
    """
    if ranks == 1:
        return place(clients, 1)
    hosts = ranks - 1
    if clients is not None and hosts > clients:
        raise ConfigError(
            f"clients: found {clients} for {ranks} ranks, of which rank 0 is the server; allowed: at least one client "
            f"a rank besides it (start at most {clients + 1} ranks, or raise clients)"
        )
    placed = place(clients, hosts)
    return Placement(placed.total, [range(0), *placed.of_rank])


def placement_of(config: RunConfig, ranks: int) -> Placement:
    """Return who hosts whom in a run.

    Raises:
        ConfigError: clients, ranks and the algorithm do not fit together.
    """
    algorithm = config.algorithm
    with_server = algorithm.communicates == "server"
    dropped = config.dropped_clients
    clients = None if config.clients is None else config.clients - len(dropped)
    placement = place_behind_server(clients, ranks) if with_server else place(clients, ranks)
    placement = placement._replace(dropped=dropped)
    if dropped and max(dropped) >= placement.everyone:
        raise ConfigError(f"dropped_clients: found {max(dropped)}; allowed: 0 to {placement.everyone - 1}")
    if algorithm.communicates == "never" and placement.total > 1:
        raise ConfigError(
            f"clients: found {placement.total} for algorithm {algorithm.name}, whose clients never communicate; "
            "allowed: 1 (one rank that holds all data)"
        )
    participants = getattr(algorithm, "participants", None)
    if participants is not None and participants > placement.total:
        raise ConfigError(
            f"algorithm.participants: found {participants}; allowed: at most {placement.total}, all clients"
        )
    if isinstance(algorithm, Serving) and (problem := algorithm.problem(placement.total)):
        raise ConfigError(problem)
    return placement
