"""A run over several hosts draws what it draws on one: emulated hosts, real TCP between their ranks."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
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


def test_run_without_launcher_leaves_no_shared_memory(hosts: EmulatedHosts, tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.yaml", "fald", "interpreted")
    done = hosts.run("h1", run(config, tmp_path / "alone"), timeout=120)
    assert done.returncode == 0, done.stderr
    assert hosts.run("h1", ["ls", "/dev/shm"]).stdout == ""  # which the host has for itself


MADE = """
import subprocess, sys, tempfile, time
from pathlib import Path
from launch.bench.emulated_hosts import EmulatedHosts
hosts = EmulatedHosts(Path(sys.argv[1]), 2)
subprocess.Popen(hosts.command("h2", ["setsid", "sleep", "54321"]))
print(hosts.run("h2", ["readlink", "/proc/self/ns/pid"]).stdout, end="", flush=True)
time.sleep(60)
"""


def test_nothing_is_left_of_hosts_whose_maker_is_killed(hosts: EmulatedHosts, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", MADE, tmp_path], cwd=ROOT, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        namespace = maker.stdout.readline().strip()
        assert len(inside(namespace)) >= 4  # the first process, two hosts, what one of them runs
        maker.kill()
    deadline = time.monotonic() + 10
    while left := inside(namespace):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def inside(namespace: str) -> list[str]:
    """Return the processes of a PID namespace."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(process / "ns" / "pid") == namespace:
                found.append(process.name)
    return found
