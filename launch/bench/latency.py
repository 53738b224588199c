"""What local steps are for: seconds an effective sample of FALD costs against p_c, over hosts that are far apart.

    bash launch/bench/bench.sh latency [MILLISECONDS ...]      delays one way; 0 and 2 unless given

Two hosts, emulated on this machine (Linux namespaces; root, or a kernel that lets users make them), one rank each, two
Gaussian clients, full gradients. A round costs at least the delay, an iteration without one next to nothing: fewer
rounds make samples cheaper. The last column is the price, client drift: the W2 distance of the average's exact law from
the posterior, in units of the posterior's size (the root of its covariance's trace).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from emulated_hosts import HEAD, EmulatedHosts

from fedlangevin_mpi.config import RunConfig, dump_config, make_config, to_yaml
from fedlangevin_mpi.evaluate.exact_report import exact_report
from fedlangevin_mpi.runtime import launcher

PROBABILITIES = (1.0, 0.5, 0.2, 0.1, 0.05)


@contextmanager
def far_apart(folder: Path, seconds: float) -> Iterator[EmulatedHosts]:
    """Two hosts, on which a message to the other takes so long."""
    with EmulatedHosts(folder, 2, bridged=False) as hosts:
        program = [sys.executable, str(Path(__file__).with_name("delaying_switch.py")), str(seconds)]
        ends = [f"{hosts.pid(name)}={hosts.addresses[name]}" for name in hosts.names]
        pipe = subprocess.PIPE
        with subprocess.Popen(hosts.command(HEAD, [*program, *ends]), stdin=pipe, stdout=pipe, text=True) as switch:
            assert switch.stdout is not None
            if switch.stdout.readline() != "ready\n":
                raise OSError("no switch between the hosts, as said above")
            yield hosts


def config_of(probability: float) -> RunConfig:
    return make_config(
        {
            "clients": 2,
            "iterations": 20_000,
            "warmup": 1_000,
            "algorithm": {"name": "fald", "step_size": 2e-2, "communication_probability": probability},
            "model": {"name": "gaussian"},
            "data": {"name": "synthetic_gaussian", "dim": 10},
        }
    )


def sample(hosts: EmulatedHosts, folder: Path, config: RunConfig) -> dict[str, Any]:
    """Run over both hosts and return the summary."""
    (folder / "config.yaml").write_text(to_yaml(dump_config(config)))
    ranks = [launcher.mpirun(), "--host", "h1:1,h2:1", sys.executable, "-m", "fedlangevin_mpi"]
    arguments = ["run", str(folder / "config.yaml"), "--output", str(folder / "run"), "--force"]
    hosts.run("h1", [*ranks, *arguments], env=hosts.environment(), timeout=600, check=True)
    summary: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
    return summary


def drift(config: RunConfig) -> float:
    exact = exact_report(config)
    return float(exact["average"]["w2"] / np.sqrt(np.trace(exact["posterior"]["covariance"])))


def measure(milliseconds: float) -> None:
    print(f"\n{milliseconds:g} ms one way")
    print("  p_c  ms an iteration    ESS  s an effective sample  against p_c = 1    drift")
    with tempfile.TemporaryDirectory() as own:
        (Path(own) / "hosts").mkdir()
        with far_apart(Path(own) / "hosts", milliseconds / 1e3) as hosts:
            first = None
            for probability in PROBABILITIES:
                config = config_of(probability)
                summary = sample(hosts, Path(own), config)
                each = 1 / summary["iterations_per_second"]
                effective = min(summary["parameters"]["ess_bulk"])
                cost = each * (config.iterations - config.warmup) / effective
                first = first or cost
                line = f"{probability:5.2f} {each * 1e3:16.3f} {effective:6.0f} {cost:22.4f} {cost / first:16.3f}"
                print(f"{line} {drift(config):8.3f}", flush=True)


if __name__ == "__main__":
    for argument in sys.argv[1:] or ["0", "2"]:
        measure(float(argument))
