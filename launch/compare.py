"""Print the summaries of runs side by side: python launch/compare.py DIR [DIR ...]."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

METRICS = {
    "accuracy": "accuracy",
    "ece": "ECE, expected calibration error",
    "mce": "MCE, largest calibration error",
    "brier": "Brier score",
    "nll": "negative log-likelihood, nats a row",
}
POSTERIOR = {"mean": "{:.3f}", "sd": "{:.3f}", "ess_bulk": "{:.0f}", "r_hat": "{:.3f}"}


def posterior(runs: list[dict[str, Any]]) -> Table:
    table = Table("parameter", title="Posterior, of the average over clients")
    for run in runs:
        for column in ("mean", "sd", "ESS", "R-hat"):
            table.add_column(f"{run['algorithm']}\n{column}", justify="right")
    for row, name in enumerate(runs[0]["parameters"]["name"]):
        cells = [form.format(run["parameters"][key][row]) for run in runs for key, form in POSTERIOR.items()]
        table.add_row(name, *cells)
    return table


def predictions(runs: list[dict[str, Any]]) -> Table:
    table = _one_column_a_run("On held-out rows", runs)
    for key, meaning in METRICS.items():
        table.add_row(meaning, *(f"{run['metrics'][key]:.4f}" for run in runs))
    return table


def cost(runs: list[dict[str, Any]]) -> Table:
    table = _one_column_a_run("Cost", runs)
    table.add_row("iterations of every client", *(f"{run['iterations']:,}" for run in runs))
    table.add_row("of them a second, while sampling", *(f"{run['iterations_per_second']:,.0f}" for run in runs))
    for key, meaning in {"rounds": "rounds of communication", "bytes": "bytes between the clients"}.items():
        table.add_row(meaning, *(f"{run['communication'][key]:,}" for run in runs))
    return table


def _one_column_a_run(title: str, runs: list[dict[str, Any]]) -> Table:
    table = Table("", title=title)
    for run in runs:
        table.add_column(run["algorithm"], justify="right")
    return table


def main() -> None:
    directories = [Path(name) for name in sys.argv[1:]]
    runs = [json.loads((directory / "summary.json").read_text()) for directory in directories]
    console = Console()
    for table in (posterior(runs), predictions(runs), cost(runs)):
        console.print(table)
    for run, directory in zip(runs, directories, strict=True):
        console.print(f"{run['algorithm']}: draws, logs and summary.json in {directory}", highlight=False)


if __name__ == "__main__":
    main()
