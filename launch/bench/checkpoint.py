"""What a checkpoint every second costs a compiled Gaussian run of ten seconds or more, on two ranks.

(a) As a ratio of two runs, with checkpoints and without. (b) As the share of the sampling time that the run spends in
writing them, the draws before them included: free of what else the machine does between two runs.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from measure import ROUNDS, measure, ratio, report

import fedlangevin_mpi
from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.runtime.loop import BlockLoop

ITERATIONS = 7_000_000


def run(folder: Path, every: float) -> tuple[float, float, int]:
    """Return the seconds of sampling, those spent in checkpoints but the last, and how many there were."""
    values = {
        "clients": 4,
        "chains": 4,
        "iterations": ITERATIONS,
        "thin": 100,
        "algorithm": {"name": "fald", "step_size": 1e-2, "communication_probability": 0.01},
        "model": {"name": "gaussian"},
        "data": {"name": "synthetic_gaussian", "dim": 10},
        "output": {"directory": str(folder / "run"), "checkpoint_seconds": every},
    }
    save = BlockLoop._save
    spent: list[float] = []

    def timed(self: Any, *arguments: Any) -> None:
        began = time.perf_counter()
        save(self, *arguments)
        spent.append(time.perf_counter() - began)

    BlockLoop._save = timed  # type: ignore[method-assign,assignment]
    try:
        done = fedlangevin_mpi.run(make_config(values), force=True)
    finally:
        BlockLoop._save = save  # type: ignore[method-assign]
    assert done.statistics is not None
    return ITERATIONS / done.statistics.iterations_per_second, sum(spent[:-1]), len(spent) - 1


def every_second(folder: Path) -> None:
    run(folder, 1e9)  # compiles
    without, with_them, share, detail = [], [], [], ""
    for _ in range(ROUNDS):
        without.append(run(folder, 1e9)[0])
        seconds, spent, count = run(folder, 1.0)
        with_them.append(seconds)
        share.append(1 + spent / (seconds - spent))
        detail = f"{count} in {seconds:.1f} s, {1e3 * spent / max(count, 1):.1f} ms each"
    report("(a) with checkpoints / without", ratio(with_them, without), "1.03", detail)
    report("(b) with checkpoints / without, by their share", share, "1.03", "")


if __name__ == "__main__":
    measure({"every_second": every_second})
