"""Pictures of what is around the draws: clients on their graph, their consensus, predictions and their calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedlangevin_mpi.evaluate.predictive import Reliability

Array = np.ndarray[Any, np.dtype[Any]]

_WIDTH = 6.4


def consensus(iterations: Sequence[int], distances: Sequence[float | None]) -> Figure:
    """Draw the root-mean-square distance of clients from their average over the iterations."""
    figure = Figure(figsize=(_WIDTH, 2.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(iterations, np.array(distances, float), marker="." if len(iterations) == 1 else "")
    axes.set_xlabel("iteration")
    axes.set_ylabel("distance")
    axes.set_ylim(bottom=0)
    return figure


def agents(numbers: Sequence[int], errors: Array, title: str) -> Figure:
    """Draw a bar a client.

    Args:
        numbers: of the clients.
        errors: `(client,)`.
        title: of the axis.
    """
    figure = Figure(figsize=(_WIDTH, 2.2), layout="constrained")
    axes = figure.subplots()
    axes.bar(numbers, errors)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("client")
    axes.set_ylabel(title)
    return figure


def network(graph: nx.Graph, numbers: Sequence[int], errors: Array, title: str) -> Figure:
    """Draw the clients' graph, each client in the colour of its error.

    Args:
        graph: of nodes 0 to N - 1.
        numbers: of the clients that they are.
        errors: `(N,)`.
        title: of the colours.
    """
    figure = Figure(figsize=(_WIDTH, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.axis("off")
    axes.set_aspect("equal")
    layout = nx.kamada_kawai_layout if nx.is_connected(graph) else nx.circular_layout
    crowded = len(graph) > 50
    places = layout(graph)
    nx.draw_networkx_edges(graph, places, ax=axes, edge_color="#808080")
    points = np.array([places[node] for node in range(len(graph))])
    shades = axes.scatter(points[:, 0], points[:, 1], c=errors, s=40 if crowded else 240, cmap="viridis", zorder=2)
    if not crowded:
        for node, (x, y) in enumerate(points):
            light = errors[node] > (errors.min() + errors.max()) / 2  # the bright half of viridis
            colour = "#111111" if light else "#ffffff"
            axes.text(x, y, str(numbers[node]), ha="center", va="center", fontsize=8, color=colour)
    figure.colorbar(shades, ax=axes, label=title, shrink=0.8)
    return figure


def reliability(table: Reliability) -> Figure:
    """Draw accuracy against confidence, and how many predictions each bin holds."""
    figure = Figure(figsize=(_WIDTH, 3.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    filled = table.counts > 0
    above.plot([0, 1], [0, 1], linestyle=":", color="#808080", linewidth=0.8)
    above.plot(table.confidence[filled], table.accuracy[filled], "o-", markersize=4)
    above.set_ylabel("accuracy")
    above.set_ylim(0, 1.03)
    below.stairs(table.counts, table.edges, fill=True)
    below.set_ylabel("rows")
    below.set_xlabel("confidence")
    return figure


def entropy(values: Array, right: Array) -> Figure:
    """Draw how uncertain predictions are, right ones and wrong ones apart.

    Args:
        values: `(n,)` predictive entropy of the rows, in nats.
        right: `(n,)` whether the most probable class is the label.
    """
    figure = Figure(figsize=(_WIDTH, 2.4), layout="constrained")
    axes = figure.subplots()
    edges = np.linspace(0, max(float(values.max()), 1e-9), 25)
    for chosen, label in ((right, "right"), (~right, "wrong")):
        axes.stairs(np.histogram(values[chosen], edges)[0], edges, fill=True, alpha=0.6, label=label)
    axes.set_xlabel("predictive entropy, nats")
    axes.set_ylabel("rows")
    axes.legend()
    return figure


def bars(names: Sequence[str], values: Sequence[float], title: str) -> Figure:
    """Draw a bar a run."""
    figure = Figure(figsize=(_WIDTH, 0.7 + 0.35 * len(names)), layout="constrained")
    axes = figure.subplots()
    axes.barh(names, values)
    axes.invert_yaxis()
    axes.set_xlabel(title)
    return figure
