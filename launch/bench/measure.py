"""What the benches share: both sides measured in turn, in one run, and ratios printed as median (least to most)."""

from __future__ import annotations

import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mpi4py import MPI

import fedlangevin_mpi
from fedlangevin_mpi.config import make_config

COMM = MPI.COMM_WORLD
ROUNDS = 5


def seconds_an_iteration(folder: Path, values: dict[str, Any]) -> float:
    """Return what one run of the whole runtime took an iteration, start-up and compilation apart."""
    config = make_config({"output": {"directory": str(folder / "run")}} | values)
    run = fedlangevin_mpi.run(config, force=True)
    assert run.statistics is not None
    return 1 / run.statistics.iterations_per_second


def together(action: Callable[[], None], times: int) -> float:
    """Return the seconds that `action` takes on both ranks at once, an average over `times`."""
    COMM.Barrier()
    started = time.perf_counter()
    for _ in range(times):
        action()
    COMM.Barrier()
    return (time.perf_counter() - started) / times


def report(claim: str, ratios: list[float], allowed: str, detail: str) -> None:
    if COMM.rank == 0:
        low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
        print(f"{claim:58} {middle:7.2f} ({low:.2f} to {high:.2f}; allowed {allowed})  {detail}", flush=True)


def ratio(numerators: list[float], denominators: list[float]) -> list[float]:
    return [a / b for a, b in zip(numerators, denominators, strict=True)]


def measure(benches: Mapping[str, Callable[[Path], None]]) -> None:
    """Run the benches that the command line names, or all."""
    logging.getLogger("fedlangevin_mpi").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as own:
        folder = Path(COMM.bcast(own))
        for name in sys.argv[1:] or benches:
            benches[name](folder)
