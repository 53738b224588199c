"""Bad input ends every rank with the same status, and rank 0 says what was wrong, where, and what is allowed."""

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.cli import main
from fedlangevin_mpi.config import to_yaml

COMM = MPI.COMM_WORLD
CLIENTS = 4


@pytest.fixture
def folder(mpi_tmp_path):
    """A folder with four good shards and a config that runs, the same on all ranks."""
    if COMM.rank == 0:
        rng = np.random.default_rng(0)
        for client in range(CLIENTS):
            x = rng.normal(size=(12, 3))
            np.savez(mpi_tmp_path / f"client-{client}.npz", x=x, y=(x[:, 0] > 0).astype(float))
        values = {
            "clients": CLIENTS,
            "iterations": 20,
            "engine": "interpreted",
            "algorithm": {"name": "fald", "step_size": 1e-3, "batch_size": 4},
            "model": {"name": "logistic_regression"},
            "data": {"name": "files", "path": str(mpi_tmp_path / "client-{client}.npz")},
            "output": {"directory": str(mpi_tmp_path / "run")},
        }
        (mpi_tmp_path / "config.yaml").write_text(to_yaml(values))
    COMM.Barrier()
    return mpi_tmp_path


def outcome(folder, capsys, *arguments):
    """Run the command on all ranks and return (status, rank 0's stderr); all ranks must end with that status."""
    with pytest.raises(SystemExit) as ended:
        main(["run", str(folder / "config.yaml"), *arguments])
    assert len(set(COMM.allgather(ended.value.code))) == 1
    captured = capsys.readouterr()
    if COMM.rank != 0:
        assert "fedlangevin:" not in captured.err
    return ended.value.code, COMM.bcast(captured.err)


def change_shard(folder, client, **arrays):
    """Replace arrays of one client's shard."""
    if COMM.rank == 0:
        path = folder / f"client-{client}.npz"
        with np.load(path) as old:
            np.savez(path, **{**old, **arrays})
    COMM.Barrier()


def test_the_folder_of_these_tests_runs(folder, capsys):
    assert outcome(folder, capsys)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chainz=2"], "chainz: unknown key (did you mean chains?)"),
        (["chains=two"], "chains: found 'two'; allowed: integer"),
        (["algorithm.step_size=-1e-3"], "algorithm.step_size: found -0.001; allowed: greater than 0"),
        (
            ["algorithm.communication_probability=1.2"],
            "communication_probability: found 1.2; allowed: less than or equal",
        ),
        (["algorithm.communication_probability=0"], "communication_probability: found 0; allowed: greater than 0"),
        (["algorithm.participants=9"], "algorithm.participants: found 9; allowed: at most 4, all clients"),
        (["algorithm={name: sgld, step_size: 1}"], "clients: found 4 for algorithm sgld"),
        (["initial={name: file, path: absent.npz}"], "initial.path: absent.npz gives no array 'position'"),
        (["data.path=client.npz"], "data.path"),
    ],
)
def test_a_wrong_config_is_status_2_and_writes_nothing(folder, capsys, arguments, message):
    status, stderr = outcome(folder, capsys, *arguments)
    assert message in stderr
    assert status == 2
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "topology.yaml"),
        ("kind: rung", "kind: found 'rung' (did you mean ring?); allowed: "),
        ("kind: edges\nclients: 3\nedges: [[0, 1], [1, 2]]\n", "found 4 clients; allowed: 3"),
        (
            "kind: edges\nclients: 4\nedges: [[0, 1], [2, 3]]\n"
            "weights: {name: matrix, values: [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]}",
            "W[0, 1]: found 0; allowed: a number > 0, since 0 - 1 is an edge",
        ),
    ],
)
def test_a_wrong_topology_is_status_2_and_writes_nothing(folder, capsys, text, message):
    path = folder / "topology.yaml"
    if COMM.rank == 0 and text is not None:
        path.write_text(text)
    COMM.Barrier()
    status, stderr = outcome(folder, capsys, "algorithm={name: de_sgld, step_size: 1e-3}", f"topology={path}")
    assert message in stderr
    assert status == 2
    assert not (folder / "run").exists()


def test_a_disconnected_topology_runs_and_says_so(folder, capsys):
    path = folder / "topology.yaml"
    if COMM.rank == 0:
        path.write_text("kind: edges\nclients: 4\nedges: [[0, 1], [2, 3]]\n")
    COMM.Barrier()
    status, stderr = outcome(folder, capsys, "algorithm={name: de_sgld, step_size: 1e-3}", f"topology={path}")
    assert "the graph has 2 components" in stderr
    assert "clients 0-1 | 2-3" in stderr
    assert status == 0


@pytest.mark.mpi(min_size=2)
def test_more_ranks_than_clients(folder, capsys):
    status, stderr = outcome(folder, capsys, f"clients={COMM.size - 1}")
    assert f"clients: found {COMM.size - 1} for {COMM.size} ranks" in stderr
    assert status == 2


def test_an_existing_run_is_replaced_only_by_force(folder, capsys):
    assert outcome(folder, capsys)[0] == 0
    status, stderr = outcome(folder, capsys)
    assert (status, "already holds a run" in stderr) == (2, True)
    assert outcome(folder, capsys, "--force")[0] == 0


def test_a_folder_that_is_no_run_is_left_alone_even_by_force(folder, capsys):
    status, stderr = outcome(folder, capsys, f"--output={folder}", "--force")
    assert (status, "holds files that are no run" in stderr) == (2, True)
    assert (folder / "client-0.npz").exists()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.ones((12, 5))}, "has dimension 5, but client 0 has 3"),
        ({"x": np.where(np.arange(36).reshape(12, 3) == 7, np.nan, 1.0)}, "x"),
        ({"y": np.arange(12.0)}, "label 2 in row 2; allowed: 0 to 1"),
        ({"x": np.ones((0, 3)), "y": np.ones(0)}, "empty"),
        ({"y": np.array([{}] * 12, object)}, "pickle"),
        ({"x": np.full((12, 3), "a")}, "x"),
        ({"y": np.ones(3)}, "y has shape (3,)"),
    ],
    ids=["dimension", "nan", "label", "empty", "pickle", "text", "lengths"],
)
def test_a_bad_shard_is_status_1_and_named(folder, capsys, arrays, message):
    change_shard(folder, CLIENTS - 1, **arrays)
    status, stderr = outcome(folder, capsys)
    assert "client 3 (" in stderr
    assert "client-3.npz" in stderr
    assert message in stderr
    assert "Traceback" not in stderr
    assert status == 1
    assert not (folder / "run").exists()


def test_a_missing_shard_is_named(folder, capsys):
    if COMM.rank == 0:
        (folder / "client-2.npz").unlink()
    COMM.Barrier()
    status, stderr = outcome(folder, capsys)
    assert (status, "client 2 (" in stderr, str(folder / "client-2.npz") in stderr) == (1, True, True)


def test_a_launcher_that_promised_more_ranks_is_refused(folder, capsys, monkeypatch):
    for variable in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("SLURM_NTASKS", "16")
    status, stderr = outcome(folder, capsys)
    assert (status, "the launcher promised 16 ranks (SLURM_NTASKS=16)" in stderr) == (2, True)


@pytest.mark.parametrize("engine", ["compiled", "interpreted"])
def test_a_step_that_is_too_large_stops_all_ranks_and_keeps_the_draws_before(folder, capsys, engine):
    from fedlangevin_mpi.store.reader import open_run

    diverging = ["algorithm.step_size=1e4", "model.prior_scale=1e-3", "iterations=3000", f"engine={engine}"]
    status, stderr = outcome(folder, capsys, *diverging)
    assert status == 1
    assert "the position stopped being finite in iteration" in stderr
    assert "try a tenth of it" in stderr
    named = int(stderr.rpartition("in iteration ")[2].partition(";")[0])
    opened = open_run(folder / "run")
    assert opened.draws == named
    assert np.isfinite(opened.average()[:]).all()
