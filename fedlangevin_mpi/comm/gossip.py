"""The gossip channel: every client takes the weighted sum of its neighbours' positions, `x_i <- sum_j W[i, j] x_j`.

Ranks exchange just the clients that the others need, declared once as persistent requests: one neighbour collective
on the graph communicator, or a Sendrecv with one neighbour after the other. The sum is made here, in float64 and in
the order of the clients' global numbers, so that positions are bitwise the same on any number of ranks.
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from mpi4py import MPI
from scipy.sparse import csr_array

from fedlangevin_mpi.comm.host import on_host, put
from fedlangevin_mpi.comm.routes import Needs, Plan, needs, plan
from fedlangevin_mpi.comm.world import World, raise_code
from fedlangevin_mpi.errors import FedLangevinError
from fedlangevin_mpi.generic import define, exchange

Array = np.ndarray[Any, np.dtype[Any]]

log = logging.getLogger(__name__)


class InterpretedGossip(NamedTuple):
    """Started from Python.

    Attributes:
        send: `(sent, chains, dim)` the clients here that other ranks need.
        rows: `(clients_here + received, chains, dim)` the clients here and, behind them, the received ones.
        made: `(M,)` how many exchanges each mixing matrix made.
        plan: what is packed and summed.
        local: each W as far as it concerns the clients here, `(clients_here, rows)`.
        carry: `carry(m)` makes the exchange of mixing matrix m: `send` here, `rows` there.
    """

    send: Array
    rows: Array
    made: Array
    plan: Plan
    local: list[csr_array]
    carry: Callable[[int], None]


class CompiledGossip(NamedTuple):
    """Started from compiled code, as the other; carried by requests in rounds, where all of a round run together.

    Attributes:
        send, rows, made, plan: as in `InterpretedGossip`.
        total: `(chains, dim)` float64, room for a sum.
        round_begin: `(M + 1,)` where the rounds of each mixing matrix begin in `request_begin`.
        request_begin: where the requests of each round begin in `requests`.
        requests: addresses of persistent requests.
        status: address of a status buffer.
        code: `(1,)` takes the error code of a call that fails.
    """

    send: Array
    rows: Array
    made: Array
    plan: Plan
    total: Array
    round_begin: Array
    request_begin: Array
    requests: Array
    status: int
    code: Array


Rounds = list[list[MPI.Prequest]]
"""The requests of one exchange: those of a round are started together, and waited for before the next round."""


class GossipChannel:
    """The exchange of decentralised samplers, declared once and started many times.

    Args:
        world: the ranks; communicators are made from theirs.
        hosted: the clients of every rank.
        matrices: M mixing matrices `(N, N)`, dense or sparse; an exchange names the one it uses.
        chains, dim: shape of a client's position.
        dtype: float32 or float64.
        compiled: whether compiled code starts it.
        exchange: `neighbor`, one persistent neighbour collective; `sendrecv`, a Sendrecv with each neighbour in turn,
            in the order of an edge colouring, so that no ranks wait for each other in a circle. The same numbers.

    Raises:
        TypeError: another dtype.
        FedLangevinError: ranks were given different matrices; on all ranks.
        RuntimeError: this MPI delivers wrongly.
    """

    def __init__(
        self,
        world: World,
        hosted: Sequence[range],
        matrices: Sequence[Any],
        chains: int,
        dim: int,
        dtype: np.dtype[Any],
        compiled: bool,
        exchange: Literal["neighbor", "sendrecv"] = "neighbor",
    ) -> None:
        if dtype not in (np.float32, np.float64):
            raise TypeError(f"gossip of {dtype} was asked for; allowed: float32, float64")
        sparse = [_canonical(matrix) for matrix in matrices]
        _agree(world, sparse)
        self._world, self._here = world, hosted[world.rank]
        self._needed = [needs(matrix, hosted) for matrix in sparse]
        self._plan = plan(sparse, self._needed, self._here, world.rank)
        self._received = [_clients(needed.received_by(world.rank)) for needed in self._needed]
        self._send = np.zeros((int(np.diff(self._plan.pack_begin).max()), chains, dim), dtype)
        self._rows = np.zeros((len(self._here) + max(map(len, self._received)), chains, dim), dtype)
        self._made = np.zeros(len(sparse), np.int64)
        self._comm = MPI.COMM_NULL
        self._row_type = MPI.DATATYPE_NULL
        self._rounds: list[Rounds] = [[] for _ in sparse]
        self._status = np.zeros(64, np.uint8)
        self._code = np.zeros(1, np.int64)
        if world.size > 1:
            number = MPI.FLOAT if dtype == np.float32 else MPI.DOUBLE
            self._row_type = number.Create_contiguous(chains * dim).Commit()
            self._declare(exchange)
        self.handle: Any = self._compiled_handle() if compiled else self._interpreted_handle()
        """What a kernel takes as its channel."""

    def _declare(self, exchange: str) -> None:
        if exchange == "neighbor":
            problem = self._problem_of_neighbor()
            if not problem:
                return
            log.warning("the persistent neighbour exchange of this MPI cannot be used (%s): using sendrecv", problem)
            self._free_requests()
        self._declare_sendrecv()
        if not self._delivers():
            raise RuntimeError("persistent sends of this MPI delivered wrong contents")

    def _problem_of_neighbor(self) -> str:
        """Declare the neighbour collectives; return what is wrong with them on any rank, or nothing."""
        problem = ""
        try:
            self._declare_neighbor()
        except (MPI.Exception, NotImplementedError) as e:
            problem = str(e) or type(e).__name__
        problem = max(self._world.comm.allgather(problem))
        return problem or ("" if self._delivers() else "it delivered old or wrong contents")

    def _declare_neighbor(self) -> None:
        """Make one request a mixing matrix on the graph of all of them; where a matrix has no edge it sends nothing."""
        rank = self._world.rank
        sources = sorted({other for needed in self._needed for other in needed.received_by(rank)})
        targets = sorted({other for needed in self._needed for other in needed.sent_by(rank)})
        # Some MPIs hang or mislabel when they may reorder.
        graph = functools.partial(self._world.comm.Create_dist_graph_adjacent, sources, targets, reorder=False)
        self._comm = self._world.derive(graph)
        for m, needed in enumerate(self._needed):
            sent = [len(needed.sent_by(rank).get(other, [])) for other in targets]
            received = [len(needed.received_by(rank).get(other, [])) for other in sources]
            request = self._comm.Neighbor_alltoallv_init(
                [self._send, sent, _begins(sent), self._row_type],
                [self._rows[len(self._here) :], received, _begins(received), self._row_type],
            )
            self._rounds[m] = [[request]]

    def _declare_sendrecv(self) -> None:
        self._comm = self._world.derive(self._world.comm.Dup)
        self._rounds = [self._sendrecv_rounds(needed) for needed in self._needed]

    def _sendrecv_rounds(self, needed: Needs) -> Rounds:
        rank, free, filled = self._world.rank, 0, len(self._here)
        rounds: dict[int, list[MPI.Prequest]] = {}
        colours = {pair: colour for pair, colour in needed.colours().items() if rank in pair}
        colour_of = {a + b - rank: colour for (a, b), colour in colours.items()}
        for other, clients in needed.received_by(rank).items():
            buffer = [self._rows[filled:], len(clients), self._row_type]
            rounds.setdefault(colour_of[other], []).append(self._comm.Recv_init(buffer, other))
            filled += len(clients)
        for other, clients in needed.sent_by(rank).items():
            buffer = [self._send[free:], len(clients), self._row_type]
            rounds.setdefault(colour_of[other], []).append(self._comm.Send_init(buffer, other))
            free += len(clients)
        return [requests for _, requests in sorted(rounds.items())]

    def _carry(self, m: int) -> None:
        for requests in self._rounds[m]:
            MPI.Prequest.Startall(requests)
            MPI.Prequest.Waitall(requests)

    def _delivers(self) -> bool:
        """Make two exchanges of each mixing matrix with changed contents: persistent ones once kept the first."""
        right, clients = True, len(self._here)
        for start in (1, 10):
            for m, received in enumerate(self._received):
                pack = self._plan.pack[self._plan.pack_begin[m] : self._plan.pack_begin[m + 1]]
                self._send[: len(pack)] = start + self._here.start + pack[:, None, None]
                self._carry(m)
                got = self._rows[clients : clients + len(received)]
                right &= bool((got == start + np.array(received)[:, None, None]).all())
        return bool(self._world.comm.allreduce(right, op=MPI.LAND))

    def _interpreted_handle(self) -> InterpretedGossip:
        local = self._plan.local_matrices(len(self._rows))
        return InterpretedGossip(self._send, self._rows, self._made, self._plan, local, self._carry)

    def _compiled_handle(self) -> CompiledGossip:
        rounds = [requests for of_matrix in self._rounds for requests in of_matrix]
        return CompiledGossip(
            self._send,
            self._rows,
            self._made,
            self._plan,
            total=np.zeros(self._rows.shape[1:]),
            round_begin=_begins([*map(len, self._rounds), 0]),
            request_begin=_begins([*map(len, rounds), 0]),
            requests=np.array([MPI._addressof(request) for requests in rounds for request in requests], np.intp),
            status=self._status.ctypes.data,
            code=self._code,
        )

    @property
    def exchanges(self) -> int:
        """How many exchanges were made."""
        return int(self._made.sum())

    @property
    def bytes_sent(self) -> int:
        """How many bytes this rank gave to MPI."""
        sent = int((self._made * np.diff(self._plan.pack_begin)).sum())
        return sent * int(self._rows[0].nbytes)

    def raise_failure(self) -> None:
        """Raise what MPI says of a call that failed in compiled code, if one did.

        Raises:
            MPI.Exception: one did.
        """
        raise_code(self._code)

    def free(self) -> None:
        """Free requests, communicator and datatype; safe to call twice."""
        self._free_requests()
        if self._row_type != MPI.DATATYPE_NULL:
            self._row_type.Free()

    def _free_requests(self) -> None:
        for request in (request for of_matrix in self._rounds for requests in of_matrix for request in requests):
            request.Free()
        self._rounds = [[] for _ in self._rounds]
        if self._comm != MPI.COMM_NULL:
            self._comm.Free()


def _canonical(matrix: Any) -> csr_array:
    """Return a matrix without explicit zeros, each row in the order of its columns."""
    canonical = csr_array(matrix, dtype=np.float64, copy=True)
    canonical.sum_duplicates()
    canonical.eliminate_zeros()
    return canonical


def _agree(world: World, matrices: Sequence[csr_array]) -> None:
    parts = [part for matrix in matrices for part in (matrix.indptr, matrix.indices, matrix.data)]
    digest = hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()
    different = digest != world.comm.bcast(digest)
    problem = f"rank {world.rank} holds other mixing matrices than rank 0; allowed: the same on all ranks"
    world.raise_together(FedLangevinError(problem) if different else None)


def _clients(by_rank: dict[int, list[int]]) -> list[int]:
    return [client for clients in by_rank.values() for client in clients]


def _begins(counts: Sequence[int]) -> Array:
    """Return where each of consecutive parts begins."""
    begins: Array = np.cumsum([0, *counts], dtype=np.int64)[:-1]
    return begins


def _interpreted(theta: Any, channel: InterpretedGossip, weights: int, chains: None = None) -> None:
    channel.rows[: len(theta)] = on_host(theta, channel.rows)
    pack = channel.plan.pack[channel.plan.pack_begin[weights] : channel.plan.pack_begin[weights + 1]]
    channel.send[: len(pack)] = channel.rows[pack]
    channel.carry(weights)
    channel.made[weights] += 1
    mixed = channel.local[weights] @ channel.rows.reshape(len(channel.rows), -1)
    put(theta, mixed.reshape(theta.shape))


define(exchange, InterpretedGossip, interpreted=_interpreted)
