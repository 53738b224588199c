"""What was communicated, counted as the papers count it: per client, equal on any number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedlangevin_mpi.algorithms.base import Traffic

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Ledger:
    """Counts of what left the clients.

    An exchange of an averaging algorithm is one message from every client that takes part, of `dim` numbers a chain;
    what comes back is not counted. An exchange of gossip is such a message on every directed edge of the clients'
    graph. Of a server algorithm, an upload is a message. A round is an iteration with at least one exchange.

    Attributes:
        clients: all clients, b.
        chains: of every client.
        vector_bytes: bytes of `dim` numbers.
        edges: `(M,)` directed edges of every mixing matrix; None without gossip.
        rounds, messages, bytes: counted so far.
        exchanges: made so far by every rank.
    """

    clients: int
    chains: int
    vector_bytes: int
    edges: Array | None = None
    rounds: int = 0
    messages: int = 0
    bytes: int = 0
    exchanges: int = 0

    def count(self, traffic: Traffic, start: int, stop: int) -> None:
        """Add the iterations `start <= k < stop` of a block."""
        exchanges = traffic.exchanges[start:stop]
        vectors = self.chains * exchanges if traffic.positions is None else traffic.positions[start:stop]
        messages = self._messages(traffic, start, stop)
        self.rounds += int((exchanges > 0).sum())
        self.exchanges += int(exchanges.sum())
        self.messages += int((messages * exchanges).sum())
        self.bytes += int((messages * vectors).sum()) * self.vector_bytes

    def count_uploads(self, rows: Sequence[int]) -> None:
        """Add a round in which agents sent so many vectors each to a server."""
        self.rounds += 1
        self.exchanges += len(rows)
        self.messages += len(rows)
        self.bytes += sum(rows) * self.vector_bytes

    def count_begin(self, exchanges: int) -> None:
        """Add the exchanges that an algorithm makes before iteration 0: a vector a chain from every client in each."""
        self.rounds += exchanges > 0
        self.exchanges += exchanges
        self.messages += exchanges * self.clients
        self.bytes += exchanges * self.clients * self.chains * self.vector_bytes

    def _messages(self, traffic: Traffic, start: int, stop: int) -> int | Array:
        """Return the messages of one exchange, or of one exchange of each iteration."""
        if traffic.mixing is None:
            return self.clients if traffic.senders is None else traffic.senders
        assert self.edges is not None
        edges: Array = self.edges[traffic.mixing[start:stop]]  # -1 picks some edges, and 0 exchanges use none of them
        return edges
