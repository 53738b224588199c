"""What `fedlangevin topology show` and `check` print."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.topology.graph import Topology, components, diameter, disconnection_warning, read_topology
from fedlangevin_mpi.topology.mixing import fingerprint, mixing_matrix
from fedlangevin_mpi.topology.picture import draw_picture
from fedlangevin_mpi.topology.spectrum import spectrum

Array = np.ndarray[Any, np.dtype[Any]]

_MOST_ADJACENCY = 64
_MOST_WEIGHTS = 10


def show(topology: Topology, clients: int | None = None, picture: Path | None = None) -> None:
    """Print a topology's graph, its mixing matrix and what the matrix's eigenvalues say; draw it into a file.

    Args:
        topology: as read from a file.
        clients: how many there are; None where the topology is for a fixed number.
        picture: file to write, `.png` or `.svg`; None for none.

    Raises:
        ConfigError: the topology does not fit the clients, makes no mixing matrix, or cannot be drawn into this file.
    """
    clients = _number_of_clients(topology, clients)
    graph, W = topology.graph(clients), mixing_matrix(topology, clients)
    console = Console()
    console.print(_facts(topology, graph, W))
    warning = disconnection_warning(graph)
    if warning is not None:
        console.print(Text(f"warning: {warning}"))
    if clients <= _MOST_ADJACENCY:
        console.print(_adjacency(graph), soft_wrap=True)
    if clients <= _MOST_WEIGHTS:
        console.print(_weights(W))
    if picture is not None:
        draw_picture(graph, W, picture)
        console.print(Text(f"wrote {picture}"))


def check_file(path: Path, clients: int | None = None) -> None:
    """Read a topology file, check the mixing matrix that it makes, and print one line that says so.

    Args:
        path: of the file.
        clients: how many there are; None where the topology is for a fixed number.

    Raises:
        ConfigError: what is wrong with the file or its matrix.
    """
    topology = read_topology(path)
    clients = _number_of_clients(topology, clients)
    graph, W = topology.graph(clients), mixing_matrix(topology, clients)
    about = f"{_title(topology, graph)}, spectral gap {_number(spectrum(W).gap)}, W is {fingerprint(W)[:12]}"
    print(f"{path}: correct: {about}")
    warning = disconnection_warning(graph)
    if warning is not None:
        print(f"warning: {warning}")


def _number_of_clients(topology: Topology, clients: int | None) -> int:
    number = clients if clients is not None else topology.fixed_clients()
    if number is None:
        raise ConfigError(f"--clients: missing; allowed: 1, 2, ..., since topology {topology.kind} fits many")
    return number


def _title(topology: Topology, graph: nx.Graph) -> str:
    return f"{topology.kind} of {_counted(len(graph), 'client')}, weights {topology.weights.name}"


def _facts(topology: Topology, graph: nx.Graph, W: Array) -> Table:
    degrees = Counter(degree for _, degree in graph.degree)
    values = spectrum(W)
    table = Table(title=_title(topology, graph), title_justify="left", show_header=False)
    table.add_row("edges", str(graph.number_of_edges()))
    neighbours = ", ".join(f"{degree} ({_counted(count, 'client')})" for degree, count in sorted(degrees.items()))
    table.add_row("degree", neighbours)
    table.add_row("components", str(len(components(graph))))
    table.add_row("diameter", f"{diameter(graph):g}")
    table.add_row("lambda_2", _number(values.lambda_2))
    table.add_row("lambda_N", _number(values.lambda_n))
    table.add_row("spectral gap", _number(values.gap))
    return table


def _number(value: float) -> str:
    """Return an eigenvalue as text, a zero without its rounding error."""
    return f"{round(value, 12) + 0.0:.6g}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _adjacency(graph: nx.Graph) -> Text:
    """Return the adjacency matrix as characters: a disc for an edge, a square for the client itself."""
    width = len(str(len(graph) - 1))
    lines = []
    for i in range(len(graph)):
        cells = ("■" if i == j else "●" if graph.has_edge(i, j) else "·" for j in range(len(graph)))
        lines.append(f"{i:>{width}} {' '.join(cells)}")
    return Text("\n".join(lines))


def _weights(W: Array) -> Table:
    table = Table("W", *(str(j) for j in range(len(W))))
    for i, row in enumerate(W):
        table.add_row(str(i), *(f"{w:.4g}" for w in row))
    return table
