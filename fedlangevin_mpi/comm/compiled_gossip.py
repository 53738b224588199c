"""The text of the gossip exchange that Numba compiles: pack, exchange, sum. Imports Numba."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

from numba.extending import register_jitable

from fedlangevin_mpi.comm.gossip import CompiledGossip
from fedlangevin_mpi.comm.native import MPI_Start, MPI_Wait
from fedlangevin_mpi.generic import define, exchange


@register_jitable(inline="always")  # a helper that is called does not get the fastmath flags of its caller
def _pack(theta, rows, send, pack, first, last):
    clients, chains, dim = theta.shape
    for c in range(clients):
        for j in range(chains):
            for a in range(dim):
                rows[c, j, a] = theta[c, j, a]
    for p in range(first, last):
        for j in range(chains):
            for a in range(dim):
                send[p - first, j, a] = theta[pack[p], j, a]


@register_jitable(inline="always")
def _carry(requests, request_begin, first, last, status):
    code = 0
    for r in range(first, last):
        for q in range(request_begin[r], request_begin[r + 1]):
            code = max(code, MPI_Start(requests[q]))  # those that fail give the code of one
        for q in range(request_begin[r], request_begin[r + 1]):
            code = max(code, MPI_Wait(requests[q], status))
    return code


@register_jitable(inline="always")
def _sum(theta, rows, total, row_begin, m, source, weight):
    clients, chains, dim = theta.shape
    for c in range(clients):
        for j in range(chains):
            for a in range(dim):
                total[j, a] = 0.0
        for e in range(row_begin[m, c], row_begin[m, c + 1]):
            w, row = weight[e], source[e]  # not in the inner loop: the compiler cannot know that `total` is not these
            for j in range(chains):
                for a in range(dim):
                    total[j, a] += w * rows[row, j, a]
        for j in range(chains):
            for a in range(dim):
                theta[c, j, a] = total[j, a]


def _gossip(theta, channel, weights, chains=None):
    plan, m = channel.plan, weights
    _pack(theta, channel.rows, channel.send, plan.pack, plan.pack_begin[m], plan.pack_begin[m + 1])
    first, last = channel.round_begin[m], channel.round_begin[m + 1]
    code = _carry(channel.requests, channel.request_begin, first, last, channel.status)
    channel.made[m] += 1
    _sum(theta, channel.rows, channel.total, plan.row_begin, m, plan.source, plan.weight)
    if code != 0:  # an exception further up would cost more than the whole sum, in counts of references
        channel.code[0] = code  # which the caller raises
        raise RuntimeError("MPI failed in an exchange with neighbours")


define(exchange, CompiledGossip, compiled=_gossip)
