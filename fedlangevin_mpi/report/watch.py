"""`fedlangevin watch`: a run that is still going, seen through its files alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedlangevin_mpi.errors import StoreError
from fedlangevin_mpi.evaluate import diagnostics
from fedlangevin_mpi.store import layout
from fedlangevin_mpi.store.metadata import read_run_file, read_statistics
from fedlangevin_mpi.store.reader import Run, open_run

Array = np.ndarray[Any, np.dtype[Any]]

QUIET_SECONDS = 60.0
"""After so long without a written draw a run is said to be stuck or gone."""

_PARAMETERS = 50  # looked at
_SHOWN = 8
_DRAWS = 1000
_CLIENTS = 16
_SPARK = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 24


class Client(NamedTuple):
    """How a client does: draws that its rank has made, seconds since then, and its distance from the average.

    The distance is NaN where draws are not stored.
    """

    number: int
    draws: int
    silent: float
    distance: float


class Look(NamedTuple):
    """A run as it is at a moment.

    Attributes:
        run: None: there is no draw file yet.
        iteration: of the last draw, counted from 1; 0 before the first draw.
        iterations: that the config asks for.
        ended: whether the run came to its end.
        names: of some parameters, those with the largest R-hat first.
        r_hat: `(parameter,)`.
        recent: `(draw, parameter)` their latest draws, averaged over chains.
        clients: how they do.
        problem: why a later look failed, as where a rank has no file yet.
    """

    directory: Path
    run: Run | None
    iteration: int
    iterations: int
    ended: bool
    names: list[str]
    r_hat: Array
    recent: Array
    clients: list[Client]
    problem: str = ""


class Pace:
    """How fast a run goes, since the first look that saw a draw."""

    _first: tuple[float, int] | None = None

    def rate(self, seen: Look, now: Callable[[], float] = time.monotonic) -> float | None:
        """Return iterations a second; None until two looks tell."""
        if self._first is None or not self._first[1]:
            self._first = now(), seen.iteration
        passed, done = now() - self._first[0], seen.iteration - self._first[1]
        return done / passed if done > 0 and passed > 0 else None


def look(directory: Path, now: Callable[[], float] = time.time) -> Look:
    """Look at a run's files.

    Raises:
        StoreError: the folder holds no run, or a file of it cannot be read.
    """
    config, _ = read_run_file(directory)
    ended = read_statistics(directory) is not None
    iterations = int(config["iterations"])
    run = open_run(directory) if layout.rank_files(directory) else None
    if run is None or not run.kept:
        return Look(directory, run, 0, iterations, ended, [], np.empty(0), np.empty((0, 0)), [])
    names, r_hat, recent = _worst(run) if run.draws else ([], np.empty(0), np.empty((0, 0)))
    done = int(run.iterations[-1]) + 1
    return Look(directory, run, done, iterations, ended, names, r_hat, recent, _clients(run, now()))


def _worst(run: Run) -> tuple[list[str], Array, Array]:
    columns = slice(0, run.dim, -(-run.dim // _PARAMETERS))
    series = run.average()[-_DRAWS:, :, columns].astype(np.float64)
    r_hat = diagnostics.r_hat(np.moveaxis(series, 1, 0))
    order = np.argsort(-np.nan_to_num(r_hat, nan=-1.0), kind="stable")[:_SHOWN]
    labels = run.resolved.labels()[columns]
    return [labels[k] for k in order], r_hat[order], series.mean(1)[:, order]


def _clients(run: Run, now: float) -> list[Client]:
    newest = {client: (path, committed) for path, committed, clients in run.newest_files() for client in clients}
    columns = slice(0, run.dim, -(-run.dim // _PARAMETERS))
    centre = run.average()[-1:, :, columns]
    found = []
    for number in run.owners[:: max(1, -(-len(run.owners) // _CLIENTS))]:
        path, committed = newest[number]
        offset = run.position(number)[-1:, :, columns] - centre
        distance = float(np.sqrt(np.mean(np.square(offset)))) if run.draws else np.nan
        found.append(Client(number, committed, max(0.0, now - path.stat().st_mtime), distance))
    return found


def watch(directory: Path, seconds: float = 2.0, once: bool = False, console: Console | None = None) -> None:
    """Show a run until it ends: a view that renews itself on a terminal, a line at a time elsewhere.

    Args:
        directory: the run's folder.
        seconds: between two looks.
        once: show it as it is and return.
        console: where; standard output by default.

    Raises:
        StoreError: the folder holds no run, or a file of it cannot be read.
    """
    console = console or Console(highlight=False)
    seen = look(directory)
    if once or seen.ended:
        console.print(view(seen, None))
        return
    pace = Pace()
    if not console.is_terminal:
        while not seen.ended:
            console.print(line(seen, pace.rate(seen)), soft_wrap=True)
            time.sleep(seconds)
            seen = _again(seen)
        console.print(line(seen, None), soft_wrap=True)
        return
    with Live(view(seen, None), console=console, auto_refresh=False) as live:
        while not seen.ended:
            time.sleep(seconds)
            seen = _again(seen)
            live.update(view(seen, pace.rate(seen)), refresh=True)


def _again(seen: Look) -> Look:
    try:
        return look(seen.directory)
    except StoreError as e:
        return seen._replace(problem=str(e))


def line(seen: Look, rate: float | None) -> Text:
    """Return a run in one line."""
    parts = [f"iteration {seen.iteration:,} of {seen.iterations:,}"]
    if rate:
        parts += [
            f"{rate:,.0f} a second",
            f"{timedelta(seconds=round((seen.iterations - seen.iteration) / rate))} left",
        ]
    if len(seen.r_hat) and np.isfinite(seen.r_hat[0]):
        parts.append(f"R-hat {seen.r_hat[0]:.3f} ({seen.names[0]})")
    return Text(", ".join([*parts, _state(seen)]))


def view(seen: Look, rate: float | None) -> Group:
    """Return a run on a screen: how far it is, its worst parameters, its clients."""
    about = str(seen.directory) if seen.run is None else f"{seen.run.algorithm}: {seen.directory}"
    bar = Table.grid()
    bar.add_row(ProgressBar(total=seen.iterations, completed=seen.iteration, width=60))
    parts: list[Any] = [Text(about, style="bold"), line(seen, rate), bar]
    if seen.names:
        parts.append(_parameter_table(seen))
    if seen.clients:
        parts.append(_client_table(seen.clients))
    return Group(*parts)


def _parameter_table(seen: Look) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("parameter", "R-hat", "mean", "latest draws"):
        table.add_column(name, justify="right" if name in ("R-hat", "mean") else "left")
    for k, name in enumerate(seen.names):
        r_hat = f"{seen.r_hat[k]:.3f}" if np.isfinite(seen.r_hat[k]) else "-"
        table.add_row(Text(name), r_hat, f"{seen.recent[:, k].mean():.4g}", spark(seen.recent[:, k]))
    return table


def _client_table(clients: list[Client]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("client", "draws", "last", "off average"):
        table.add_column(name, justify="right")
    for client in clients:
        name = "server" if client.number == layout.SERVER else str(client.number)
        distance = f"{client.distance:.3g}" if np.isfinite(client.distance) else "-"
        table.add_row(name, f"{client.draws:,}", f"{timedelta(seconds=round(client.silent))} ago", distance)
    return table


def _state(seen: Look) -> str:
    if seen.problem:
        return seen.problem
    if seen.ended:
        return "ended"
    if seen.run is None or not seen.clients:
        return "no draw yet"
    silent = min(client.silent for client in seen.clients)
    return (
        f"nothing written for {timedelta(seconds=round(silent))}: stuck, or gone" if silent > QUIET_SECONDS else "going"
    )


def spark(values: Array) -> str:
    """Return values as a line of blocks, at most 24 of them, each the mean of its part."""
    parts = [part.mean() for part in np.array_split(values, min(_SPARK_WIDTH, len(values)))]
    low, high = min(parts), max(parts)
    if not high > low:
        return _SPARK[len(_SPARK) // 2] * len(parts)
    top = len(_SPARK) - 1
    return "".join(_SPARK[round((value - low) / (high - low) * top)] for value in parts)
