"""What each sampler costs and how far its law is from the posterior, on one target: `docs/which-sampler.md`'s table.

    python launch/bench/samplers.py          some two minutes on two cores; prints Markdown

Eight clients hold quadratic potentials that are unlike each other (dimension 5), with full gradients. All samplers take
the step size of the average over clients that the posterior sees as equal: `gamma / b` for those with a server, and
`eta / b` for those on a graph (a ring). Distances are exact, from the laws of `fedlangevin exact`; times are measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CONFIG = """
seed: 1
clients: 8
chains: 4
iterations: 40000
warmup: 4000
thin: 4
algorithm: {{name: {name}, step_size: 0.01{keys}}}
model: {{name: gaussian}}
data: {{name: synthetic_gaussian, dim: 5, mean_scale: 1.0}}
{rest}
"""
RING = f"topology: {ROOT / 'topologies' / 'ring.yaml'}"
SAMPLERS = {
    "`fald`, p_c = 1 (ULA)": ("fald", "", ""),
    "`fald`, p_c = 0.1": ("fald", ", communication_probability: 0.1", ""),
    "`vr_fald`, p_c = 0.1": ("vr_fald", ", communication_probability: 0.1", ""),
    "`de_sgld`, ring": ("de_sgld", "", RING),
    "`de_sghmc`, ring": ("de_sghmc", ", friction: 2.0", RING),
    "`gradient_tracking`, ring": ("gradient_tracking", "", RING),
    "`extra_sgld`, ring": ("extra_sgld", "", RING),
}


def fedlangevin(*arguments: str) -> str:
    command = [sys.executable, "-m", "fedlangevin_mpi", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def measured(name: str, keys: str, rest: str, folder: Path) -> list[str]:
    """Return a sampler's row: bias of the mean, W2, effective draws a second, and a megabyte."""
    config, run = folder / "config.yaml", folder / "run"
    config.write_text(CONFIG.format(name=name, keys=keys, rest=rest))
    law: dict[str, Any] = json.loads(fedlangevin("exact", str(config), "--json"))
    fedlangevin("run", str(config), "--ranks", "2", "--output", str(run), "--force", "--quiet")
    found: dict[str, Any] = json.loads((run / "summary.json").read_text())
    scale = sum(law["posterior"]["covariance"][k][k] for k in range(law["dim"])) ** 0.5
    bias = sum(number**2 for number in law["average"]["mean_bias"]) ** 0.5
    client = max(one["w2"] for one in law["per_client"])
    ess = min(found["parameters"]["ess_bulk"])
    seconds = found["iterations"] / found["iterations_per_second"]
    sent = found["communication"]
    distances = [f"{value / scale:.2g}" for value in (bias, law["average"]["w2"], client)]
    return [*distances, f"{sent['rounds'] / ess:.1f}", f"{sent['bytes'] / ess / 1e3:.1f}", f"{ess / seconds:,.0f}"]


def main() -> None:
    columns = ["bias of the mean", "W2, average", "W2, worst client", "rounds a draw", "kB a draw", "draws a second"]
    print("| sampler |", " | ".join(columns), "|")
    print("|---" * (len(columns) + 1) + "|")
    for label, sampler in SAMPLERS.items():
        with tempfile.TemporaryDirectory() as folder:
            print("|", " | ".join([label, *measured(*sampler, Path(folder))]), "|", flush=True)


if __name__ == "__main__":
    main()
