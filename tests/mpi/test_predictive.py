"""The predictive that ranks average together is that of one rank, and no row leaves its client's rank for it."""

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.data.files import Files
from fedlangevin_mpi.runtime.resume import resume
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.store.reader import open_run
from tests.predictives import config

COMM = MPI.COMM_WORLD


def sample(folder, kind, comm=COMM, **more):
    return open_run(run(config(folder, kind, "predictive", **more), comm=comm))


def same(found, expected, tolerance):
    assert (found.positions, found.iteration) == (expected.positions, expected.iteration)
    kind = "mixture" if expected.probabilities is None else "probabilities"
    np.testing.assert_allclose(getattr(found, kind), getattr(expected, kind), rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", ["average", "regression", "gossip", "travelling", "particles", "variational"])
def test_it_is_that_of_one_rank(mpi_tmp_path, kind):
    found = sample(mpi_tmp_path / "run", kind).predictive()
    alone = sample(mpi_tmp_path / f"alone-{COMM.rank}", kind, MPI.COMM_SELF).predictive()
    same(found, alone, 1e-12)


@pytest.mark.parametrize("kind", ["average", "particles"])
def test_another_number_of_ranks_goes_on_with_it(mpi_tmp_path, kind):
    grown = {"average": "iterations=60", "particles": "algorithm.global_iterations=6"}[kind]
    if COMM.rank == 0:
        few = {"iterations": 30} if kind == "average" else {}
        if kind == "particles":
            few["algorithm"] = {"name": "dsvgd", "step_size": 1e-3, "particles": 5, "global_iterations": 3}
        run(config(mpi_tmp_path / "run", kind, "predictive", **few), comm=MPI.COMM_SELF)
    COMM.Barrier()
    resume(mpi_tmp_path / "run", [grown], comm=COMM)
    alone = sample(mpi_tmp_path / f"alone-{COMM.rank}", kind, MPI.COMM_SELF)
    same(open_run(mpi_tmp_path / "run").predictive(), alone.predictive(), 1e-12)


def test_a_rank_reads_the_held_out_rows_of_its_clients_only(mpi_tmp_path, monkeypatch):
    """Clients hold out 0, 1, 2, ... rows; what MPI carries for them is a mean of positions a draw."""
    if COMM.rank == 0:
        rng = np.random.default_rng(1)
        for client in range(5):
            x, x_test = rng.normal(size=(20, 3)), rng.normal(size=(client, 3))
            held_out = {"x_test": x_test, "y_test": (x_test[:, 0] > 0) * 1.0} if client else {}
            np.savez(mpi_tmp_path / f"client-{client}.npz", x=x, y=(x[:, 0] > 0) * 1.0, **held_out)
    COMM.Barrier()
    opened, read = set(), Files._read
    monkeypatch.setattr(Files, "_read", lambda self, client, *names: opened.add(client) or read(self, client, *names))
    monkeypatch.setattr("fedlangevin_mpi.runtime.run._finish", lambda *_: None)  # it predicts from stored draws
    data = {"data": {"name": "files", "path": str(mpi_tmp_path / "client-{client}.npz")}, "chains": 3}
    found = sample(mpi_tmp_path / "run", "average", **data)
    assert opened == set(found.newest_files()[COMM.rank][2])
    monkeypatch.undo()
    assert found.predictive().probabilities.shape == (10, 2)
    assert found.predictive().positions == 10 * 3
    alone = sample(mpi_tmp_path / f"alone-{COMM.rank}", "average", MPI.COMM_SELF, **data)
    same(found.predictive(), alone.predictive(), 1e-12)


@pytest.mark.mpi(min_size=2)
def test_what_it_sends_is_counted_as_bytes_of_mpi_and_not_as_the_samplers(mpi_tmp_path):
    streamed = sample(mpi_tmp_path / "run", "average").statistics.communication
    plain = open_run(run(config(mpi_tmp_path / "plain", "average", "draws"), comm=COMM)).statistics.communication
    assert streamed.bytes == plain.bytes
    assert streamed.mpi_bytes - plain.mpi_bytes == COMM.size * 10 * 2 * 4 * 8
