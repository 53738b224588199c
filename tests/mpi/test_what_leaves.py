"""What leaves a client is what the papers say: positions, and for VR-FALD* full gradients. Never a row of data."""

import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.comm.average import AverageChannel
from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.generic import Everything, define, exchange, gradient
from fedlangevin_mpi.runtime import loop
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.store.reader import open_run

CLIENTS, ROWS, CHAINS, DIM = 4, 25, 2, 3


class Recorder(MPI.Intracomm):
    """A communicator that keeps a copy of everything this rank hands to MPI; its duplicates do the same."""

    sent: list[bytes] = []  # noqa: RUF012  (shared with the duplicates)

    def allgather(self, sendobj):
        self.sent.append(pickle.dumps(sendobj))
        return super().allgather(sendobj)

    def allreduce(self, sendobj, op=MPI.SUM):
        self.sent.append(pickle.dumps(sendobj))
        return super().allreduce(sendobj, op)

    def bcast(self, obj, root=0):
        self.sent.append(pickle.dumps(obj) if self.rank == root else b"")
        return super().bcast(obj, root)

    def Reduce(self, sendbuf, recvbuf, op=MPI.SUM, root=0):  # noqa: N802  (MPI's name)
        self.sent.append(sendbuf.tobytes())
        return super().Reduce(sendbuf, recvbuf, op, root)


class Recording(NamedTuple):
    """A channel that keeps what each exchange was given, then makes it."""

    inner: Any
    given: list[np.ndarray]


def _record(theta, channel, weights, chains):
    channel.given.append(theta.copy())
    exchange(theta, channel.inner, weights, chains)


define(exchange, Recording, interpreted=_record)


def config(folder, algorithm, **more):
    values = {
        "clients": CLIENTS,
        "chains": CHAINS,
        "iterations": 100,
        "engine": "interpreted",
        "algorithm": {"step_size": 1e-3, "batch_size": 5, "communication_probability": 0.3} | algorithm,
        "model": {"name": "logistic_regression"},
        "data": {"name": "synthetic_logistic", "features": DIM, "rows": ROWS, "standardize": "pooled"},
        "output": {"directory": str(folder / "run")},
    }
    return make_config(values | more)


@pytest.fixture
def recorded(monkeypatch):
    """Wrap every average channel's handle; return what its exchanges were given."""
    given = []
    declare = AverageChannel._declare
    monkeypatch.setattr(AverageChannel, "_declare", lambda self: Recording(declare(self), given))
    return given


@pytest.mark.parametrize("name", ["fald", "vr_fald", "fed_avg"])
def test_no_row_is_ever_sent(mpi_tmp_path, recorded, name):
    Recorder.sent.clear()
    wanted = config(mpi_tmp_path, {"name": name}, initial={"name": "map"})
    run(wanted, comm=Recorder(MPI.COMM_WORLD), force=True)
    messages = b"".join(Recorder.sent) + b"".join(array.tobytes() for array in recorded)
    assert messages
    raw = wanted.data.shards(range(CLIENTS), CLIENTS, wanted.seed)
    statistics = wanted.data.standardization(wanted.data.moments(raw))
    for shard in [*raw, *(wanted.data.prepared(s, statistics) for s in raw)]:
        assert all(number.tobytes() not in messages for number in shard.arrays["x"].ravel())


def average_of(array):
    """Return the mean over all clients of what an exchange was given, `(chains, dim)`."""
    return MPI.COMM_WORLD.allreduce(array.sum(axis=0)) / CLIENTS


def is_position(array, positions):
    """Say whether clients sent what they hold, or held after the exchange: their average is that of kept positions."""
    return np.isclose(positions.mean(axis=1), average_of(array), rtol=1e-10, atol=1e-13).all(axis=(1, 2)).any()


def all_positions(opened):
    return np.stack([opened.position(c)[:] for c in range(CLIENTS)], axis=1)


def test_fald_sends_positions_only(mpi_tmp_path, recorded):
    opened = open_run(run(config(mpi_tmp_path, {"name": "fald"}), comm=MPI.COMM_WORLD, force=True))
    assert len(recorded) == opened.statistics.communication.rounds
    assert all(is_position(array, all_positions(opened)) for array in recorded)


def test_vr_fald_sends_positions_and_full_gradients_only(mpi_tmp_path, recorded, monkeypatch):
    prepared = []
    make = loop.BlockLoop.__init__

    def remember(self, world, what, *others):
        prepared.append((what.data, what.theta.copy()))
        make(self, world, what, *others)

    monkeypatch.setattr(loop.BlockLoop, "__init__", remember)
    wanted = config(mpi_tmp_path, {"name": "vr_fald", "reference_probability": 0.2})
    opened = open_run(run(wanted, comm=MPI.COMM_WORLD, force=True))
    (data, start), positions = prepared[0], all_positions(opened)
    references, kinds = [start[0]], []
    for array in recorded:
        points = [np.repeat(reference[None], len(array), axis=0) for reference in references]
        if any(np.allclose(array, gradient(point, data, Everything(len(array)), 0), rtol=1e-10) for point in points):
            kinds.append("gradient")
        else:
            assert is_position(array, positions)
            references.append(average_of(array))
            kinds.append("position")
    refreshed = kinds.count("gradient") - 1
    assert refreshed > 5
    assert kinds[0] == "gradient"  # the first shift, before iteration 0
    statistics = opened.statistics.communication
    assert statistics.messages == CLIENTS * len(recorded)
    assert statistics.bytes == CLIENTS * len(recorded) * CHAINS * DIM * 8


def test_counts_do_not_depend_on_the_number_of_ranks(mpi_tmp_path):
    wanted = config(mpi_tmp_path, {"name": "vr_fald", "reference_probability": 0.2})
    together = open_run(run(wanted, comm=MPI.COMM_WORLD, force=True)).statistics.communication
    own = config(mpi_tmp_path / str(MPI.COMM_WORLD.rank), {"name": "vr_fald", "reference_probability": 0.2})
    alone = open_run(run(own, comm=MPI.COMM_SELF)).statistics.communication
    assert together.rounds == alone.rounds
    assert together.messages == alone.messages
    assert together.bytes == alone.bytes
    assert alone.mpi_bytes == 0
    exchanges = together.messages // CLIENTS
    assert together.mpi_bytes == (MPI.COMM_WORLD.size > 1) * MPI.COMM_WORLD.size * exchanges * CHAINS * DIM * 8
