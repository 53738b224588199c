"""Print the summaries of runs side by side: python launch/compare.py DIR [DIR ...]."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

Summary = dict[str, Any]
Value = Callable[[Summary], str]

POSTERIOR = {"mean": "7.3f", "sd": ".3f", "ess_bulk": ".0f", "r_hat": ".3f"}
PREDICTIONS: dict[str, Value] = {
    "accuracy": lambda run: f"{run['metrics']['accuracy']:.4f}",
    "ECE (expected calibration error)": lambda run: f"{run['metrics']['ece']:.4f}",
    "MCE (maximum calibration error)": lambda run: f"{run['metrics']['mce']:.4f}",
    "Brier score": lambda run: f"{run['metrics']['brier']:.4f}",
    "negative log-likelihood a row": lambda run: f"{run['metrics']['nll']:.4f}",
}
COST: dict[str, Value] = {
    "iterations of every client": lambda run: f"{run['iterations']:,}",
    "iterations a second": lambda run: f"{run['iterations_per_second']:,.0f}",
    "communication rounds": lambda run: f"{run['communication']['rounds']:,}",
    "bytes sent by the clients": lambda run: f"{run['communication']['bytes']:,}",
}


def posterior(runs: Sequence[Summary]) -> Table:
    table = _table("Posterior, of the average over clients", "parameter", "sampler")
    for column in ("mean", "sd", "ESS", "R-hat"):
        table.add_column(column, justify="right")
    for row, name in enumerate(runs[0]["parameters"]["name"]):
        for run in runs:
            values = [format(run["parameters"][key][row], form) for key, form in POSTERIOR.items()]
            table.add_row(escape(name) if run is runs[0] else "", run["algorithm"], *values)
    return table


def comparison(title: str, rows: dict[str, Value], runs: Sequence[Summary]) -> Table:
    table = _table(title, "")
    for run in runs:
        table.add_column(run["algorithm"], justify="right")
    for meaning, value in rows.items():
        table.add_row(meaning, *(value(run) for run in runs))
    return table


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, title=f"\n{title}", title_justify="left", title_style="bold", box=None, pad_edge=False)


def main() -> None:
    directories = [Path(name) for name in sys.argv[1:]]
    runs = [json.loads((directory / "summary.json").read_text(encoding="utf-8")) for directory in directories]
    console = Console(highlight=False)
    console.print(posterior(runs))
    console.print(comparison("Predictions on held-out rows", PREDICTIONS, runs))
    console.print(comparison("Cost", COST, runs))
    console.print()
    for run, directory in zip(runs, directories, strict=True):
        console.print(f"{run['algorithm']}: draws (rank-*.h5), logs and summary.json in {directory}/", soft_wrap=True)


if __name__ == "__main__":
    main()
