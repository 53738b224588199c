"""Graphs that are given edge by edge, in the topology itself or in a file of its own, for a fixed number of clients."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import networkx as nx
from pydantic import Field, ValidationInfo, field_validator, model_validator

from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.topology.graph import Topology
from fedlangevin_mpi.validation import beside_the_file

Node = Annotated[int, Field(ge=0)]
Weight = Annotated[float, Field(gt=0)]


class Edges(Topology):
    """Edges listed in the topology file."""

    summary: ClassVar[str] = "edges listed for a fixed number of clients"

    kind: Literal["edges"] = "edges"
    clients: int = Field(ge=1, description="number of clients")
    edges: tuple[tuple[Node, Node], ...] = Field(
        description="pairs [i, j] of clients, numbered from 0; an edge given twice counts once"
    )
    edge_weights: tuple[Weight, ...] | None = Field(
        default=None, description="positive weights of the edges before `weights: sinkhorn`, in order; absent: all 1"
    )
    self_weights: tuple[Weight, ...] | None = Field(
        default=None, description="positive weights of the clients' own positions likewise, one a client; absent: all 1"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for k, edge in enumerate(self.edges):
            if max(edge) >= self.clients:
                raise ValueError(f"edges.{k}: found {list(edge)}; allowed: clients 0 to {self.clients - 1}")
            if edge[0] == edge[1]:
                allowed = "two clients; each is its own neighbour without an edge"
                raise ValueError(f"edges.{k}: found {list(edge)}; allowed: {allowed}")
        self._check_weights("edge_weights", self.edge_weights, len(self.edges), "edge")
        self._check_weights("self_weights", self.self_weights, self.clients, "client")
        return self

    def _check_weights(self, key: str, given: tuple[float, ...] | None, number: int, each: str) -> None:
        if given is not None and self.weights.name != "sinkhorn":
            raise ValueError(f"{key}: found beside weights {self.weights.name}; allowed: with weights sinkhorn")
        if given is not None and len(given) != number:
            raise ValueError(f"{key}: found {len(given)}; allowed: {number}, one a {each}")

    def fixed_clients(self) -> int:
        """Return the number of clients that the file gives."""
        return self.clients

    def draw(self, clients: int) -> nx.Graph:
        """Return the listed edges.

        Raises:
            ConfigError: an edge is given twice, with different weights.
        """
        graph = nx.MultiGraph()
        graph.add_nodes_from(range(clients))
        edge_weights = self.edge_weights or (1.0,) * len(self.edges)
        self_weights = self.self_weights or (1.0,) * clients
        graph.add_weighted_edges_from((i, j, w) for (i, j), w in zip(self.edges, edge_weights, strict=True))
        graph.add_weighted_edges_from((i, i, w) for i, w in enumerate(self_weights))
        return simplify(graph, "topology edges")


def _read_edge_list(path: Path) -> nx.Graph:
    try:  # no weights, or {'weight': w}, as networkx writes it
        return nx.read_edgelist(path, create_using=nx.MultiGraph)
    except TypeError:
        return nx.read_edgelist(path, create_using=nx.MultiGraph, data=(("weight", float),))


_READERS: dict[str, Callable[[Path], nx.Graph]] = {
    ".graphml": lambda path: nx.read_graphml(path, force_multigraph=True),
    ".edgelist": _read_edge_list,
    ".adjlist": lambda path: nx.read_adjlist(path),
}


class GraphFile(Topology):
    """A graph in a file of its own.

    Nodes are numbered by their labels, where these are numbers: then they must be 0 to N - 1. Nodes with other labels
    are numbered in the order in which the file names them. An edge's weight is the attribute `weight` of GraphML, or
    the third column of an edge list; a self-loop gives a node's own. Only `weights: sinkhorn` reads weights.
    """

    summary: ClassVar[str] = "a file: .graphml, .edgelist or .adjlist"

    kind: Literal["file"] = "file"
    path: str = Field(
        description="path of the file, relative to the topology's folder; ends in .graphml, .edgelist (a line an edge: "
        "i j, or i j weight) or .adjlist (a line a node: i and its neighbours)"
    )

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str, info: ValidationInfo) -> str:
        if Path(path).suffix not in _READERS:
            raise ValueError(f"found {path!r}; allowed: a file name that ends in {', '.join(_READERS)}")
        return beside_the_file(path, info)

    def fixed_clients(self) -> int:
        """Return the number of nodes in the file.

        Raises:
            ConfigError: the file cannot be read, or its nodes are not numbered 0 to N - 1.
        """
        return len(self._read())

    def draw(self, clients: int) -> nx.Graph:
        """Return the file's graph.

        Raises:
            ConfigError: the file cannot be read, or holds no undirected graph with positive weights.
        """
        return simplify(self._read(), self.path)

    def _read(self) -> nx.Graph:
        try:
            graph = _READERS[Path(self.path).suffix](Path(self.path))
        except (OSError, nx.NetworkXException, ValueError, TypeError, IndexError, SyntaxError) as e:
            problem = e.strerror if isinstance(e, OSError) else f"{type(e).__name__}: {e}"
            raise ConfigError(f"{self.path}: cannot be read: {problem}") from None
        if graph.is_directed():
            raise ConfigError(f"{self.path}: found a directed graph; allowed: an undirected one, since W is symmetric")
        if len(graph) == 0:
            raise ConfigError(f"{self.path}: found no nodes; allowed: one a client")
        return _numbered(graph, self.path)


def _numbered(graph: nx.Graph, origin: str) -> nx.Graph:
    """Return the graph with nodes 0 to N - 1."""
    labels = [str(node) for node in graph]
    if not all(label.lstrip("-").isdecimal() for label in labels):
        return nx.relabel_nodes(graph, {node: number for number, node in enumerate(graph)})
    numbers = [int(label) for label in labels]
    missing = set(range(len(numbers))) - set(numbers)
    if missing:
        allowed = f"the numbers 0 to {len(numbers) - 1} for its {len(numbers)} nodes, or names"
        raise ConfigError(f"{origin}: found no node {min(missing)} among {_shortened(labels)}; allowed: {allowed}")
    return nx.relabel_nodes(graph, dict(zip(graph, numbers, strict=True)))


def _shortened(labels: list[str], most: int = 5) -> str:
    return ", ".join(labels[:most]) + (", ..." if len(labels) > most else "")


def simplify(graph: nx.Graph, origin: str) -> nx.Graph:
    """Return a graph with every edge once and its `weight`; a self-loop's weight goes to its node.

    Raises:
        ConfigError: a weight is not a positive number, or one edge has two different ones.
    """
    simple = nx.Graph()
    simple.add_nodes_from(graph)
    for i, j, weight in graph.edges(data="weight", default=1.0):
        edge = f"{origin}: edge {min(i, j)} - {max(i, j)}"
        if not (isinstance(weight, float | int) and 0 < weight < math.inf):
            raise ConfigError(f"{edge}: found weight {weight!r}; allowed: a positive number")
        if i != j:
            simple.add_edge(i, j)
        about = simple.nodes[i] if i == j else simple.edges[i, j]
        if about.setdefault("weight", weight) != weight:
            raise ConfigError(f"{edge}: found weights {about['weight']:g} and {weight:g}; allowed: one weight an edge")
    return simple
