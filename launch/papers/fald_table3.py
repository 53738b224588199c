"""The FALD paper's Table 3 on a small part of its data: LeNet-5 on 5,000 images of MNIST, beside the published numbers.

    python launch/papers/fald_table3.py [--seeds 3] [--ranks 2] [key=value ...]

20 clients, 80 % of a label to two of them, batch 8, p_c = 1/20. SGLD is centralised, with the same rows an iteration
(batch 160) and the step of the clients' average. The paper has 60,000 images, 1e5 iterations of step 1e-7 and a fine
thinning; here are 4,000 images, some thousand iterations and a step that is larger in the same proportion. Its
accuracies are therefore out of reach (a network that is trained on 4,000 images has about 96 %); what can be compared
is the order of the methods.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from runs import arguments, sample, with_overrides

from fedlangevin_mpi.store.metadata import SUMMARY_FILE

CONFIG = Path(__file__).with_name("fald-table3.yaml")
PUBLISHED = {  # accuracy in %, 1e3 ECE, 1e2 Brier score, 1e2 negative log likelihood
    "SGLD": (99.1, 6.88, 1.66, 3.53),
    "pSGLD": (99.2, 21.6, 1.45, 4.24),
    "FALD": (99.1, 4.07, 1.47, 3.06),
    "VR-FALD*": (99.2, 4.34, 1.39, 3.43),
    "FedAvg": (),
}
FACTORS = {"accuracy": 100, "ece": 1e3, "brier": 100, "nll": 100}


def samplers(given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the overrides of every sampler of the table."""
    config = with_overrides(CONFIG, given)
    step, clients, rows = config.algorithm.step_size, config.clients, config.algorithm.batch_size
    assert isinstance(step, float)
    assert clients
    assert rows
    common = {"step_size": step, "communication_probability": 1 / clients, "batch_size": rows}
    centralised = {"name": "sgld", "step_size": step / clients, "batch_size": rows * clients}
    return {
        "SGLD": {"clients": 1, "data.partition": {"name": "iid"}, "algorithm": centralised},
        "pSGLD": {
            "clients": 1,
            "data.partition": {"name": "iid"},
            "algorithm": centralised | {"name": "psgld", "step_size": 1e-3},
        },
        "FALD": {"algorithm": {"name": "fald"} | common},
        "VR-FALD*": {"algorithm": {"name": "vr_fald", "reference_probability": 1 / 100} | common},
        "FedAvg": {"algorithm": {"name": "fed_avg"} | common},
    }


def cell(values: list[float]) -> str:
    """Return the mean over seeds, and their standard deviation."""
    return f"{statistics.mean(values):.3g}" + (f" ± {statistics.stdev(values):.2g}" if len(values) > 1 else "")


def main() -> None:
    parser = arguments("LeNet-5 on 5,000 images of MNIST, as in table 3 of the FALD paper")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="how many, from --seed on")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as iterations=10000")
    given = parser.parse_args()
    pairs = (text.split("=", 1) for text in given.overrides)
    overrides = {key: yaml.safe_load(text) for key, text in pairs}
    console, table = Console(), Table("", "accuracy", "1e3 ECE", "1e2 BS", "1e2 nNLL", "published", "it/s")
    for name, own in samplers(overrides).items():
        found: dict[str, list[float]] = {metric: [] for metric in FACTORS}
        rates = []
        for seed in range(given.seed, given.seed + given.seeds):
            directory = given.output / "fald-table3" / f"{name.lower().strip('*')}-{seed}"
            ranks = 1 if own.get("clients") == 1 else given.ranks
            run = sample(CONFIG, directory, ranks, {"seed": seed} | overrides | own)
            summary = json.loads((run.directory / SUMMARY_FILE).read_text())
            rates.append(summary["iterations_per_second"])
            for metric, factor in FACTORS.items():
                found[metric].append(factor * summary["metrics"][metric])
        published = " / ".join(map(str, PUBLISHED[name]))
        table.add_row(name, *map(cell, found.values()), published, f"{statistics.mean(rates):.3g}")
    console.print(table)


if __name__ == "__main__":
    main()
