"""launch/slurm.sbatch on a real cluster: jobs that end, are cut short or cancelled, come in arrays, span two nodes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fedlangevin_mpi.store.reader import open_run
from tests.slurm.cluster import Cluster
from tests.unavailable import unavailable

SCRIPT = Path(__file__).parents[2] / "launch" / "slurm.sbatch"
MPICH = (Path(sys.prefix) / "bin" / "mpiexec.hydra").exists()
SRUN, WRONG_SRUN = ("srun --mpi=pmi2", "srun --mpi=pmix") if MPICH else ("srun --mpi=pmix", "srun --mpi=pmi2")
ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL")

# Minutes long in a job's first life, a second in its second: what was cut short goes on and ends.
MODEL = """
import os, time
import fedlangevin_mpi

def make_model():
    pause = 0.02 if os.environ.get("SLURM_RESTART_COUNT", "0") == "0" and "PACED" in os.environ else 0.0

    def gradient(theta, x, y):
        time.sleep(pause)
        return x.T @ (x @ theta - y)

    return fedlangevin_mpi.CustomModel(dim=2, gradient=gradient, prior_gradient=lambda theta: theta)
"""
CONFIG = """
seed: 1
clients: 4
iterations: 4000
thin: 2
algorithm: {name: fald, step_size: 1.0e-3, communication_probability: 0.3, batch_size: 5}
model: {name: custom, factory: "paced:make_model"}
data: {name: synthetic_linear, features: 2, rows: 20}
output: {checkpoint_seconds: 2}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the config and the model are, and the runs."""
    made = tmp_path_factory.mktemp("jobs")
    (made / "config.yaml").write_text(CONFIG)
    (made / "paced.py").write_text(MODEL)
    return made


@pytest.fixture(scope="module")
def variables(folder: Path) -> dict[str, str]:
    """What a job's environment needs besides."""
    path = os.pathsep.join([str(folder), str(SCRIPT.parents[1])])
    return {"VENV": sys.prefix, "PYTHONPATH": path, "OMPI_MCA_mpi_yield_when_idle": "1"}


@pytest.fixture
def submit(cluster: Cluster, folder: Path, variables: dict[str, str]) -> Callable[..., str]:
    """Return a function that submits the script and returns the job's number: `submit(options, *arguments, **env)`."""

    def sbatch(options: str, *arguments: str, **more: str) -> str:
        where = [f"--chdir={folder}", "--nodes=1", "--ntasks-per-node=2", "--time=5"]
        command = ["sbatch", "--parsable", *where, *options.split(), str(SCRIPT), "config.yaml", *arguments]
        return cluster.command(*command, **variables | more).strip()

    return sbatch


@pytest.fixture(scope="module")
def by_hand(cluster: Cluster, folder: Path, variables: dict[str, str]) -> Path:
    """A run of the same config on two ranks that no batch system started and nobody disturbed."""
    command = [sys.executable, "-m", "fedlangevin_mpi", "run", "config.yaml", "--ranks", "2", "--output", "by-hand"]
    subprocess.run(command, cwd=folder, env=os.environ | variables, check=True, capture_output=True, timeout=120)
    return folder / "by-hand"


def assert_same_draws(one: Path, other: Path) -> None:
    for client in range(4):
        np.testing.assert_array_equal(open_run(one).position(client)[:], open_run(other).position(client)[:])


def run_file(directory: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((directory / "run.yaml").read_text())
    return content


def wait_for_checkpoint(directory: Path) -> None:
    deadline = time.monotonic() + 120
    while not list(directory.glob("checkpoint/*/manifest.json")):
        assert time.monotonic() < deadline, "no checkpoint"
        time.sleep(0.2)


@pytest.mark.parametrize("launcher", ["mpirun", SRUN])
def test_two_nodes_draw_what_one_machine_draws(
    cluster: Cluster, submit: Callable[..., str], folder: Path, by_hand: Path, launcher: str
) -> None:
    run = folder / launcher.split()[0]
    job = submit("--nodes=2 --ntasks-per-node=1", LAUNCHER=launcher, OUTPUT=str(run))
    ended = cluster.wait(job, *ENDED)
    assert ended["JobState"] == "COMPLETED", cluster.output(job)
    assert run_file(run)["resolved"]["hosts"] == ["h1", "h2"]
    assert_same_draws(run, by_hand)


def test_launcher_that_does_not_speak_to_this_mpi_is_refused(
    cluster: Cluster, submit: Callable[..., str], folder: Path
) -> None:
    job = submit("", LAUNCHER=WRONG_SRUN, OUTPUT="refused")
    ended = cluster.wait(job, *ENDED)
    assert ended["JobState"] == "FAILED"
    if not MPICH:  # which fails by itself
        assert ended["ExitCode"] == "2:0"
        assert "the launcher promised 2 ranks" in cluster.output(job)
    assert not (folder / "refused").exists()


def test_array_has_a_seed_and_a_folder_a_task(cluster: Cluster, submit: Callable[..., str], folder: Path) -> None:
    job = submit("--array=1-2", "iterations=400")
    for task in (1, 2):
        ended = cluster.wait(f"{job}_{task}", *ENDED)
        assert ended["JobState"] == "COMPLETED", cluster.output(f"{job}_{task}")
        assert run_file(folder / f"runs/config-seed-{task}")["seed"] == task
    first, second = (open_run(folder / f"runs/config-seed-{task}").average()[:] for task in (1, 2))
    assert first.shape == (200, 1, 2)
    assert not np.isclose(first, second).any()


def test_run_longer_than_its_job_is_queued_again_and_ends(
    cluster: Cluster, submit: Callable[..., str], folder: Path, by_hand: Path
) -> None:
    job = submit("--time=1 --signal=B:USR1@40", PACED="1", OUTPUT="limited")
    ended = cluster.wait(job, *ENDED, seconds=300)
    assert ended["JobState"] == "COMPLETED", cluster.output(job)
    assert int(ended["Restarts"]) >= 1
    assert "start 2, on h1: fedlangevin resume limited" in cluster.output(job)
    assert_same_draws(folder / "limited", by_hand)


def test_signal_passes_srun_and_scratch_is_copied_back(
    cluster: Cluster, submit: Callable[..., str], folder: Path, by_hand: Path
) -> None:
    scratch = folder / "scratch"
    job = submit("", PACED="1", OUTPUT="copied", LAUNCHER=SRUN, SCRATCH=str(scratch))
    wait_for_checkpoint(scratch / f"fedlangevin-{job}")
    cluster.command("scancel", "--batch", "--signal=USR1", job)
    ended = cluster.wait(job, *ENDED)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "1"), cluster.output(job)
    assert not list(scratch.iterdir())
    assert_same_draws(folder / "copied", by_hand)


def test_cancelled_job_leaves_nothing_behind_and_can_be_submitted_again(
    cluster: Cluster, submit: Callable[..., str], folder: Path, by_hand: Path
) -> None:
    job = submit("--nodes=2 --ntasks-per-node=1", PACED="1", OUTPUT="cancelled")
    wait_for_checkpoint(folder / "cancelled")
    cluster.command("scancel", job)
    assert cluster.wait(job, *ENDED)["JobState"] == "CANCELLED"
    deadline = time.monotonic() + 10
    while left := cluster.processes():
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
    assert open_run(folder / "cancelled").draws > 0
    again = submit("--nodes=2 --ntasks-per-node=1", OUTPUT="cancelled")
    assert cluster.wait(again, *ENDED)["JobState"] == "COMPLETED", cluster.output(again)
    assert "fedlangevin resume cancelled" in cluster.output(again)
    assert_same_draws(folder / "cancelled", by_hand)
    assert cluster.state(job)["JobState"] == "CANCELLED"


def test_folder_of_another_config_is_refused(cluster: Cluster, submit: Callable[..., str], by_hand: Path) -> None:
    (by_hand / "input.yaml").write_text(CONFIG.replace("4000", "8000"))
    job = submit("", OUTPUT=str(by_hand))
    assert cluster.wait(job, *ENDED)["ExitCode"] == "2:0"
    assert "holds a run of another config than config.yaml" in cluster.output(job)


@pytest.fixture
def site_venv(tmp_path: Path) -> Path:
    """An environment without an MPI of its own: the packages of this one, seen from another prefix."""
    if shutil.which("mpirun.openmpi", path="/usr/bin") is None:
        unavailable("not installed: openmpi-bin, a site's own MPI")
    made = tmp_path / "venv"
    venv.create(made, symlinks=True)
    here, there = (sysconfig.get_path("purelib", vars={"base": str(base)}) for base in (sys.prefix, made))
    (Path(there) / "borrowed.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    script = made / "bin" / "fedlangevin"
    script.write_text(f"#!{made}/bin/python\nfrom fedlangevin_mpi.cli import main\nmain()\n")
    script.chmod(0o755)
    return made


def test_site_mpi_instead_of_the_wheel(
    cluster: Cluster, submit: Callable[..., str], folder: Path, by_hand: Path, site_venv: Path
) -> None:
    job = submit("", OUTPUT="site", VENV=str(site_venv), SITE_MPI="export PATH=/usr/bin:$PATH")
    ended = cluster.wait(job, *ENDED)
    assert ended["JobState"] == "COMPLETED", cluster.output(job)
    assert run_file(folder / "site")["resolved"]["mpi"].startswith("Open MPI v4")
    assert_same_draws(folder / "site", by_hand)


@pytest.mark.skipif(not (Path(sys.prefix) / "bin" / "mpirun").exists(), reason="this environment has the site's MPI")
def test_two_mpis_are_refused(cluster: Cluster, submit: Callable[..., str]) -> None:
    job = submit("", OUTPUT="unclear", SITE_MPI="true")
    assert cluster.wait(job, *ENDED)["ExitCode"] == "2:0"
    assert "has an MPI of its own" in cluster.output(job)
