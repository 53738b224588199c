"""The mixing matrices of a run: from its topologies and its schedule to the W of every exchange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from scipy.sparse import csr_array, eye_array

from fedlangevin_mpi.algorithms.gossiping import Gossiping
from fedlangevin_mpi.config import RunConfig
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.topology import (
    components,
    disconnection_warning,
    fingerprint,
    mixing_matrix,
    read_topology,
    spectrum,
    without,
)

Array = np.ndarray[Any, np.dtype[Any]]


class Mixing(NamedTuple):
    """The mixing matrices of a run.

    Attributes:
        matrices: M of them, `(N, N)` for the N clients that take part; an exchange uses one.
        edges: `(M,)` how many directed edges between clients each has.
        topologies: what `run.yaml` says of every topology.
        notes: what a user should be told of them.
    """

    matrices: list[csr_array]
    edges: Array
    topologies: list[dict[str, Any]]
    notes: list[str]


def mixing_of(config: RunConfig, clients: int) -> Mixing:
    """Read the topologies of a config and return the mixing matrices of its schedule.

    Args:
        config: of the run, whose dropped clients the matrices are without.
        clients: how many there are, dropped ones too.

    Raises:
        ConfigError: a file cannot be read, is wrong, or does not fit the number of clients or the schedule.
    """
    assert isinstance(config.algorithm, Gossiping)
    graphs, weights, facts, notes = [], [], [], []
    for path in config.topologies:
        topology = read_topology(path)
        graph = without(topology.graph(clients), config.dropped_clients)
        W = mixing_matrix(topology, clients, config.dropped_clients)
        graphs.append(graph)
        weights.append(W)
        facts.append(_facts(path, topology.kind, graph, W, config.taking_part(clients)))
        if (warning := disconnection_warning(graph)) is not None:
            notes.append(f"topology {path}: {warning}")
    matrices = _scheduled(config.algorithm.schedule, graphs, weights)
    edges = np.array([matrix.nnz - np.count_nonzero(matrix.diagonal()) for matrix in matrices])
    return Mixing(matrices, edges, facts, notes)


def _scheduled(schedule: str, graphs: Sequence[nx.Graph], weights: Sequence[Array]) -> list[csr_array]:
    if schedule == "pairwise":
        return pairwise(graphs[0])
    if schedule == "one_peer_exponential":
        return one_peer_exponential(graphs[0])
    return [csr_array(W) for W in weights]


def pairwise(graph: nx.Graph) -> list[csr_array]:
    """Return, for every edge of the graph, the W by which its two clients take their mean (Boyd et al. 2006)."""
    edges = sorted((min(edge), max(edge)) for edge in graph.edges if edge[0] != edge[1])
    return [_mean_of(a, b, len(graph)) for a, b in edges] or [csr_array(eye_array(len(graph)))]


def _mean_of(a: int, b: int, clients: int) -> csr_array:
    difference = csr_array(([1.0, -1.0], ([0, 0], [a, b])), shape=(1, clients))
    return csr_array(eye_array(clients) - difference.T @ difference / 2)


def one_peer_exponential(graph: nx.Graph) -> list[csr_array]:
    """Return, for every hop 1, 2, 4, ... below N, the W by which client i takes the mean with client i + hop.

    These are doubly stochastic and not symmetric. In turn, they give all clients the exact average where N is a power
    of 2 (Ying et al., Exponential graph is provably efficient for decentralized deep training, NeurIPS 2021).

    Raises:
        ConfigError: the graph has no edge between two such clients.
    """
    clients, matrices, hop = len(graph), [], 1
    while hop < clients:
        peers = (np.arange(clients) + hop) % clients
        for client, peer in enumerate(peers.tolist()):
            if not graph.has_edge(client, peer):
                raise ConfigError(
                    f"algorithm.schedule: found one_peer_exponential, but the topology has no edge between clients "
                    f"{client} and {peer}; allowed: a topology that connects clients 1, 2, 4, ... apart (exponential)"
                )
        peer_matrix = csr_array((np.ones(clients), (np.arange(clients), peers)), shape=(clients, clients))
        matrices.append(csr_array((eye_array(clients) + peer_matrix) / 2))
        hop *= 2
    return matrices or [csr_array(eye_array(clients))]


def _facts(path: str, kind: str, graph: nx.Graph, W: Array, numbers: Sequence[int]) -> dict[str, Any]:
    values = spectrum(W)
    return {
        "path": path,
        "kind": kind,
        "lambda_2": values.lambda_2,
        "lambda_n": values.lambda_n,
        "fingerprint": fingerprint(W),
        "components": [[numbers[place] for place in component] for component in components(graph)],
    }
