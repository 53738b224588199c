"""What the scripts for the DSVGD paper share: predictions after every communication round, in tables and figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from fedlangevin_mpi.evaluate.held_out import predictive_of
from fedlangevin_mpi.evaluate.predictive import Reliability, accuracy, mce, nll, posterior_predictive, reliability
from fedlangevin_mpi.store.reader import Run

BINS = 10  # of the confidence; with more, some hold a few test rows


class Result(NamedTuple):
    """What is shown of a run.

    Attributes:
        accuracy: `(rounds,)` of held-out rows.
        log_likelihood: `(rounds,)` mean of held-out rows.
        mce: of the last round.
        table: reliability of the last round.
    """

    accuracy: list[float]
    log_likelihood: list[float]
    mce: float
    table: Reliability

    def cells(self) -> list[str]:
        """Return the last round in text."""
        return [f"{100 * self.accuracy[-1]:.1f}", f"{self.log_likelihood[-1]:.3f}", f"{self.mce:.2f}"]


def result(run: Run, rounds: int) -> Result:
    """Return the predictions of the first rounds of a run, each by the average over its particles."""
    predictive = predictive_of(run)
    assert predictive is not None  # every data set here has held-out rows
    draws, y = run.average()[:rounds], predictive.y
    predicted = [posterior_predictive(predictive.predict, draw, predictive.x) for draw in draws]
    return Result(
        [accuracy(p, y) for p in predicted],
        [-nll(p, y) for p in predicted],
        mce(predicted[-1], y, BINS),
        reliability(predicted[-1], y, BINS),
    )


def print_settings(settings: Iterable[tuple[str, str, str]]) -> None:
    """Print what, the paper's, ours."""
    table = Table("setting", "the paper", "here")
    for row in settings:
        table.add_row(*row)
    Console(width=130).print(table)


def print_results(
    name: str,
    results: Mapping[int, Mapping[str, Result]],
    more: Mapping[str, Mapping[int, Mapping[str, str]]] | None = None,
) -> None:
    """Print the last round of every method.

    Args:
        name: of the data.
        results: by number of agents, and by method.
        more: columns, by their heads; each as `results`.
    """
    more = more or {}
    heads = [f"{what}, K={k}" for k in results for what in ("acc %", "log-lik", "MCE", *more)]
    rounds = " and ".join(str(len(next(iter(found.values())).accuracy)) for found in results.values())
    table = Table("method", *heads, title=f"{name}: after {rounds} communication rounds")
    for method in next(iter(results.values())):
        cells = [
            [*found[method].cells(), *(column[k][method] for column in more.values())] for k, found in results.items()
        ]
        table.add_row(method, *(cell for row in cells for cell in row))
    Console(width=130).print(table)


def curves(results: Mapping[int, Mapping[str, Result]]) -> Figure:
    """Return accuracy and log-likelihood against rounds, a column for each number of agents."""
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    grid = figure.subplots(2, len(results), squeeze=False)
    for column, (agents, found) in enumerate(results.items()):
        for axes, values in ((grid[0, column], "accuracy"), (grid[1, column], "log_likelihood")):
            for name, one in found.items():
                numbers = getattr(one, values)
                axes.plot(range(1, len(numbers) + 1), numbers, marker=".", markersize=3, linewidth=1, label=name)
            _zoom(axes, [getattr(one, values) for one in found.values()])
            axes.set_ylabel(values.replace("_", "-"))
        grid[0, column].set_title(f"K = {agents}")
        grid[1, column].set_xlabel("communication rounds")
    figure.legend(*grid[0, -1].get_legend_handles_labels(), fontsize="small", loc="outside right upper")
    return figure


def _zoom(axes: Axes, values: list[list[float]]) -> None:
    """Leave out what is far below: a method that fails, and first rounds."""
    everything = np.concatenate(values)
    low, middle, top = *np.quantile(everything, [0.05, 0.5]), everything.max()
    axes.set_ylim(max(everything.min(), min(low, middle - 2 * (top - middle))) - 0.01, top + 0.01)


def diagrams(panels: Mapping[str, Mapping[str, Result]], classes: int) -> Figure:
    """Return reliability diagrams of the last round, a panel for each title with a line for each label."""
    figure = Figure(figsize=(1 + 4 * len(panels), 4), layout="constrained")
    for axes, (title, found) in zip(
        figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels.items(), strict=True
    ):
        axes.plot([1 / classes, 1], [1 / classes, 1], linestyle=":", color="#808080")
        for name, one in found.items():
            filled = one.table.counts > 0
            axes.plot(one.table.confidence[filled], one.table.accuracy[filled], ".-", linewidth=1, label=name)
        axes.set(title=title, xlabel="confidence", ylabel="accuracy")
    figure.legend(*axes.get_legend_handles_labels(), fontsize="small", loc="outside right upper")
    return figure
