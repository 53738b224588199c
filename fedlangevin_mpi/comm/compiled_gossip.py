"""The text of the gossip exchange that Numba compiles: pack, exchange, sum. Imports Numba."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

from numba.extending import register_jitable

from fedlangevin_mpi.comm.gossip import CompiledGossip
from fedlangevin_mpi.comm.native import MPI_Start, MPI_Wait
from fedlangevin_mpi.generic import define, exchange


@register_jitable(inline="always")  # a helper that is called does not get the fastmath flags of its caller
def _pack(positions, rows, send, pack, first, last):
    clients, width = positions.shape
    for c in range(clients):
        for a in range(width):
            rows[c, a] = positions[c, a]
    for p in range(first, last):
        for a in range(width):
            send[p - first, a] = positions[pack[p], a]


@register_jitable(inline="always")
def _carry(requests, request_begin, first, last, status):
    failed = 0
    for r in range(first, last):
        for q in range(request_begin[r], request_begin[r + 1]):
            failed |= MPI_Start(requests[q])
        for q in range(request_begin[r], request_begin[r + 1]):
            failed |= MPI_Wait(requests[q], status)
    if failed != 0:
        raise RuntimeError("MPI failed in an exchange with neighbours")


@register_jitable(inline="always")
def _sum(positions, rows, total, begin, source, weight):
    clients, width = positions.shape
    for c in range(clients):
        for a in range(width):
            total[a] = 0.0
        for e in range(begin[c], begin[c + 1]):
            for a in range(width):
                total[a] += weight[e] * rows[source[e], a]
        for a in range(width):
            positions[c, a] = total[a]


def _gossip(theta, channel, weights, chains=None):
    plan = channel.plan
    positions = theta.reshape(theta.shape[0], theta.shape[1] * theta.shape[2])
    _pack(positions, channel.rows, channel.send, plan.pack, plan.pack_begin[weights], plan.pack_begin[weights + 1])
    first, last = channel.round_begin[weights], channel.round_begin[weights + 1]
    _carry(channel.requests, channel.request_begin, first, last, channel.status)
    channel.made[weights] += 1
    _sum(positions, channel.rows, channel.total, plan.row_begin[weights], plan.source, plan.weight)


define(exchange, CompiledGossip, compiled=_gossip)
