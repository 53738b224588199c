"""The server channel: rank 0 sends rows of its state to the agents whose turn it is, and receives theirs.

Point-to-point messages over buffers made once, an agent's number as tag. Nobody spins: whoever waits sleeps, a
twentieth of the time that it has waited so far, so that no core is taken from a rank that works and a wait is at most
5 % longer than it must be. An upload is waited for, as MPI may need both ends to move it: what an agent does after its
upload then really runs beside the next agent's work.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from mpi4py import MPI

from fedlangevin_mpi.comm.world import World

Array = np.ndarray[Any, np.dtype[Any]]

_SHORTEST_NAP, _LONGEST_NAP = 2e-5, 0.01

_STOP, _FAILED = 0, 1
"""Tags of messages without content: no agent is needed any more; an agent cannot send what is waited for."""

_FIRST_AGENT = 2


class ServerChannel:
    """Both ends of the messages between a server, rank 0, and the agents on the other ranks.

    Args:
        world: the ranks; their communicator is duplicated.
        shape: `(rows, columns)` of the server's state; a message carries some of its rows.

    Attributes:
        bytes_sent: that this rank gave to MPI.
    """

    def __init__(self, world: World, shape: tuple[int, ...]) -> None:
        self._comm = world.comm.Dup()
        self._received = np.empty(shape)
        self._sending: list[tuple[MPI.Request, Array]] = []
        self.bytes_sent = 0

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
        return self._receive(rank, _FIRST_AGENT + agent, rows)

    def download(self, agent: int, rows: int) -> Array | None:
        """Return the rows that the server sends to an agent here, or None: the run stops."""
        return self._receive(0, _FIRST_AGENT + agent, rows)

    def upload(self, agent: int, rows: Array) -> None:
        """Send an agent's rows to the server."""
        self.send(0, agent, rows)
        self.finish()

    def fail(self) -> None:
        """Tell the server that what it waits for does not come."""
        self._begin(0, _FAILED, np.empty(0))
        self.finish()

    def stop(self, rank: int) -> None:
        """Tell a rank that none of its agents is needed any more."""
        self._begin(rank, _STOP, np.empty(0))

    def free(self) -> None:
        """Free the communicator; safe to call twice."""
        if self._comm != MPI.COMM_NULL:
            self._comm.Free()

    def _begin(self, rank: int, tag: int, rows: Array) -> None:
        self._sending.append((self._comm.Isend(rows, rank, tag), rows))  # MPI reads the rows until it has sent them
        self.bytes_sent += rows.nbytes

    def _receive(self, rank: int, tag: int, rows: int) -> Array | None:
        status = MPI.Status()
        buffer = self._received[:rows]
        _sleep_until(self._comm.Irecv(buffer, rank, MPI.ANY_TAG), status)
        found = status.Get_tag()
        if found in (_STOP, _FAILED):
            return None
        if found != tag or status.Get_count(MPI.DOUBLE) != buffer.size:
            raise RuntimeError(f"rank {rank} sent a message of tag {found} instead of {tag}, or of another size")
        return buffer.copy()


def _sleep_until(request: MPI.Request, status: MPI.Status | None = None) -> None:
    """Wait for a request, asleep for the most part."""
    started = time.perf_counter()
    while not request.Test(status):
        time.sleep(min(_LONGEST_NAP, _SHORTEST_NAP + (time.perf_counter() - started) / 20))
