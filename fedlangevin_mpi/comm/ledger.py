"""What was communicated, counted as the papers count it: per client, equal on any number of ranks."""

from __future__ import annotations

from dataclasses import dataclass

from fedlangevin_mpi.algorithms.base import Traffic


@dataclass
class Ledger:
    """Counts of what left the clients.

    An exchange of an averaging algorithm is one message from every client that takes part, of `dim` numbers a chain;
    what comes back is not counted. A round is an iteration with at least one exchange.

    Attributes:
        clients: all clients, b.
        vector_bytes: bytes of `dim` numbers.
        rounds, messages, bytes: counted so far.
        exchanges: made so far by every rank.
    """

    clients: int
    vector_bytes: int
    rounds: int = 0
    messages: int = 0
    bytes: int = 0
    exchanges: int = 0

    def count(self, traffic: Traffic, start: int, stop: int) -> None:
        """Add the iterations `start <= k < stop` of a block."""
        exchanges = traffic.exchanges[start:stop]
        senders = self.clients if traffic.senders is None else traffic.senders
        self.rounds += int((exchanges > 0).sum())
        self.exchanges += int(exchanges.sum())
        self.messages += senders * int(exchanges.sum())
        self.bytes += senders * int(traffic.positions[start:stop].sum()) * self.vector_bytes

    def count_begin(self, chains: int) -> None:
        """Add the exchange that some algorithms make before iteration 0: a vector a chain from every client."""
        self.rounds += 1
        self.exchanges += 1
        self.messages += self.clients
        self.bytes += self.clients * chains * self.vector_bytes
