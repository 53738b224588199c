"""The FALD paper's Table 3 on a small part of its data: LeNet-5 on 5,000 images of MNIST, beside the published numbers.

    python launch/papers/fald_table3.py [--seeds 3] [--ranks 2] [key=value ...]

DOC
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import yaml
from fald_networks import gradient_rows, samplers, warm_start
from rich.console import Console
from rich.table import Table
from runs import arguments, sample, training_rows, with_overrides

from fedlangevin_mpi.store.metadata import SUMMARY_FILE
from fedlangevin_mpi.store.reader import Run

CONFIG = Path(__file__).with_name("fald-table3.yaml")
PUBLISHED = {  # accuracy in %, 1e3 ECE, 1e2 Brier score, 1e2 negative log likelihood
    "SGLD": "99.1 / 6.88 / 1.66 / 3.53",
    "pSGLD": "99.2 / 21.6 / 1.45 / 4.24",
    "FALD": "99.1 / 4.07 / 1.47 / 3.06",
    "VR-FALD*": "99.2 / 4.34 / 1.39 / 3.43",
    "FedAvg": "",
}
COLUMNS = {"accuracy": ("accuracy %", 100), "ece": ("1e3 ECE", 1e3), "brier": ("1e2 BS", 100), "nll": ("1e2 nNLL", 100)}


def row(run: Run, rows: int) -> list[float]:
    """Return the metrics of the table, of how many thousand rows gradients were computed, and seconds."""
    summary = json.loads((run.directory / SUMMARY_FILE).read_text())
    metrics = [factor * summary["metrics"][metric] for metric, (_, factor) in COLUMNS.items()]
    return [*metrics, gradient_rows(run, rows) / 1000, summary["wall_seconds"]]


def cell(values: tuple[float, ...]) -> str:
    """Return the mean over seeds, and their standard deviation."""
    return f"{statistics.mean(values):.3g}" + (f" ± {statistics.stdev(values):.2g}" if len(set(values)) > 1 else "")


def show(found: dict[str, list[list[float]]]) -> None:
    """Print the table: of every sampler, a row of numbers a seed."""
    table = Table("", *(head for head, _ in COLUMNS.values()), "1e3 gradients", "seconds", "published")
    for name, seeds in found.items():
        table.add_row(name, *map(cell, zip(*seeds, strict=True)), PUBLISHED[name])
    Console(width=130).print(table)


def main() -> None:
    parser = arguments("LeNet-5 on 5,000 images of MNIST, as in table 3 of the FALD paper")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="how many, from --seed on")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as iterations=10000")
    given = parser.parse_args()
    overrides = {key: yaml.safe_load(text) for key, text in (pair.split("=", 1) for pair in given.overrides)}
    found: dict[str, list[list[float]]] = {name: [] for name in PUBLISHED}
    for seed in range(given.seed, given.seed + given.seeds):
        folder, common = given.output / f"fald-table3-{seed}", overrides | {"seed": seed}
        config = with_overrides(CONFIG, common)
        rows = training_rows(config)
        common |= warm_start(CONFIG, folder / "warm", given.ranks, common)
        differing = samplers(config, rows)
        for name in found:
            own = differing[name]
            ranks = 1 if own.get("clients") == 1 else given.ranks
            run = sample(CONFIG, folder / name.lower().strip("*"), ranks, common | own)
            found[name].append(row(run, rows))
    show(found)


if __name__ == "__main__":
    main()
