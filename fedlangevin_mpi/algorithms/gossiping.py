"""When neighbours gossip, and by which mixing matrix: the hyperparameters that decentralised samplers share."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedlangevin_mpi.algorithms.base import Algorithm, Communicates, Streams, Traffic

Array = np.ndarray[Any, np.dtype[Any]]

Schedule = Literal["cyclic", "random", "pairwise", "one_peer_exponential"]


class Gossiping(Algorithm):
    """An algorithm whose clients take weighted sums over their neighbours in a graph, `sum_j W_ij x_j`.

    All clients update from the values at the same time k (synchronous). Where no exchange is due, `W = I`.
    """

    communicates: ClassVar[Communicates] = "gossip"
    exchanges_per_gossip: ClassVar[int] = 1
    """Vectors of length `dim` that cross an edge, each in an exchange of its own, when clients gossip."""

    communication_interval: Annotated[
        int, Field(ge=1, description="gossip in every m-th iteration; in the others W = I")
    ] = 1
    schedule: Annotated[
        Schedule,
        Field(
            description="cyclic: the topologies in turn (of one topology: all of its edges, always); random: a random "
            "one of the topologies; pairwise: a random edge of the topology, whose two clients take their mean; "
            "one_peer_exponential: client i and client i + 2^t, t in turn, which the topology must connect"
        ),
    ] = "cyclic"
    exchange: Annotated[
        Literal["neighbor", "sendrecv"],
        Field(description="neighbor: one neighbour collective; sendrecv: one neighbour after the other; equal draws"),
    ] = "neighbor"

    def mixing(self, streams: Streams) -> Array:
        """Return `(T,)`: the number of the mixing matrix that each iteration uses, -1 where no exchange is due."""
        exchanges, since = np.divmod(streams.iterations + 1, self.communication_interval)
        in_turn = self.schedule in ("cyclic", "one_peer_exponential")
        number = (exchanges - 1) % streams.mixings if in_turn else streams.scheduled(streams.mixings)
        chosen: Array = np.where(since == 0, number, -1)
        return chosen

    def traffic(self, draws: Any) -> Traffic:
        """Every client sends its vectors to its neighbours of the iteration, once an edge."""
        exchanges = np.where(draws.mixing >= 0, self.exchanges_per_gossip, 0)
        return Traffic(exchanges, None, mixing=draws.mixing)
