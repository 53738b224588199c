"""A run over several hosts draws what it draws on one: emulated hosts, real TCP between their ranks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from fedlangevin_mpi.config import to_yaml
from fedlangevin_mpi.runtime import launcher
from fedlangevin_mpi.store.reader import open_run
from launch.bench.emulated_hosts import EmulatedHosts
from tests.unavailable import unavailable

ROOT = Path(__file__).parents[2]
CLIENTS = 6
ALGORITHMS = {
    "fald": {"name": "fald", "step_size": 1e-2, "communication_probability": 0.3},
    "vr_fald": {"name": "vr_fald", "step_size": 1e-2, "communication_probability": 0.3},
    "de_sgld": {"name": "de_sgld", "step_size": 1e-2},
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedHosts]:
    try:
        made = EmulatedHosts(tmp_path_factory.mktemp("hosts"), 3)
    except OSError as error:
        unavailable(str(error))
    with made:
        yield made


def write_config(path: Path, algorithm: str, engine: str) -> Path:
    values = {
        "seed": 3,
        "clients": CLIENTS,
        "chains": 2,
        "iterations": 300,
        "engine": engine,
        "algorithm": ALGORITHMS[algorithm],
        "model": {"name": "gaussian"},
        "data": {"name": "synthetic_gaussian", "dim": 5},
    }
    if algorithm == "de_sgld":
        values["topology"] = str(ROOT / "topologies" / "ring.yaml")
    path.write_text(to_yaml(values))
    return path


def run(config: Path, directory: Path, *mpirun: str) -> list[str]:
    return [*mpirun, sys.executable, "-m", "fedlangevin_mpi", "run", str(config), "--output", str(directory)]


@pytest.mark.parametrize(
    ("algorithm", "engine", "slots"),
    [
        ("fald", "interpreted", (1, 1, 1)),
        ("fald", "compiled", (1, 2, 1)),
        ("vr_fald", "interpreted", (2, 2, 0)),
        ("de_sgld", "interpreted", (1, 2, 1)),
    ],
)
def test_run_over_several_hosts_draws_what_one_host_draws(
    hosts: EmulatedHosts, tmp_path: Path, algorithm: str, engine: str, slots: tuple[int, ...]
) -> None:
    config = write_config(tmp_path / "config.yaml", algorithm, engine)
    hostfile = tmp_path / "hostfile"
    used = {host: count for host, count in zip(hosts.names, slots, strict=True) if count}
    hostfile.write_text("".join(f"{host} slots={count}\n" for host, count in used.items()))
    over = run(config, tmp_path / "over", launcher.mpirun(), "--hostfile", str(hostfile))
    done = hosts.run("h1", over, env=hosts.environment(), timeout=120)
    assert done.returncode == 0, done.stderr
    ranks = [*run(config, tmp_path / "one"), "--ranks", str(sum(slots))]
    subprocess.run(ranks, check=True, capture_output=True, timeout=120)

    facts = yaml.safe_load((tmp_path / "over" / "run.yaml").read_text())["resolved"]
    assert facts["hosts"] == [host for host, count in used.items() for _ in range(count)]
    for client in range(CLIENTS):
        found, expected = (open_run(tmp_path / name).position(client)[:] for name in ("over", "one"))
        np.testing.assert_array_equal(found, expected)
