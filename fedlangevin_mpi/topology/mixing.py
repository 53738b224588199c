"""The mixing matrix of a topology: made, checked, and told apart from others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from typing import Any

import networkx as nx
import numpy as np

from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.topology.graph import Topology, without

Array = np.ndarray[Any, np.dtype[Any]]

TOLERANCE = 1e-10
"""How far two mirrored weights may differ, and a row's or column's sum from one."""


def mixing_matrix(topology: Topology, clients: int, dropped: Collection[int] = ()) -> Array:
    """Return `W (N, N)` in float64, checked: `x_i <- sum_j W[i, j] x_j`.

    Args:
        topology: of the clients.
        clients: how many there are.
        dropped: those that take no part; the weights are those of the graph of the N others.

    Raises:
        ConfigError: the topology does not fit the number of clients, or its weights make no mixing matrix.
    """
    graph = without(topology.graph(clients), dropped)
    W = topology.weights.matrix(graph)
    try:
        check(W, graph)
    except ConfigError as e:
        raise ConfigError(f"topology {topology.kind}, weights {topology.weights.name}: {e}") from None
    return W


def check(W: Array, graph: nx.Graph) -> None:
    """Check that W is a mixing matrix of a graph.

    It must be `(N, N)` for the graph's N nodes and non-negative, symmetric with rows and columns that sum to one (both
    to 1e-10), positive on every edge and self-loop, and zero elsewhere.

    Raises:
        ConfigError: it is not; the text names the first row and column that are wrong, and their value.
    """
    N = len(graph)
    if W.shape != (N, N):
        raise ConfigError(f"W: found shape {W.shape}; allowed: {(N, N)}, a row and a column for each of {N} clients")
    edges = nx.to_numpy_array(graph, range(N), weight=None) > 0
    loops = np.eye(N, dtype=bool)
    _refuse(W, ~np.isfinite(W), "a finite number")
    _refuse(W, W < 0, "a number >= 0")
    _refuse(W, np.abs(W - W.T) > TOLERANCE, lambda i, j: f"{W[j, i]:.12g}, as W[{j}, {i}] (W is symmetric)")
    _refuse(W, edges & (W == 0), lambda i, j: f"a number > 0, since {i} - {j} is an edge")
    _refuse(W, loops & (W == 0), "a number > 0: every client keeps a part of its own position")
    _refuse(W, ~edges & ~loops & (W > 0), lambda i, j: f"0, since {i} - {j} is no edge")
    for what, sums in (("row", W.sum(1)), ("column", W.sum(0))):
        for i in np.flatnonzero(np.abs(sums - 1) > TOLERANCE)[:1]:
            raise ConfigError(f"W: found a sum of {sums[i]:.12g} in {what} {i}; allowed: 1, to {TOLERANCE:g}")


def _refuse(W: Array, wrong: Array, allowed: str | Callable[[int, int], str]) -> None:
    """Refuse the first entry that is wrong, saying what is allowed there."""
    for i, j in np.argwhere(wrong)[:1]:
        raise ConfigError(
            f"W[{i}, {j}]: found {W[i, j]:.12g}; allowed: {allowed if isinstance(allowed, str) else allowed(i, j)}"
        )


def fingerprint(W: Array) -> str:
    """Return a hash of W's shape and bytes, the same on every machine: equal if and only if the matrices are."""
    content = np.ascontiguousarray(W, "<f8")
    return hashlib.sha256(f"{content.shape}".encode() + content.tobytes()).hexdigest()
