"""The FALD paper's Table 1: the error of the posterior variance estimated by FALD and VR-FALD*, beside the published.

    python launch/papers/fald_table1.py [--probability 0.1] [--fraction 0.2] [--ranks 2]

The step is `gamma = p_c gbar f`, `gbar = 2 / (lambda_min + lambda_max)` of the posterior precision; all chains start at
the posterior mean. The estimate of a chain is the mean of `|X_k - x*|^2` over its draws, X_k the average over clients;
what is printed is the mean over chains of its squared error against `tr Sigma*`. The paper's digits depend on means
and covariances that are not published, and its 1e7 iterations on core-days: expect its order, not its numbers.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from fedlangevin_mpi.config import read_config
from fedlangevin_mpi.evaluate import exact
from fedlangevin_mpi.evaluate.exact_report import quadratic_potentials
from fedlangevin_mpi.evaluate.recursion import Law
from fedlangevin_mpi.store.reader import open_run

CONFIG = Path(__file__).with_name("fald-table1.yaml")
SAMPLERS = {
    "FALD tau=0": ["algorithm.name=fald"],
    "VR-FALD* tau=0": ["algorithm.name=vr_fald"],
    "VR-FALD* tau=1": ["algorithm.name=vr_fald", "algorithm.noise_correlation=1.0"],
}
PUBLISHED = {  # by p_c: f = 1/2, 1/5, 1/10
    0.2: {
        "FALD tau=0": (25, 0.95, 0.039),
        "VR-FALD* tau=0": (0.048, 0.026, 0.014),
        "VR-FALD* tau=1": (0.028, 0.020, 0.013),
    },
    0.1: {
        "FALD tau=0": (36, 1.1, 0.082),
        "VR-FALD* tau=0": (0.050, 0.049, 0.037),
        "VR-FALD* tau=1": (0.041, 0.037, 0.014),
    },
    0.05: {
        "FALD tau=0": (42, 2.0, 0.11),
        "VR-FALD* tau=0": (0.098, 0.053, 0.039),
        "VR-FALD* tau=1": (0.086, 0.043, 0.021),
    },
}
FRACTIONS = (0.5, 0.2, 0.1)


def step_size(target: Law, probability: float, fraction: float) -> float:
    spectrum = np.linalg.eigvalsh(np.linalg.inv(target.covariance))
    return float(probability * fraction * 2 / (spectrum[0] + spectrum[-1]))


def squared_error(directory: Path, target: Law) -> float:
    """Return the mean over chains of the squared error of the variance, relative to `tr Sigma*` squared."""
    off = open_run(directory).average()[:] - target.mean
    estimates = np.square(off).sum(-1).mean(0)
    variance = np.trace(target.covariance)
    return float(np.square(estimates / variance - 1).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--probability", type=float, default=0.1, choices=list(PUBLISHED))
    parser.add_argument("--fraction", type=float, default=0.2, choices=FRACTIONS)
    parser.add_argument("--ranks", default="2")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as iterations=10000")
    arguments = parser.parse_args()
    config, _ = read_config(CONFIG, arguments.overrides)
    target = exact.posterior(*quadratic_potentials(config))
    gamma = step_size(target, arguments.probability, arguments.fraction)
    table = Table("", "ours, relative", "published", title=f"p_c = {arguments.probability}, f = {arguments.fraction}")
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder) / "start.npz"
        np.savez(start, position=np.tile(target.mean, (config.chains, 1)))
        common = [f"algorithm.step_size={gamma!r}", f"algorithm.communication_probability={arguments.probability}"]
        common.append(f"initial={{name: file, path: {start}}}")
        for name, choice in SAMPLERS.items():
            command = [
                sys.executable,
                "-m",
                "fedlangevin_mpi",
                "run",
                str(CONFIG),
                "--ranks",
                arguments.ranks,
                "--force",
            ]
            own = [*arguments.overrides, *common, *choice]
            subprocess.run([*command, "--output", f"{folder}/run", *own], check=True, stdout=subprocess.DEVNULL)
            published = PUBLISHED[arguments.probability][name][FRACTIONS.index(arguments.fraction)]
            table.add_row(name, f"{squared_error(Path(folder) / 'run', target):.3g}", f"{published:g}")
    Console().print(table)


if __name__ == "__main__":
    main()
