"""A summary for people: a table of parameters, and what the run cost and is good for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from fedlangevin_mpi.evaluate.summary import DIAGNOSED

ROWS = 20
"""Parameters shown, unless all are asked for."""

_FORMATS = {
    "mean": ".4g",
    "sd": ".3g",
    "hdi_low": ".4g",
    "hdi_high": ".4g",
    "mcse_mean": ".2g",
    "ess_bulk": ".0f",
    "ess_tail": ".0f",
    "r_hat": ".3f",
}
_WIDEST = 1000


def print_summary(
    summary: Mapping[str, Any], directory: Path, console: Console | None = None, rows: int | None = ROWS
) -> None:
    """Print a summary: coloured on a terminal, plain text elsewhere.

    Args:
        summary: what `summary.json` holds.
        directory: the run's folder, to say where its files are.
        console: where to print, made as wide as the table needs; standard output by default.
        rows: parameters shown at most; None: all.
    """
    if console is None:
        console = Console(highlight=False)
    console.print(_title(summary), style="bold", soft_wrap=True)
    if summary["draws"] or not summary.get("averaged_draws"):
        _print_parameters(summary["parameters"], console, rows)
    else:
        console.print("no table of parameters: draws were averaged over, not stored (output.store: predictive)")
    console.print()
    lines = *_costs(summary), *_consensus(summary), *_metrics(summary), *_reference(summary)
    for name, value in (*lines, ("files", _files(directory))):
        console.print(f"{name:13} {value}", markup=False, soft_wrap=True)


def _print_parameters(parameters: Mapping[str, list[Any]], console: Console, rows: int | None) -> None:
    table = _parameter_table(parameters, rows)
    # A file or a pipe has no edge; a narrow terminal folds the names and then the rows, but no number loses a digit.
    needed = console.measure(table, options=console.options.update(width=_WIDEST))
    console.width = max(console.width, needed.minimum if console.is_terminal else needed.maximum)
    console.print(table)
    total = len(parameters["name"])
    if rows is not None and total > rows:
        console.print(f"... and {total - rows:,} more parameters; --json shows all")
    if total > DIAGNOSED:
        console.print(f"mcse, ess and r_hat of {DIAGNOSED:,} parameters, evenly spaced")


def _title(summary: Mapping[str, Any]) -> str:
    sizes = ("client", "rank", "particle" if "particles" in summary else "chain", "draw")
    counts = [(summary[f"{size}s"], size) for size in sizes]
    return ", ".join([summary["algorithm"], *(f"{n:,} {size}{'' if n == 1 else 's'}" for n, size in counts)])


def _parameter_table(parameters: Mapping[str, list[Any]], rows: int | None) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("parameter", overflow="fold", min_width=12)
    for name in _FORMATS:
        table.add_column(name.removesuffix("_mean"), justify="right")
    for k, name in enumerate(parameters["name"][:rows]):
        table.add_row(escape(name), *(_number(parameters[column][k], form) for column, form in _FORMATS.items()))
    return table


def _costs(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if summary["iterations"] is None:
        yield "iterations", "not known: the run has not ended"
        return
    seconds = f"{summary['wall_seconds']:.3g} s"
    parts = f"set-up {summary['setup_seconds']:.3g} s, compilation {summary['compile_seconds']:.3g} s"
    yield "iterations", f"{summary['iterations']:,} at {summary['iterations_per_second']:,.0f} a second"
    yield "time", f"{seconds} ({parts})"
    yield "gradients", f"{summary['gradient_evaluations']:,} evaluations"
    sent = summary["communication"]
    volume = f"{decimal(sent['bytes'])} ({decimal(sent['mpi_bytes'])} by MPI)"
    yield "communication", f"{sent['rounds']:,} rounds, {sent['messages']:,} messages, {volume}"


def _consensus(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "consensus" in summary:
        distances = summary["consensus"]["distance"]
        ends = f"{_number(distances[0], '.3g')} at first, {_number(distances[-1], '.3g')} at last"
        yield "consensus", f"clients are {ends} off their average (root mean square)"


def _metrics(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "averaged_draws" in summary:
        yield "predictive", f"averaged over {summary['averaged_draws']:,} draws as they were made"
    for name, value in summary["metrics"].items():
        yield name, _number(value, ".4f")


def _reference(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "reference" not in summary:
        return
    found = {
        name: value if name == "directory" else _number(value, ".3g") for name, value in summary["reference"].items()
    }
    yield "reference", found["directory"]
    yield "w2", f"{found['w2']} (halves of the reference: {found['w2_floor']}), sliced {found['sliced_w2']}"
    ratios = f"sd {found['min_sd_ratio']} to {found['max_sd_ratio']} times the reference's"
    yield "moments", f"means within {found['max_mean_difference']} sd, {ratios}"
    if "agreement" in found:
        yield "predictive", f"agreement {found['agreement']}, total variation {found['total_variation']}"


def _files(directory: Path) -> str:
    draws = [path.stat().st_size for path in directory.glob("rank-*.h5")]
    return f"{directory}{os.sep} (draws in {len(draws)} rank-*.h5, {decimal(sum(draws))})"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
