"""Pictures of draws: traces, ranks, intervals and pairs.

They are those of ArviZ (rank plots: Vehtari et al. 2021), drawn with Matplotlib alone: ArviZ's own differ between 0.x
and 1.x, and take four seconds to import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import rankdata

from fedlangevin_mpi.report.ink import PALETTE

Array = np.ndarray[Any, np.dtype[Any]]

RANK_BINS = 20
_TRACE_POINTS = 400
_PAIR_POINTS = 600
_WIDTH = 6.4


def trace(iterations: Array, series: Array, labels: Sequence[str]) -> Figure:
    """Draw each parameter over the iterations, a line a chain, of at most 400 evenly spaced draws.

    Args:
        iterations: `(draw,)`.
        series: `(draw, chain, parameter)`.
        labels: of the parameters.
    """
    step = max(1, -(-len(iterations) // _TRACE_POINTS))
    figure = Figure(figsize=(_WIDTH, 0.4 + 1.1 * len(labels)), layout="constrained")
    rows = figure.subplots(len(labels), 1, sharex=True, squeeze=False)[:, 0]
    for k, (axes, label) in enumerate(zip(rows, labels, strict=True)):
        axes.plot(iterations[::step], series[::step, :, k], linewidth=0.7, marker="." if len(iterations) == 1 else "")
        axes.set_title(label, loc="left", fontsize=10)
    rows[-1].set_xlabel("iteration")
    return figure


def ranks(series: Array, labels: Sequence[str]) -> Figure:
    """Draw how the draws of each chain rank among those of all chains: flat where chains agree.

    Args:
        series: `(draw, chain, parameter)`.
        labels: of the parameters.
    """
    draws, chains, _ = series.shape
    columns = min(2, len(labels))
    rows = -(-len(labels) // columns)
    figure = Figure(figsize=(_WIDTH, 0.4 + 1.4 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
    edges = np.linspace(0, draws * chains, RANK_BINS + 1)
    for k, label in enumerate(labels):
        places = rankdata(series[:, :, k]).reshape(draws, chains) - 0.5
        for chain in range(chains):
            counts = np.histogram(places[:, chain], edges)[0] / draws * RANK_BINS
            grid[k].stairs(counts, edges, color=PALETTE[chain % len(PALETTE)])
        grid[k].axhline(1, linestyle=":", linewidth=0.8, color="#808080")
        grid[k].set_title(label, loc="left", fontsize=10)
        grid[k].set_ylim(bottom=0)
    for axes in grid[len(labels) :]:
        axes.remove()
    figure.supxlabel("rank among all draws", fontsize=10)
    return figure


def histograms(values: Array, labels: Sequence[str]) -> Figure:
    """Draw how particles are distributed, with a mark for each.

    Args:
        values: `(particle, parameter)`.
        labels: of the parameters.
    """
    figure = Figure(figsize=(_WIDTH, 0.4 + 1.2 * len(labels)), layout="constrained")
    for k, axes in enumerate(figure.subplots(len(labels), 1, squeeze=False)[:, 0]):
        axes.hist(values[:, k], bins="auto", density=True, alpha=0.6)
        axes.plot(values[:, k], np.zeros(len(values)), "|", color=PALETTE[1], markersize=8)
        axes.set_title(labels[k], loc="left", fontsize=10)
        axes.set_yticks([])
    return figure


def intervals(
    rows: Mapping[str, Mapping[str, Sequence[float | None]]], labels: Sequence[str], exact: tuple[Array, Array] | None
) -> Figure:
    """Draw means and 94 % highest density intervals, a row a parameter and a mark a run.

    Args:
        rows: by run, `mean`, `hdi_low` and `hdi_high` of the parameters.
        labels: of the parameters.
        exact: their exact means and standard deviations, each `(parameter,)`, where they are known.
    """
    places = np.arange(len(labels), dtype=float)[::-1]
    known = exact is not None
    lanes = np.linspace(0.25, -0.25, len(rows) + known) if len(rows) + known > 1 else np.zeros(1)
    figure = Figure(figsize=(_WIDTH, 0.9 + max(0.25, 0.12 * len(lanes)) * len(labels)), layout="constrained")
    axes = figure.subplots()
    for k, (run, columns) in enumerate(rows.items()):
        mean, low, high = (np.array(columns[name], float) for name in ("mean", "hdi_low", "hdi_high"))
        y, colour = places + lanes[k], PALETTE[k % len(PALETTE)]
        axes.hlines(y, low, high, color=colour, linewidth=2)
        axes.plot(mean, y, "o", markersize=4, color=colour, label=run)
    if exact is not None:
        half = 1.8807936 * exact[1]  # 94 % of a Gaussian
        axes.hlines(places + lanes[-1], exact[0] - half, exact[0] + half, color="#808080", linewidth=2)
        axes.plot(exact[0], places + lanes[-1], "D", markersize=4, color="#808080", label="exact posterior")
    axes.set_yticks(places, labels)
    axes.set_ylim(-0.6, len(labels) - 0.4)
    if len(lanes) > 1:
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def pairs(series: Array, labels: Sequence[str]) -> Figure:
    """Draw every two parameters against each other, at most 600 evenly spaced draws of all chains.

    Args:
        series: `(draw, chain, parameter)`.
        labels: of the parameters, at least two.
    """
    flat = series.reshape(-1, series.shape[2])
    flat = flat[:: max(1, -(-len(flat) // _PAIR_POINTS))]
    size = len(labels) - 1
    figure = Figure(figsize=(_WIDTH, 0.6 + _WIDTH * size / max(size, 2) * 0.9), layout="constrained")
    grid = figure.subplots(size, size, squeeze=False, sharex="col", sharey="row")
    for i in range(size):
        for j in range(size):
            if j > i:
                grid[i, j].remove()
                continue
            grid[i, j].plot(flat[:, j], flat[:, i + 1], ".", markersize=2, alpha=0.5)
            if i == size - 1:
                grid[i, j].set_xlabel(labels[j])
            if j == 0:
                grid[i, j].set_ylabel(labels[i + 1])
    return figure
