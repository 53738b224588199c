"""A network drawn into a file, with the weights of W as widths of its edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from fedlangevin_mpi.errors import ConfigError

Array = np.ndarray[Any, np.dtype[Any]]


def draw_picture(graph: nx.Graph, W: Array, path: Path) -> None:
    """Draw a graph; the heavier an edge's weight, the wider its line.

    Args:
        graph: over the nodes 0 to N - 1.
        W: `(N, N)` its mixing matrix.
        path: file to write, `.png` or `.svg`.

    Raises:
        ConfigError: another suffix, or the file cannot be written.
    """
    if path.suffix not in (".png", ".svg"):
        raise ConfigError(f"picture {path}: allowed: a file name that ends in .png or .svg")
    from matplotlib.figure import Figure  # half a second, which only a picture is worth

    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.add_subplot(aspect="equal")
    axes.axis("off")
    widest = max((W[i, j] for i, j in graph.edges), default=1.0)
    # Kamada-Kawai pulls far components together as if they were linked, so these go around a circle.
    layout = nx.kamada_kawai_layout if nx.is_connected(graph) else nx.circular_layout
    crowded = len(graph) > 50
    nx.draw_networkx(
        graph,
        layout(graph),
        ax=axes,
        with_labels=not crowded,
        node_size=40 if crowded else 300,
        node_color="#dbe9f6",
        edgecolors="#1f4e79",
        edge_color="#7f7f7f",
        width=[0.5 + 3 * W[i, j] / widest for i, j in graph.edges],
        font_size=9,
    )
    try:
        figure.savefig(path)
    except OSError as e:
        raise ConfigError(f"picture {path}: cannot be written: {e.strerror}") from None
