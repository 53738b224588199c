"""The texts of the average exchange that Numba compiles: sum here, reduce over ranks, take. Imports Numba."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

from numba.extending import register_jitable

from fedlangevin_mpi.comm.average import BlockingAverage, OneRank, PersistentAverage
from fedlangevin_mpi.comm.native import MPI_Allreduce, MPI_Start, MPI_Wait
from fedlangevin_mpi.generic import define, exchange


@register_jitable(inline="always")  # a helper that is called does not get the fastmath flags of its caller
def _weighted_sum(theta, send, weights):
    clients, chains, dim = theta.shape
    for j in range(chains):
        for a in range(dim):
            send[j, a] = weights[0] * theta[0, j, a]
        for c in range(1, clients):
            for a in range(dim):
                send[j, a] += weights[c] * theta[c, j, a]


@register_jitable(inline="always")  # a helper that is called does not get the fastmath flags of its caller
def _take(theta, average, chains):
    for j in range(theta.shape[1]):
        if chains[j]:
            for c in range(theta.shape[0]):
                for a in range(theta.shape[2]):
                    theta[c, j, a] = average[j, a]


def _here(theta, channel, weights, chains=None):
    _weighted_sum(theta, channel.send, weights)
    channel.made[0] += 1
    _take(theta, channel.send, chains)


def _persistent(theta, channel, weights, chains=None):
    _weighted_sum(theta, channel.send, weights)
    channel.code[0] = MPI_Start(channel.request)
    if channel.code[0] == 0:
        channel.code[0] = MPI_Wait(channel.request, channel.status)
    if channel.code[0] != 0:
        raise RuntimeError("MPI failed in an average over the clients")  # the caller finds the code, and raises that
    channel.made[0] += 1
    _take(theta, channel.receive, chains)


def _blocking(theta, channel, weights, chains=None):
    _weighted_sum(theta, channel.send, weights)
    channel.code[0] = MPI_Allreduce(
        channel.send_address, channel.receive_address, channel.send.size, channel.datatype, channel.op, channel.comm
    )
    if channel.code[0] != 0:
        raise RuntimeError("MPI failed in an average over the clients")
    channel.made[0] += 1
    _take(theta, channel.receive, chains)


define(exchange, OneRank, compiled=_here)
define(exchange, PersistentAverage, compiled=_persistent)
define(exchange, BlockingAverage, compiled=_blocking)
