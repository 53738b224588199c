"""What a topology file holds: a communication graph over the clients, and the rule that gives its edges weights.

Graphs are undirected and simple. Every client is its own neighbour by convention, so a graph holds no self-loops. An
edge may carry a positive `weight`, and a node too (its own, where a file lists a self-loop); only the Sinkhorn rule
reads them.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Union

import networkx as nx
from pydantic import BaseModel, ConfigDict, Field

from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.registry import discover
from fedlangevin_mpi.topology.weights import Metropolis, WeightRule, weight_rules
from fedlangevin_mpi.validation import load_mapping, read_text, validate

if TYPE_CHECKING:
    WeightChoice = WeightRule
else:  # a type made at run time, so that a new rule is one class in weights.py
    WeightChoice = Annotated[Union[tuple(weight_rules().values())], Field(discriminator="name")]  # noqa: UP007


class Topology(BaseModel):
    """A communication graph and its weights. A subclass is one `kind`; it says its edges in `draw`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    summary: ClassVar[str]
    """One line for `fedlangevin list topologies`."""

    kind: str
    weights: WeightChoice = Field(
        default=Metropolis(), description="the rule that gives W from the graph: {name: ...} with its keys"
    )

    def graph(self, clients: int) -> nx.Graph:
        """Return the graph over the nodes 0 to `clients` - 1: undirected, without self-loops.

        Raises:
            ConfigError: the topology does not fit this number of clients, or its file cannot be read.
        """
        fixed = self.fixed_clients()
        if fixed not in (None, clients):
            raise ConfigError(
                f"topology {self.kind}: found {clients} clients; allowed: {fixed}, which it has nodes for"
            )
        drawn = self.draw(clients)
        graph = nx.Graph()
        graph.add_nodes_from((node, drawn.nodes[node]) for node in range(clients))
        graph.add_edges_from((i, j, about) for i, j, about in drawn.edges(data=True) if i != j)
        return graph

    def fixed_clients(self) -> int | None:
        """Return how many clients the topology is for: None, if any number."""
        return None

    def draw(self, clients: int) -> nx.Graph:
        """Return the edges, over nodes 0 to `clients` - 1; self-loops are left out later.

        Raises:
            ConfigError: the topology does not fit this number of clients, or its file cannot be read.
        """
        raise NotImplementedError


@cache
def topologies() -> dict[str, type[Topology]]:
    """Return every topology by the `kind` that a file gives it."""
    return discover(Topology, "fedlangevin_mpi.topology", key="kind")


def read_topology(path: str | Path) -> Topology:
    """Return the topology of a YAML file, where paths are relative to its folder and `weights` may be a mere name.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or does not make a topology.
    """
    origin = f"topology {path}"
    values = load_mapping(read_text(path, "topology"), origin)
    if isinstance(values.get("weights"), str):
        values["weights"] = {"name": values["weights"]}
    return validate(_class_of(values, origin), values, origin, Path(path).parent)


def _class_of(values: dict[str, Any], origin: str) -> type[Topology]:
    kind = values.get("kind")
    known = topologies()
    if isinstance(kind, str) and kind in known:
        return known[kind]
    close = difflib.get_close_matches(str(kind), known, 1)
    found = f"found {kind!r}" + (f" (did you mean {close[0]}?)" if close else "") if "kind" in values else "missing"
    raise ConfigError(f"{origin}: kind: {found}; allowed: {', '.join(known)}")


def components(graph: nx.Graph) -> list[list[int]]:
    """Return the nodes of each connected component, ascending; components in the order of their first nodes."""
    return sorted(sorted(component) for component in nx.connected_components(graph))


def without(graph: nx.Graph, dropped: Collection[int]) -> nx.Graph:
    """Return the graph of the nodes that are left, numbered from 0 in their order; edges and nodes keep their data.

    Raises:
        ConfigError: it falls into more components than before, each of which would be on its own.
    """
    left = sorted(set(graph) - set(dropped))
    smaller = nx.Graph()
    smaller.add_nodes_from((place, graph.nodes[node]) for place, node in enumerate(left))
    places = {node: place for place, node in enumerate(left)}
    kept = graph.subgraph(left).edges(data=True)
    smaller.add_edges_from((places[i], places[j], about) for i, j, about in kept)
    if len(parts := components(smaller)) > len(components(graph)):
        named = " | ".join(_as_ranges([left[place] for place in part]) for part in parts)
        raise ConfigError(
            f"dropped_clients: found {sorted(dropped)}, without whom the graph falls into {len(parts)} components, "
            f"clients {named}; allowed: clients without whom the others stay connected"
        )
    return smaller


def diameter(graph: nx.Graph) -> float:
    """Return the largest number of edges between two nodes; infinite for a disconnected graph."""
    return nx.diameter(graph) if nx.is_connected(graph) else math.inf


def disconnection_warning(graph: nx.Graph, most: int = 10) -> str | None:
    """Return what to tell the user of a disconnected graph, naming its components; None for a connected one.

    Args:
        graph: of the clients.
        most: how many components are named.
    """
    found = components(graph)
    if len(found) == 1:
        return None
    named = " | ".join(_as_ranges(component) for component in found[:most])
    more = f" | and {len(found) - most} more" if len(found) > most else ""
    return (
        f"the graph has {len(found)} components, and nothing passes between them: clients {named}{more}. "
        "Each component samples the product of its own clients' potentials alone"
    )


def _as_ranges(nodes: list[int]) -> str:
    """Return ascending numbers as text, consecutive ones as a range: 0-3, 7."""
    starts = [node for node in nodes if node - 1 not in set(nodes)]
    ends = [node for node in nodes if node + 1 not in set(nodes)]
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
