"""Who sends whose position to whom in a gossip exchange: arithmetic on W and on who hosts whom, without MPI.

An edge between two clients of one rank never leaves it. A client that another rank needs is sent to it once, however
many of its neighbours that rank hosts. Needs may be asymmetric: a rank may send two clients to another and get one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from scipy.sparse import csr_array

Array = np.ndarray[Any, np.dtype[Any]]


class Needs(NamedTuple):
    """What ranks need of each other in one exchange, each need once, sorted by receiver, sender and client.

    Attributes:
        receiver: `(n,)` the rank that needs a client's position.
        sender: `(n,)` the rank that hosts the client.
        client: `(n,)`.
    """

    receiver: Array
    sender: Array
    client: Array

    def sent_by(self, rank: int) -> dict[int, list[int]]:
        """Return the clients that `rank` sends to each rank that needs some; ranks and clients ascend."""
        return self._grouped(self.sender == rank, self.receiver)

    def received_by(self, rank: int) -> dict[int, list[int]]:
        """Return the clients that `rank` receives from each rank that hosts some; ranks and clients ascend."""
        return self._grouped(self.receiver == rank, self.sender)

    def colours(self) -> dict[tuple[int, int], int]:
        """Return a colour for every pair `a < b` of ranks that exchange something; pairs of one colour are disjoint.

        Ranks that serve their pairs in the order of colours never wait for each other in a circle.
        """
        both = np.sort(np.stack([self.sender, self.receiver], axis=1), axis=1)
        pairs = np.unique(both, axis=0).tolist()
        coloured = nx.greedy_color(nx.line_graph(nx.Graph(pairs)))
        return {(min(pair), max(pair)): colour for pair, colour in coloured.items()}

    def _grouped(self, chosen: Array, other: Array) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for rank, client in zip(other[chosen].tolist(), self.client[chosen].tolist(), strict=True):
            found.setdefault(rank, []).append(client)
        return found


def needs(matrix: csr_array, hosted: Sequence[range]) -> Needs:
    """Return what each rank needs of the others: client i needs client j where `W[i, j]` is not 0.

    Args:
        matrix: W, `(N, N)`.
        hosted: the clients of every rank, ascending.
    """
    rank_of = np.repeat(np.arange(len(hosted)), [len(clients) for clients in hosted])
    rows, columns = matrix.nonzero()
    each = np.unique(np.stack([rank_of[rows], rank_of[columns], columns]), axis=1)
    return Needs(*each[:, each[0] != each[1]])


class Plan(NamedTuple):
    """What a rank packs and sums, for each of M mixing matrices; a row is the position of one client.

    Attributes:
        pack_begin: `(M + 1,)` where each matrix's part of `pack` begins.
        pack: places of the clients here that are sent, in the order of sending.
        row_begin: `(M, clients_here + 1)` where each client's part of `source` and `weight` begins.
        source: place of each neighbour's row: the clients here, then those received. In the order of the neighbours'
            global numbers, so that a sum is bitwise the same however clients are placed.
        weight: `W[i, j]`, float64.
    """

    pack_begin: Array
    pack: Array
    row_begin: Array
    source: Array
    weight: Array

    def local_matrices(self, rows: int) -> list[csr_array]:
        """Return each W as far as it concerns the clients here: `(clients_here, rows)`, columns as in `source`."""
        shape = (self.row_begin.shape[1] - 1, rows)
        return [
            csr_array((self.weight[b[0] : b[-1]], self.source[b[0] : b[-1]], b - b[0]), shape=shape)
            for b in self.row_begin
        ]


def plan(matrices: Sequence[csr_array], needed: Sequence[Needs], here: range, rank: int) -> Plan:
    """Return the plan of the rank that hosts the clients `here`."""
    packs = [[c - here.start for clients in n.sent_by(rank).values() for c in clients] for n in needed]
    places = [_places(n, here, rank) for n in needed]
    parts = [csr_array(matrix[here.start : here.stop]) for matrix in matrices]
    sizes = np.concatenate([[0], np.cumsum([part.nnz for part in parts])])
    return Plan(
        pack_begin=np.concatenate([[0], np.cumsum([len(pack) for pack in packs])]).astype(np.int64),
        pack=np.array([place for pack in packs for place in pack], np.int64),
        row_begin=np.stack([size + part.indptr for size, part in zip(sizes, parts, strict=False)]).astype(np.int64),
        source=np.concatenate([place[part.indices] for place, part in zip(places, parts, strict=True)]),
        weight=np.concatenate([part.data for part in parts]),
    )


def _places(needed: Needs, here: range, rank: int) -> Array:
    """Return where the row of each client lies, by its global number; -1 where it is not needed."""
    received = [c for clients in needed.received_by(rank).values() for c in clients]
    places = np.full(max([*received, here.stop - 1]) + 1, -1, np.int64)
    places[[*here, *received]] = np.arange(len(here) + len(received))
    return places
