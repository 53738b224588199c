"""A rank is killed, and the others go on: `on_failure: shrink`."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.config import make_config, to_yaml
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.evaluate import exact
from fedlangevin_mpi.evaluate.exact_report import quadratic_potentials, stationary_law
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.runtime.survivors import check_shrinking
from fedlangevin_mpi.store.reader import open_run
from tests.gaussians import z_scores
from tests.resuming import RING, counts

VALUES = {
    "seed": 5,
    "clients": 5,
    "chains": 200,  # so that iterations take some time, and few are waited for where cores are few
    "warmup": 100,
    "thin": 20,
    "on_failure": "shrink",
    "model": {"name": "gaussian"},
    "data": {"name": "synthetic_gaussian", "dim": 4},
    "output": {"directory": "run", "checkpoint_seconds": 0.1, "watchdog_seconds": 30},
}
FALD = {"name": "fald", "step_size": 0.02, "communication_probability": 0.05}
SERVER = {"name": "dsgld", "step_size": 0.02, "particles": 20, "local_iterations": 5, "global_iterations": 3000}


def struck(folder, ranks, victims, values, between=0.1):
    """Run with one rank after the other killed, each after a checkpoint; return the status and what was said."""
    (folder / "config.yaml").write_text(to_yaml(VALUES | values))
    process = command(folder, "run", "config.yaml", "--ranks", str(ranks))
    try:
        hosted = wait_for(lambda: found if len(found := ranks_below(process.pid)) == ranks else None)
        for k, victim in enumerate(victims):
            wait_for(lambda k=k: begun_after(folder / "run", k))
            time.sleep(np.random.default_rng().uniform(0, between))
            assert process.poll() is None, "the run came to its end before its time"
            os.kill(hosted[victim], signal.SIGKILL)
        _, said = process.communicate(timeout=240)
    finally:
        process.kill()
    return process.returncode, said


def command(folder, *arguments):
    program = [sys.executable, "-m", "fedlangevin_mpi", *arguments]
    environment = os.environ | {"OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": "1"}
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    return subprocess.Popen(program, cwd=folder, env=environment, **pipes)


def begun_after(directory, losses):
    """Whether a checkpoint was written since ranks were lost for the n-th time."""
    segment = list(directory.glob(f"rank-*.s{losses:02d}.h5" if losses else "rank-?????.h5"))
    written = [path.stat().st_mtime for path in directory.glob("checkpoint/*/manifest.json")]
    return segment and written and max(written) > min(path.stat().st_ctime for path in segment)


def ranks_below(pid):
    """Return the processes of the ranks that a launcher started, by rank."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environment = dict(v.split(b"=", 1) for v in (path / "environ").read_bytes().split(b"\0") if b"=" in v)
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if b"OMPI_COMM_WORLD_RANK" in environment and parent_of(parent) == pid:
                found[int(environment[b"OMPI_COMM_WORLD_RANK"])] = int(path.name)
        except (OSError, IndexError):
            continue
    return found


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_for(find, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not (found := find()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def in_peace(folder, values):
    """Return the same run on one rank, that of this process."""
    more = {"on_failure": "abort", "output": {"directory": str(folder / "peace")}}
    return open_run(run(make_config(VALUES | values | more)))


@pytest.mark.parametrize(
    ("ranks", "victims", "values"),
    [
        (3, [2], {"algorithm": FALD, "iterations": 16_000}),
        (3, [0], {"algorithm": {"name": "de_sgld", "step_size": 0.02}, "topology": RING, "iterations": 8_000}),
        (3, [0, 1], {"algorithm": SERVER, "chains": 20}),
        (2, [1], {"algorithm": FALD, "engine": "interpreted", "iterations": 6_000}),
    ],
    ids=["average", "gossip", "server", "interpreted"],
)
def test_others_host_the_clients_of_killed_ranks_and_draw_the_same(tmp_path, ranks, victims, values):
    status, said = struck(tmp_path, ranks, victims, values)
    assert status == 0, said
    assert f"rank {victims[0]} of {ranks} lost: going on with {ranks - 1}" in said
    one, other = in_peace(tmp_path, values), open_run(tmp_path / "run")
    np.testing.assert_array_equal(one.iterations, other.iterations)
    for client in one.owners:
        np.testing.assert_allclose(other.position(client)[:], one.position(client)[:], rtol=1e-9, atol=1e-12)
    assert counts(one) == counts(other)
    assert [loss.of for loss in other.resolved.losses] == list(range(ranks, ranks - len(victims), -1))
    assert other.resolved.ranks == ranks - len(victims)
    assert other.summary()["losses"][0]["iteration"] > 0
    assert not list(tmp_path.rglob("*.partial"))


def test_without_the_clients_of_a_killed_rank_the_law_is_that_of_the_others(tmp_path):
    values = {
        "algorithm": FALD,
        "model": {"name": "linear_regression", "prior_scale": 0.3},  # which counts once, however many clients there are
        "data": {"name": "synthetic_linear", "features": 3, "rows": 10},
        "initial": {"name": "zeros"},
        "iterations": 16_000,
        "lost_clients": "drop",
    }
    status, said = struck(tmp_path, 3, [1], values)
    assert status == 0, said
    assert "dropped clients 2, 3: the posterior is that of the other clients' data" in said
    process = command(tmp_path, "resume", "run", "--ranks", "2", "iterations=18000")
    _, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    opened = open_run(tmp_path / "run")
    assert (opened.clients, opened.owners, opened.dropped) == (3, [0, 1, 4], [2, 3])
    loss = opened.resolved.losses[0]
    assert opened.iterations[0] == loss.iteration + 100 + 20 - 1  # warm-up began again
    assert opened.iterations[-1] >= 17_980
    summary = opened.summary()
    assert summary["dropped_clients"] == [2, 3]
    assert summary["losses"][0]["dropped"] == [2, 3]
    config = make_config(opened.config).model_copy(update={"clients": 5})
    assert np.abs(z_scores(opened.average()[:], average_law(config))[0]).max() < 4
    everyone = config.model_copy(update={"dropped_clients": ()})
    assert np.abs(z_scores(opened.average()[:], average_law(everyone))[0]).max() > 10  # the comparison can tell


def average_law(config):
    potentials = quadratic_potentials(config)
    return exact.average(stationary_law(config.algorithm)(*potentials), len(potentials[0]))


def test_an_exception_on_one_rank_ends_the_run_as_ever(tmp_path):
    (tmp_path / "own.py").write_text(RAISING)
    model = {"name": "custom", "factory": "own:make_model"}
    data = {"name": "synthetic_linear", "features": 2, "rows": 10}
    values = {"model": model, "data": data, "algorithm": FALD, "iterations": 1000}
    (tmp_path / "config.yaml").write_text(to_yaml(VALUES | values))
    process = command(tmp_path, "run", "config.yaml", "--ranks", "2")
    _, said = process.communicate(timeout=240)
    assert process.returncode == 1
    assert "rank 1 failed (clients 3 to 4) in iterations" in said
    assert "ZeroDivisionError" in said


RAISING = """
import os
import fedlangevin_mpi

calls = 0

def gradient(theta, x, y):
    global calls
    calls += 1
    return theta * (len(x) // (calls < 500 or os.environ["OMPI_COMM_WORLD_RANK"] != "1"))

def make_model():
    return fedlangevin_mpi.CustomModel(dim=2, gradient=gradient)
"""


@pytest.mark.parametrize("environment", [{}, {"OMPI_MCA_mpi_ft_enable": "1"}], ids=["mpirun", "srun"])
def test_a_launcher_that_ends_the_others_is_refused(environment):
    config = make_config(VALUES | {"algorithm": FALD, "iterations": 1000})
    with World(MPI.COMM_SELF) as world, pytest.raises(ConfigError, match="on_failure: found 'shrink'.*--with-ft ulfm"):
        check_shrinking(world, config, environment)


def test_one_rank_alone_is_refused():
    config = make_config(VALUES | {"algorithm": FALD, "iterations": 1000})
    survivable = {"OMPI_MCA_mpi_ft_enable": "1", "PRTE_LAUNCHED": "1"}
    with World(MPI.COMM_SELF) as world, pytest.raises(ConfigError, match="on one rank"):
        check_shrinking(world, config, survivable)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"algorithm": SERVER, "chains": 20, "lost_clients": "drop"}, "lost_clients: found 'drop'; allowed for dsgld"),
        ({"algorithm": SERVER, "chains": 20, "dropped_clients": [1]}, "dropped_clients: found .*allowed for dsgld"),
        ({"algorithm": FALD, "iterations": 9999, "dropped_clients": [0, 1, 2, 3, 4]}, "one takes part at least"),
        ({"algorithm": FALD, "iterations": 9999, "dropped_clients": [1, 1]}, "allowed: different numbers"),
    ],
)
def test_what_cannot_be_dropped_is_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        make_config(VALUES | values)
