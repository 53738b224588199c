"""The server channel: rank 0 sends rows of its state to the agents whose turn it is, and receives theirs.

Point-to-point messages over buffers made once, an agent's number as tag. Nobody spins: whoever waits sleeps, a
twentieth of the time that it has waited so far, so that no core is taken from a rank that works and a wait is at most
5 % longer than it must be. An upload is waited for, as MPI may need both ends to move it: what an agent does after its
upload then really runs beside the next agent's work.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from fedlangevin_mpi.comm.world import World

Array = np.ndarray[Any, np.dtype[Any]]

_SHORTEST_NAP, _LONGEST_NAP = 2e-5, 0.01

_STOP, _SAVE, _FAILED = 0, 1, 2
"""Tags of messages that are no agent's: leave; write a checkpoint of an iteration; what is waited for does not come."""

_FIRST_AGENT = 3


class Order(NamedTuple):
    """What the server tells a rank instead of sending rows.

    Attributes:
        stop: whether no agent is needed any more; else all ranks write a checkpoint.
        iteration: the next global one.
    """

    stop: bool
    iteration: int


class ServerChannel:
    """Both ends of the messages between a server, rank 0, and the agents on the other ranks.

    Args:
        world: the ranks; their communicator is duplicated.
        shape: `(rows, columns)` of the server's state; a message carries some of its rows.

    Attributes:
        bytes_sent: that this rank gave to MPI.
        waiting: called now and then while this rank waits for the server.
    """

    def __init__(self, world: World, shape: tuple[int, ...]) -> None:
        self._comm = world.derive(world.comm.Dup)
        self._received = np.empty(math.prod(shape))
        self._columns = shape[1]
        self._sending: list[tuple[MPI.Request, Array]] = []
        self.bytes_sent = 0
        self.waiting: Callable[[], None] = lambda: None

    def send(self, rank: int, agent: int, rows: Array) -> None:
        """Begin to send rows to an agent; `finish` waits until all such messages have left."""
        self._begin(rank, _FIRST_AGENT + agent, np.ascontiguousarray(rows))

    def finish(self) -> None:
        """Wait until everything that was sent has left."""
        for request, _ in self._sending:
            _sleep_until(request)
        self._sending.clear()

    def receive(self, rank: int, agent: int, rows: int) -> Array | None:
        """Return `(rows, columns)` that an agent sends, or None: it failed."""
        tag, received = self._receive(rank)
        return None if tag == _FAILED else self._rows(tag, agent, rows, received)

    def download(self, agent: int, rows: int) -> Array | Order:
        """Return the rows that the server sends to an agent here, or an order that comes before them."""
        tag, received = self._receive(0)
        return _order(tag, received) if tag in (_STOP, _SAVE) else self._rows(tag, agent, rows, received)

    def order(self) -> Order:
        """Return the server's next order, on a rank whose agents had all of their turns."""
        return _order(*self._receive(0))

    def upload(self, agent: int, rows: Array) -> None:
        """Send an agent's rows to the server."""
        self.send(0, agent, rows)
        self.finish()

    def fail(self) -> None:
        """Tell the server that what it waits for does not come."""
        self._begin(0, _FAILED, np.empty(0))
        self.finish()

    def tell(self, order: Order) -> None:
        """Tell all other ranks what to do; each of them waits for rows or for this."""
        for rank in range(1, self._comm.size):
            self._begin(rank, _STOP if order.stop else _SAVE, np.array([float(order.iteration)]))
        self.finish()

    def free(self) -> None:
        """Free the communicator; safe to call twice."""
        if self._comm != MPI.COMM_NULL:
            self._comm.Free()

    def _begin(self, rank: int, tag: int, rows: Array) -> None:
        self._sending.append((self._comm.Isend(rows, rank, tag), rows))  # MPI reads the rows until it has sent them
        self.bytes_sent += rows.nbytes

    def _receive(self, rank: int) -> tuple[int, Array]:
        status = MPI.Status()
        waiting = self.waiting if rank == 0 else None
        _sleep_until(self._comm.Irecv(self._received, rank, MPI.ANY_TAG), status, waiting)
        return status.Get_tag(), self._received[: status.Get_count(MPI.DOUBLE)].copy()

    def _rows(self, tag: int, agent: int, rows: int, received: Array) -> Array:
        if tag != _FIRST_AGENT + agent or received.size != rows * self._columns:
            raise RuntimeError(
                f"{received.size} numbers with tag {tag} came where agent {agent}'s {rows} rows were due"
            )
        return received.reshape(rows, self._columns)


def _order(tag: int, received: Array) -> Order:
    return Order(tag == _STOP, int(received[0]))


def _sleep_until(
    request: MPI.Request, status: MPI.Status | None = None, waiting: Callable[[], None] | None = None
) -> None:
    """Wait for a request, asleep for the most part."""
    started = time.perf_counter()
    while not request.Test(status):
        if waiting is not None:
            waiting()
        time.sleep(min(_LONGEST_NAP, _SHORTEST_NAP + (time.perf_counter() - started) / 20))
