"""A run goes on where it was stopped, by a request of any rank, on the same number of ranks or another."""

import os
import shutil
import signal

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.errors import StoppedError
from fedlangevin_mpi.runtime import blocks
from fedlangevin_mpi.runtime.pace import Pace
from fedlangevin_mpi.runtime.resume import resume
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.store.reader import open_run
from tests.resuming import config, counts, draws

COMM = MPI.COMM_WORLD
SHARED_BY_ALL = [("fald", "compiled"), ("vr_fald", "interpreted"), ("de_sghmc", "compiled")]
"""To rounding with an average, to the bit with gossip."""


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "block_length", lambda *_: 64)
    monkeypatch.setattr(Pace, "took", lambda self, *_: setattr(self, "_length", 64))


def folders(mpi_tmp_path, name):
    """Return a folder that all ranks share, and one of this rank's own."""
    return mpi_tmp_path / name, mpi_tmp_path / f"{name}-{COMM.rank}"


@pytest.mark.parametrize(("name", "engine"), SHARED_BY_ALL)
def test_it_goes_on_to_the_bit_and_on_one_rank_to_rounding(mpi_tmp_path, name, engine):
    whole = open_run(run(config(mpi_tmp_path / "whole", name, engine, 500), comm=COMM))
    here, alone = folders(mpi_tmp_path, "stopped")
    run(config(here, name, engine, 200), comm=COMM)
    shutil.copytree(here, alone)
    resume(here, ["iterations=500"], comm=COMM)
    np.testing.assert_array_equal(draws(open_run(here)), draws(whole))
    assert counts(open_run(here)) == counts(whole)
    assert open_run(here).statistics.communication == whole.statistics.communication  # bytes of MPI, too

    resume(alone, ["iterations=500"], comm=MPI.COMM_SELF)
    moved = open_run(alone)
    tolerance = 0 if name == "de_sghmc" else 1e-9 * np.abs(draws(whole)).max()
    np.testing.assert_allclose(draws(moved), draws(whole), rtol=0, atol=tolerance)
    assert counts(moved) == counts(whole)
    assert [launch.ranks for launch in moved.resolved.launches] == [COMM.size, 1]


@pytest.mark.parametrize(("name", "engine"), SHARED_BY_ALL[:1])
def test_a_run_of_one_rank_goes_on_on_all(mpi_tmp_path, name, engine):
    here, alone = folders(mpi_tmp_path, "begun")
    run(config(alone, name, engine, 500), comm=MPI.COMM_SELF)
    if COMM.rank == 0:
        run(config(here, name, engine, 200), comm=MPI.COMM_SELF)
    COMM.Barrier()
    resume(here, ["iterations=500"], comm=COMM)
    whole = open_run(alone)
    tolerance = 1e-9 * np.abs(draws(whole)).max()
    np.testing.assert_allclose(draws(open_run(here)), draws(whole), rtol=0, atol=tolerance)
    assert counts(open_run(here)) == counts(whole)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_to_any_single_rank_stops_all_in_one_place(mpi_tmp_path, monkeypatch, number):
    calls = []

    def took(self, *_):
        calls.append(0)
        if len(calls) == 3 and COMM.rank == COMM.size - 1:
            os.kill(os.getpid(), number)
        self._length = 64

    monkeypatch.setattr(Pace, "took", took)
    with pytest.raises(StoppedError, match=f"{number.name} came: stopped after 128 of 500 iterations"):
        run(config(mpi_tmp_path / "run", "fald", "interpreted", 500), comm=COMM)
    resume(mpi_tmp_path / "run", comm=COMM)
    assert open_run(mpi_tmp_path / "run").draws == (500 - 50) // 3


@pytest.mark.mpi(min_size=2)
def test_a_part_that_is_damaged_on_one_rank_takes_all_back_to_the_checkpoint_before(mpi_tmp_path, caplog):
    whole = open_run(run(config(mpi_tmp_path / "whole", "fald", "interpreted", 400), comm=COMM))
    here = run(config(mpi_tmp_path / "run", "fald", "interpreted", 200), comm=COMM)
    resume(here, ["iterations=300"], comm=COMM)
    if COMM.rank == 0:
        part = here / "checkpoint" / "000002" / f"rank-{COMM.size - 1:05d}.npz"
        part.write_bytes(part.read_bytes()[:-1])
    COMM.Barrier()
    resume(here, ["iterations=400"], comm=COMM)
    np.testing.assert_array_equal(draws(open_run(here)), draws(whole))
    assert [launch.iteration for launch in open_run(here).resolved.launches] == [0, 200, 200]
    assert f"rank-{COMM.size - 1:05d}.npz: cannot be read: it is damaged" in caplog.text


def test_a_rank_reads_the_parts_of_its_clients_only(mpi_tmp_path, monkeypatch):
    from fedlangevin_mpi.store import checkpoint_files

    here = run(config(mpi_tmp_path / "run", "fald", "interpreted", 100), comm=COMM)
    read, opened = [], checkpoint_files._read
    monkeypatch.setattr(checkpoint_files, "_read", lambda *a: read.append(a[1].file) or opened(*a))
    resume(here, ["iterations=150"], comm=COMM)
    assert read == [f"rank-{COMM.rank:05d}.npz"]
