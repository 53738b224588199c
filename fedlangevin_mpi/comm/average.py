"""The average channel: a weighted mean over all clients by one Allreduce, from Python or from compiled code.

The channel owns its communicator and buffers and makes a persistent request over them once. What a kernel gets is a
NamedTuple, whose type says how the exchange is done; the local weighted sum comes before the Allreduce, so one vector
a chain leaves a rank however many clients it hosts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from fedlangevin_mpi.comm.host import on_host, put
from fedlangevin_mpi.comm.world import World, raise_code
from fedlangevin_mpi.generic import define, exchange

Array = np.ndarray[Any, np.dtype[Any]]

log = logging.getLogger(__name__)


class OneRank(NamedTuple):
    """All clients are here: no message. `send (chains, dim)` takes the weighted mean; `made (1,)` counts exchanges."""

    send: Array
    made: Array


class InterpretedAverage(NamedTuple):
    """Started from Python: `reduce()` sums `send` over all ranks into `receive`, both `(chains, dim)`."""

    send: Array
    receive: Array
    made: Array
    reduce: Callable[[], None]


class PersistentAverage(NamedTuple):
    """Started from compiled code: the addresses of a persistent request and of a status buffer.

    `code (1,)` takes the error code of a call that fails.
    """

    send: Array
    receive: Array
    made: Array
    code: Array
    request: int
    status: int


class BlockingAverage(NamedTuple):
    """The fallback of compiled code where persistent collectives fail: the arguments of `MPI_Allreduce`."""

    send: Array
    receive: Array
    made: Array
    code: Array
    send_address: int
    receive_address: int
    datatype: int
    op: int
    comm: int


class Counted:
    """What a channel that averages counts, whatever memory its buffers lie in."""

    _world: World
    _send: Any
    _made: Array

    @property
    def exchanges(self) -> int:
        """How many exchanges were made."""
        return int(self._made[0])

    @property
    def bytes_sent(self) -> int:
        """How many bytes this rank gave to MPI."""
        return 0 if self._world.size == 1 else self.exchanges * self._send.nbytes


class AverageChannel(Counted):
    """The exchange of FALD and its kin, declared once and started many times.

    Args:
        world: the ranks; their communicator is duplicated.
        chains, dim: shape of a client's position.
        dtype: float32 or float64.
        compiled: whether compiled code starts it.

    Raises:
        TypeError: another dtype; MPI would sum, say, bfloat16 to garbage without an error.
        RuntimeError: this MPI sums wrongly.
    """

    def __init__(self, world: World, chains: int, dim: int, dtype: np.dtype[Any], compiled: bool) -> None:
        if dtype not in (np.float32, np.float64):
            raise TypeError(f"an average of {dtype} was asked for; allowed: float32, float64")
        self._world = world
        self._comm = world.derive(world.comm.Dup)
        self._request: MPI.Prequest | None = None
        self._status = np.zeros(64, np.uint8)
        self._send = np.zeros((chains, dim), dtype)
        self._receive = np.zeros((chains, dim), dtype)
        self._made = np.zeros(1, np.int64)
        self._code = np.zeros(1, np.int64)
        self._compiled = compiled
        self.handle: Any = self._declare()
        """What a kernel takes as its channel."""

    def _declare(self) -> Any:
        if self._world.size == 1:
            return OneRank(self._send, self._made)
        try:
            self._request = self._comm.Allreduce_init(self._send, self._receive, op=MPI.SUM)
            right = sums_rightly(self._world, self._send, self._receive, self._start_and_wait)
            problem = "" if right else "it returned old contents"
        except (MPI.Exception, NotImplementedError) as e:
            problem = str(e) or type(e).__name__
        if problem:
            log.warning("the persistent Allreduce of this MPI cannot be used (%s): using the blocking one", problem)
            return self._blocking()
        if not self._compiled:
            return InterpretedAverage(self._send, self._receive, self._made, self._start_and_wait)
        address = MPI._addressof(self._request)
        return PersistentAverage(self._send, self._receive, self._made, self._code, address, self._status.ctypes.data)

    def _blocking(self) -> Any:
        self._free_request()
        if not sums_rightly(self._world, self._send, self._receive, self._allreduce):
            raise RuntimeError("MPI_Allreduce of this MPI returned a wrong sum")
        if not self._compiled:
            return InterpretedAverage(self._send, self._receive, self._made, self._allreduce)
        datatype = MPI.FLOAT if self._send.dtype == np.float32 else MPI.DOUBLE
        handles = (MPI._handleof(h) for h in (datatype, MPI.SUM, self._comm))
        addresses = self._send.ctypes.data, self._receive.ctypes.data
        return BlockingAverage(self._send, self._receive, self._made, self._code, *addresses, *handles)

    def _start_and_wait(self) -> None:
        assert self._request is not None
        self._request.Start()
        self._request.Wait()

    def _allreduce(self) -> None:
        self._comm.Allreduce(self._send, self._receive, op=MPI.SUM)

    def raise_failure(self) -> None:
        """Raise what MPI says of a call that failed in compiled code, if one did.

        Raises:
            MPI.Exception: one did.
        """
        raise_code(self._code)

    def free(self) -> None:
        """Free the request and the communicator, and let go of the handle; safe to call twice."""
        self.handle = None  # whose `reduce` holds this channel
        self._free_request()
        if self._comm != MPI.COMM_NULL:
            self._comm.Free()

    def _free_request(self) -> None:
        if self._request is not None:
            self._request.Free()
            self._request = None


def sums_rightly(world: World, send: Any, receive: Any, reduce: Callable[[], None]) -> bool:
    """Make two exchanges with changed contents, and return whether both were right on all ranks. Collective.

    A persistent collective once kept the first contents.
    """
    right = True
    for start in (1, 10):
        send[:] = start + world.rank
        reduce()
        right &= bool((receive == sum(start + rank for rank in range(world.size))).all())
    return not world.any(not right)


def _interpreted_one_rank(theta: Any, channel: OneRank, weights: Array, chains: Array) -> None:
    channel.send[:] = (weights[:, None, None] * on_host(theta, channel.send)).sum(0)
    channel.made[0] += 1
    put(theta, channel.send, chains)


def _interpreted(theta: Any, channel: InterpretedAverage, weights: Array, chains: Array) -> None:
    channel.send[:] = (weights[:, None, None] * on_host(theta, channel.send)).sum(0)
    channel.reduce()
    channel.made[0] += 1
    put(theta, channel.receive, chains)


define(exchange, OneRank, interpreted=_interpreted_one_rank)
define(exchange, InterpretedAverage, interpreted=_interpreted)
