"""The FALD paper's Table 4, ResNet-20 on CIFAR-10, beside the published numbers; for a user who has CIFAR-10.

    python launch/papers/fald_table4.py --data cifar-10-batches-bin [--ranks N] [key=value ...]

`--data` is the folder with CIFAR-10's binary version, `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`.
With a GPU, add `device=cuda` (not tried: there was none). Without: an iteration takes gradients of 320 images through
ResNet-20, 1.4 seconds of a core, and the table with its reference takes as much as 180,000 of them: a day and a half on
two cores. Take many, or a part of it: `iterations=2000 warmup=1000`.

Agreement and total variation are against a reference. The paper has Hamiltonian Monte Carlo; here it is a run of SGLD
`--longer` times as long, with other random numbers, or any run of the same network of yours (`--reference DIR`).

What else differs: group normalisation for batch normalisation, without which a row's likelihood would depend on the
other rows; no augmentation; step, minibatches and p_c are ours, as the paper's are in no text at hand; the samplers
start where 1,000 iterations of FedAvg ended, and compute as many gradients as each other (`fald_networks`). The config
and this script were tested on made-up images of CIFAR-10's format, not on CIFAR-10.

Plassier, Moulines, Durmus: Federated averaging Langevin dynamics: toward a unified theory and new algorithms, AISTATS
2023, section 5.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from fald_networks import gradient_rows, samplers, warm_start
from rich.console import Console
from rich.table import Table
from runs import arguments, sample, with_overrides

from fedlangevin_mpi import open_run
from fedlangevin_mpi.data.images import Cifar10
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.evaluate.comparison import compare
from fedlangevin_mpi.store.metadata import SUMMARY_FILE
from fedlangevin_mpi.store.reader import Run

CONFIG = Path(__file__).with_name("fald-table4.yaml")
COLUMNS = ("accuracy %", "agreement %", "10 TV", "1e2 ECE", "10 BS", "10 nNLL")
PUBLISHED = {
    "HMC": (89.6, 94.0, 0.74, 5.9, 1.4, 3.07),
    "deep ensembles": (91.68, 91.03, 1.49, 5.44, 1.45, 3.81),
    "SGLD": (89.96, 92.43, 1.03, 4.41, 1.53, 3.15),
    "FALD": (92.54, 91.53, 1.42, 3.79, 1.16, 2.75),
    "VR-FALD*": (92.03, 91.12, 1.39, 3.26, 1.20, 2.63),
}

OURS = ("deep ensembles", "SGLD", "FALD", "VR-FALD*", "FedAvg")


def row(run: Run, reference: Run) -> tuple[float, ...]:
    """Return a row of the table."""
    metrics = json.loads((run.directory / SUMMARY_FILE).read_text())["metrics"]
    against = compare(run, reference)
    return (
        100 * metrics["accuracy"],
        100 * against["agreement"],
        10 * against["total_variation"],
        100 * metrics["ece"],
        10 * metrics["brier"],
        10 * metrics["nll"],
    )


def show(runs: dict[str, Run], reference: Run, rows: int) -> None:
    """Print ours beside the published numbers.

    Args:
        runs: by the table's names, and others.
        reference: of agreement and total variation.
        rows: to train on, of all clients.
    """
    table = Table("sampler", "", *COLUMNS, "1e6 gradients")
    for name in [*PUBLISHED, *(other for other in runs if other not in PUBLISHED)]:
        if name in runs:
            ours = map("{:.3g}".format, row(runs[name], reference))
            table.add_row(name, "ours", *ours, f"{gradient_rows(runs[name], rows) / 1e6:.3g}")
        if name in PUBLISHED:
            table.add_row(name, "published", *(f"{number:g}" for number in PUBLISHED[name]), "")
    Console(width=130).print(table)


def main() -> None:
    parser = arguments("ResNet-20 on CIFAR-10, as in table 4 of the FALD paper")
    parser.add_argument("--data", required=True, metavar="FOLDER", help="with CIFAR-10's binary version")
    parser.add_argument("--longer", type=int, default=4, metavar="N", help="how many times, the reference")
    parser.add_argument("--reference", type=Path, metavar="DIR", help="a run of yours to compare with")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as iterations=2000")
    given = parser.parse_args()
    overrides: dict[str, Any] = {k: yaml.safe_load(v) for k, v in (pair.split("=", 1) for pair in given.overrides)}
    overrides |= {"seed": given.seed, "data.path": given.data}
    config = with_overrides(CONFIG, overrides)
    assert isinstance(config.data, Cifar10)
    try:
        rows = config.data.train_rows or len(config.data.labels("train"))
    except ConfigError as error:
        parser.error(f"--data: {error}")
    folder = given.output / "fald-table4"
    overrides |= warm_start(CONFIG, folder / "warm", given.ranks, overrides)
    differing = samplers(config, rows)
    if given.reference:
        reference = open_run(given.reference)
    else:
        longer = {"seed": given.seed + 1, "iterations": given.longer * config.iterations}
        reference = sample(CONFIG, folder / "reference", 1, overrides | differing["SGLD"] | longer)
    runs = {}
    for name in OURS:
        ranks = 1 if differing[name].get("clients") == 1 else given.ranks
        runs[name] = sample(CONFIG, folder / name.lower().strip("*"), ranks, overrides | differing[name])
    show(runs, reference, rows)


if __name__ == "__main__":
    main()
