"""A run that was stopped and went on is the run that was never stopped, to the bit."""

import signal
import sys

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.algorithms import algorithms
from fedlangevin_mpi.errors import ConfigError, ShardError, StoppedError
from fedlangevin_mpi.runtime import blocks
from fedlangevin_mpi.runtime.pace import Pace
from fedlangevin_mpi.runtime.resume import resume
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.store.reader import open_run
from tests.resuming import config, counts, draws


@pytest.fixture
def short_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "block_length", lambda *_: 64)


@pytest.fixture
def signal_at(monkeypatch):
    """Return a function that sends this process a signal after so many further calls of the kernel."""
    left = [0]
    took = Pace.took

    def count(self, seconds, iterations):
        left[0] -= 1
        if left[0] == 0:
            signal.raise_signal(signal.SIGUSR1)
        took(self, seconds, 64)  # whole blocks, however slow the machine

    monkeypatch.setattr(Pace, "took", count)
    return lambda calls: left.__setitem__(0, calls)


@pytest.mark.parametrize("engine", ["compiled", "interpreted"])
@pytest.mark.parametrize("name", algorithms())
def test_stopped_three_times_is_the_run_in_one_go(tmp_path, name, engine, short_blocks, signal_at):
    whole = open_run(run(config(tmp_path / "whole", name, engine, 500), comm=MPI.COMM_SELF))
    folder = tmp_path / "stopped"
    signal_at(3)
    with pytest.raises(StoppedError, match="SIGUSR1 came: stopped after 128 of 400 iterations, with a checkpoint"):
        run(config(folder, name, engine, 400), comm=MPI.COMM_SELF)
    signal_at(3)
    with pytest.raises(StoppedError, match="stopped after 256 of 400 iterations"):
        resume(folder, comm=MPI.COMM_SELF)
    resume(folder, comm=MPI.COMM_SELF)
    assert open_run(folder).statistics.iterations == 400
    resume(folder, ["iterations=500"], comm=MPI.COMM_SELF)  # inside a block
    stopped = open_run(folder)
    assert stopped.iterations.tolist() == list(range(52, 500, 3))
    np.testing.assert_array_equal(draws(stopped), draws(whole))
    assert counts(stopped) == counts(whole)
    assert [launch.iteration for launch in stopped.resolved.launches] == [0, 128, 256, 400]
    assert np.ptp(draws(whole), axis=0).min() > 0


@pytest.fixture
def begun(tmp_path):
    """The folder of a run of 100 iterations that came to its end."""
    return run(config(tmp_path / "begun", "fald", "interpreted", 100), comm=MPI.COMM_SELF)


def test_what_is_complete_stays_as_it_is(begun):
    before = {path: path.stat().st_mtime_ns for path in begun.rglob("*") if path.is_file()}
    resume(begun, comm=MPI.COMM_SELF)
    assert {path: path.stat().st_mtime_ns for path in begun.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed=4", "seed: found 4, but the run was begun with 3; allowed in a resume: iterations, output."),
        ("algorithm.step_size=0.1", "algorithm.step_size: found 0.1, but the run was begun with 0.02"),
        ("thin=1", "thin: found 1, but the run was begun with 3"),
        ("iterations=99", "iterations: found 99; allowed: at least 100"),
        ("algorithm.stepsize=0.1", "unknown key (did you mean step_size?)"),
    ],
)
def test_another_config_is_refused(begun, override, message):
    with pytest.raises(ConfigError) as refused:
        resume(begun, [override], comm=MPI.COMM_SELF)
    assert message in str(refused.value)


def test_changed_data_are_refused_and_named(tmp_path):
    def shards(first):
        rng = np.random.default_rng(1)
        for client in range(2):
            x = rng.normal(size=(12, 3))
            x[0, 0] += first * client
            np.savez(tmp_path / f"client-{client}.npz", x=x, y=(x[:, 1] > 0).astype(float))

    data = {"name": "files", "path": str(tmp_path / "client-{client}.npz")}
    shards(0.0)
    wanted = config(tmp_path / "run", "fald", "interpreted", 60, clients=2, data=data)
    folder = run(wanted, comm=MPI.COMM_SELF)
    shards(1e-9)
    with pytest.raises(ShardError, match=r"client 1 \(.*client-1.npz\): its data are not those that the run was begun"):
        resume(folder, ["iterations=80"], comm=MPI.COMM_SELF)
    shards(0.0)
    resume(folder, ["iterations=80"], comm=MPI.COMM_SELF)


def test_changed_code_of_a_model_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = "import fedlangevin_mpi", "def gradient(t, x, y): return len(x) * t"
    made = "def make(): return fedlangevin_mpi.CustomModel(dim=3, gradient=gradient)"
    (tmp_path / "changing_model.py").write_text("\n".join([*lines, made]))
    model = {"name": "custom", "factory": "changing_model:make"}
    folder = run(config(tmp_path / "run", "fald", "interpreted", 60, model=model), comm=MPI.COMM_SELF)
    resume(folder, ["iterations=70"], comm=MPI.COMM_SELF)
    path = folder / "run.yaml"
    known = open_run(folder).resolved.model
    assert len(known) == 64
    path.write_text(path.read_text().replace(known, "f" * 64))
    with pytest.raises(ConfigError, match="model: its code: found .*; allowed: what the run was begun with, ffff"):
        resume(folder, ["iterations=80"], comm=MPI.COMM_SELF)
    sys.modules.pop("changing_model")


def test_without_a_checkpoint_draws_are_made_again(begun, tmp_path):
    whole = open_run(run(config(tmp_path / "whole", "fald", "interpreted", 200), comm=MPI.COMM_SELF))
    for manifest in (begun / "checkpoint").rglob("manifest.json"):
        manifest.unlink()
    resume(begun, ["iterations=200"], comm=MPI.COMM_SELF)
    again = open_run(begun)
    np.testing.assert_array_equal(draws(again), draws(whole))
    assert again.resolved.launches[1].iteration == 0
    assert counts(again) == counts(whole)


def test_a_checkpoint_whose_draws_are_lost_is_not_gone_on_from(begun, tmp_path):
    whole = open_run(run(config(tmp_path / "whole", "fald", "interpreted", 200), comm=MPI.COMM_SELF))
    other = run(config(tmp_path / "other", "fald", "interpreted", 80), comm=MPI.COMM_SELF)
    (other / "rank-00000.h5").replace(begun / "rank-00000.h5")  # as if the last draws had not reached the disk
    resume(begun, ["iterations=200"], comm=MPI.COMM_SELF)
    np.testing.assert_array_equal(draws(open_run(begun)), draws(whole))


def test_max_seconds_stops_with_a_checkpoint(tmp_path):
    output = {"directory": str(tmp_path / "run"), "max_seconds": 1e-3}
    with pytest.raises(StoppedError, match="output.max_seconds is over: stopped after 1 of 100 iterations"):
        run(config(tmp_path, "fald", "interpreted", 100, output=output), comm=MPI.COMM_SELF)
    resume(tmp_path / "run", ["output.max_seconds=null"], comm=MPI.COMM_SELF)
    assert open_run(tmp_path / "run").draws == (100 - 50) // 3


def test_a_folder_that_was_moved_goes_on_where_it_is(begun, tmp_path):
    moved = begun.rename(tmp_path / "moved")
    resume(moved, ["iterations=110"], comm=MPI.COMM_SELF)
    assert open_run(moved).draws == (110 - 50) // 3
    assert not begun.exists()


def test_handlers_are_as_they_were_after_a_run(begun):
    before = [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)]
    resume(begun, ["iterations=110"], comm=MPI.COMM_SELF)
    after = [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)]
    assert after == before


def test_what_a_killed_run_had_not_finished_is_swept(begun):
    partial = begun / "checkpoint" / "000001" / ".rank-00000.npz.17.partial"
    partial.write_text("half")
    (begun / ".run.yaml.17.partial").write_text("half")
    resume(begun, ["iterations=110"], comm=MPI.COMM_SELF)
    assert not list(begun.rglob("*.partial"))


def test_a_folder_that_is_in_use_is_refused(begun, monkeypatch):
    from fedlangevin_mpi.runtime import folder

    monkeypatch.setattr(folder, "_PATIENCE_SECONDS", 0.0)
    with folder.Lock() as lock:
        lock.take(begun)
        with pytest.raises(ConfigError, match="begun is in use: a run is still writing to it"):
            resume(begun, ["iterations=110"], comm=MPI.COMM_SELF)
        with pytest.raises(ConfigError, match="is in use"):
            run(config(begun, "fald", "interpreted", 100), comm=MPI.COMM_SELF, force=True)
    resume(begun, ["iterations=110"], comm=MPI.COMM_SELF)
