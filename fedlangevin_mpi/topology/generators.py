"""Graphs that are generated, most of them for any number of clients."""

from __future__ import annotations

import math
import random
from typing import Annotated, ClassVar, Literal

import networkx as nx
from pydantic import Field

from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.topology.graph import Topology

Positive = Annotated[int, Field(ge=1)]

_MOST_DRAWS = 1000


class Ring(Topology):
    """Client `i` is linked to `i - 1` and `i + 1` modulo `N`; two clients share one edge."""

    summary: ClassVar[str] = "a circle: every client has two neighbours"

    kind: Literal["ring"] = "ring"

    def draw(self, clients: int) -> nx.Graph:
        """Return the cycle."""
        return nx.cycle_graph(clients)


class PathGraph(Topology):
    """Client `i` is linked to `i - 1` and `i + 1`: a ring without its last edge."""

    summary: ClassVar[str] = "a line: a ring without its last edge"

    kind: Literal["path"] = "path"

    def draw(self, clients: int) -> nx.Graph:
        """Return the path."""
        return nx.path_graph(clients)


class Star(Topology):
    """Client 0 is linked to all others."""

    summary: ClassVar[str] = "client 0 is linked to all others"

    kind: Literal["star"] = "star"

    def draw(self, clients: int) -> nx.Graph:
        """Return the star."""
        return nx.star_graph(clients - 1)


class Complete(Topology):
    """Every client is linked to every other; Metropolis weights then average over all clients."""

    summary: ClassVar[str] = "every client is linked to every other"

    kind: Literal["complete"] = "complete"

    def draw(self, clients: int) -> nx.Graph:
        """Return the complete graph."""
        return nx.complete_graph(clients)


class _Lattice(Topology):
    rows: Positive | None = Field(
        default=None,
        description="number of rows; absent: given by `columns`, or else the largest divisor of the number of clients "
        "up to its square root (a prime number of clients makes one row)",
    )
    columns: Positive | None = Field(default=None, description="number of columns; absent: given by the rows")

    def fixed_clients(self) -> int | None:
        """Return rows times columns, where both are given."""
        return None if self.rows is None or self.columns is None else self.rows * self.columns

    def shape(self, clients: int) -> tuple[int, int]:
        """Return the number of rows and of columns.

        Raises:
            ConfigError: the given rows or columns do not divide the number of clients.
        """
        given = self.rows or self.columns
        if given is None:
            rows = next(r for r in range(math.isqrt(clients), 0, -1) if clients % r == 0)
        elif clients % given == 0:
            rows = self.rows or clients // given
        else:
            key = "rows" if self.rows else "columns"
            raise ConfigError(f"topology {self.kind}: {key}: found {given} for {clients} clients; allowed: a divisor")
        return rows, clients // rows

    def _lattice(self, clients: int, periodic: bool) -> nx.Graph:
        lattice = nx.grid_2d_graph(*self.shape(clients), periodic=periodic)
        return nx.convert_node_labels_to_integers(lattice, ordering="sorted")


class Grid(_Lattice):
    """Clients in rows and columns, linked to those above, below, left and right; numbered row by row."""

    summary: ClassVar[str] = "rows x columns, as square as the number of clients allows"

    kind: Literal["grid"] = "grid"

    def draw(self, clients: int) -> nx.Graph:
        """Return the grid, open at its borders."""
        return self._lattice(clients, periodic=False)


class Torus(_Lattice):
    """A grid whose rows and columns are rings; where a ring has two clients they share one edge."""

    summary: ClassVar[str] = "a grid whose rows and columns are rings"

    kind: Literal["torus"] = "torus"

    def draw(self, clients: int) -> nx.Graph:
        """Return the grid, closed at its borders."""
        return self._lattice(clients, periodic=True)


class Hypercube(Topology):
    """Clients whose numbers differ in one binary digit are linked: `log2 N` neighbours each."""

    summary: ClassVar[str] = "clients whose numbers differ in one binary digit are linked; 2^k clients"

    kind: Literal["hypercube"] = "hypercube"

    def draw(self, clients: int) -> nx.Graph:
        """Return the hypercube.

        Raises:
            ConfigError: the number of clients is not a power of two.
        """
        if clients & (clients - 1):
            below = 1 << (clients.bit_length() - 1)
            allowed = f"a power of two, as {below} or {2 * below}"
            raise ConfigError(f"topology hypercube: found {clients} clients; allowed: {allowed}")
        digits = range(clients.bit_length() - 1)
        graph = nx.empty_graph(clients)
        graph.add_edges_from((node, node ^ (1 << digit)) for node in range(clients) for digit in digits)
        return graph


class Exponential(Topology):
    """Client `i` is linked to `i + 1, i + 2, i + 4, ...` modulo `N`, both ways.

    The static exponential graph of Ying et al. (2021, Exponential Graph is Provably Efficient for Decentralized Deep
    Training), made undirected.
    """

    summary: ClassVar[str] = "client i is linked to i + 1, i + 2, i + 4, ... modulo N, both ways"

    kind: Literal["exponential"] = "exponential"

    def draw(self, clients: int) -> nx.Graph:
        """Return the circulant graph of the powers of two below the number of clients."""
        return nx.circulant_graph(clients, [1 << power for power in range((clients - 1).bit_length())])


class ErdosRenyi(Topology):
    """Every pair of clients is linked with the same probability, independently (Gilbert's G(N, p))."""

    summary: ClassVar[str] = "every pair of clients is linked with the same probability, drawn from a seed"

    kind: Literal["erdos_renyi"] = "erdos_renyi"
    probability: float = Field(ge=0, le=1, description="of an edge, 0 to 1")
    seed: int = Field(default=0, ge=0, description="of the graph alone, apart from the run's seed")
    connected: bool = Field(
        default=False, description="draw again until the graph is connected; false: it may be disconnected"
    )

    def draw(self, clients: int) -> nx.Graph:
        """Return the first graph of the seed, or the first connected one.

        Raises:
            ConfigError: no draw was connected.
        """
        state = random.Random(self.seed)
        for _ in range(_MOST_DRAWS):
            graph = nx.gnp_random_graph(clients, self.probability, seed=state)
            if not self.connected or nx.is_connected(graph):
                return graph
        found = f"none connected among {_MOST_DRAWS} draws with probability {self.probability:g} for {clients} clients"
        raise ConfigError(f"topology erdos_renyi: found {found}; allowed: a larger probability, or connected: false")


class Barbell(Topology):
    """Two complete halves (the first larger by one if `N` is odd), joined by one edge: slow mixing."""

    summary: ClassVar[str] = "two complete halves joined by one edge: slow mixing"

    kind: Literal["barbell"] = "barbell"

    def draw(self, clients: int) -> nx.Graph:
        """Return the halves and their edge."""
        half = clients - clients // 2
        graph = nx.disjoint_union(nx.complete_graph(half), nx.complete_graph(clients - half))
        if clients > 1:
            graph.add_edge(half - 1, half)
        return graph


class Disconnected(Topology):
    """No edges at all, or complete components without edges between them. Each samples its own product."""

    summary: ClassVar[str] = "no edges, or complete components of given sizes"

    kind: Literal["disconnected"] = "disconnected"
    sizes: tuple[Positive, ...] | None = Field(
        default=None, description="number of clients of each component, in client order; absent: every client is alone"
    )

    def fixed_clients(self) -> int | None:
        """Return the sum of the sizes, where they are given."""
        return None if self.sizes is None else sum(self.sizes)

    def draw(self, clients: int) -> nx.Graph:
        """Return the components."""
        return nx.disjoint_union_all(nx.complete_graph(size) for size in self.sizes or (1,) * clients)
