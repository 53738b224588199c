"""Runs with a server: the same particles on any number of ranks, and nothing but what the papers send."""

import itertools
import time

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.algorithms.dsvgd import Dsvgd
from fedlangevin_mpi.comm.server import Order, ServerChannel
from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.errors import ConfigError, DivergedError, StoreError
from fedlangevin_mpi.runtime import agents
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.store.reader import open_run
from fedlangevin_mpi.store.writer import DrawWriter

COMM = MPI.COMM_WORLD
AGENTS, PARTICLES, DIM = 5, 6, 3

LOGISTIC = {
    "model": {"name": "logistic_regression"},
    "data": {"name": "breast_cancer", "standardize": "pooled", "intercept": True},
}
LINEAR = {"model": {"name": "linear_regression"}, "data": {"name": "synthetic_linear", "rows": 60, "features": DIM}}
CASES = {
    "dsvgd": LINEAR | {"algorithm": {"name": "dsvgd", "step_size": 0.05, "batch_size": 8}},
    "u_dsvgd": LINEAR | {"algorithm": {"name": "u_dsvgd", "step_size": 0.05, "schedule": "random"}},
    "dsvgd-all": LINEAR | {"algorithm": {"name": "dsvgd", "step_size": 0.05, "schedule": "all", "damping": 0.3}},
    "u_dsvgd-parallel": LINEAR
    | {"algorithm": {"name": "u_dsvgd", "step_size": 0.05, "schedule": "parallel", "agents_per_iteration": 3}},
    "pvi": LOGISTIC | {"algorithm": {"name": "pvi", "covariance": "diagonal", "samples": 8}},
    "pvi-all": LINEAR | {"algorithm": {"name": "pvi", "schedule": "all", "damping": 0.5}},
    "pvi-parallel": LINEAR | {"algorithm": {"name": "pvi", "schedule": "parallel", "agents_per_iteration": 2}},
    "dsgld": LINEAR | {"algorithm": {"name": "dsgld", "step_size": 1e-3, "batch_size": 8}},
    "fsgld": LINEAR | {"algorithm": {"name": "fsgld", "step_size": 1e-3}},
    "fed_avg": LINEAR | {"algorithm": {"name": "sequential_fed_avg", "step_size": 1e-3, "particles": PARTICLES}},
}


def config(folder, case, **more):
    common = {"particles": PARTICLES, "global_iterations": 9, "local_iterations": 2}
    values = CASES[case] | {"seed": 4, "clients": AGENTS, "engine": "interpreted", "output": {"directory": str(folder)}}
    return make_config(values | {"algorithm": common | CASES[case]["algorithm"]} | more)


@pytest.mark.parametrize("case", CASES)
def test_draws_do_not_depend_on_the_number_of_ranks(case, mpi_tmp_path):
    together = open_run(run(config(mpi_tmp_path / "together", case), comm=COMM))
    alone = open_run(run(config(mpi_tmp_path / f"alone-{COMM.rank}", case), comm=MPI.COMM_SELF))
    np.testing.assert_array_equal(together.position(-1)[:], alone.position(-1)[:])
    ours, theirs = together.statistics, alone.statistics
    assert ours.gradient_evaluations == theirs.gradient_evaluations
    for name in ("rounds", "messages", "bytes"):
        assert getattr(ours.communication, name) == getattr(theirs.communication, name)
    assert theirs.communication.mpi_bytes == 0


@pytest.fixture
def recorded(monkeypatch):
    """Every array that this rank sends to another."""
    sent, begin = [], ServerChannel._begin

    def record(self, rank, tag, rows):
        sent.append(np.array(rows))
        begin(self, rank, tag, rows)

    monkeypatch.setattr(ServerChannel, "_begin", record)
    return sent


def test_a_round_sends_the_particles_down_and_up_and_nothing_else(mpi_tmp_path, recorded):
    opened = open_run(run(config(mpi_tmp_path, "dsvgd"), comm=COMM))
    particles = opened.position(-1)[:]
    communication = opened.statistics.communication
    assert communication.rounds == communication.messages == len(particles) == 9
    assert communication.bytes == 9 * PARTICLES * DIM * 8
    states = [array for array in recorded if array.size > 1]
    orders = [array for array in recorded if array.size <= 1]
    assert all(array.tolist() in ([9.0], [9]) for array in orders)  # the last checkpoint, and to leave
    assert len(orders) == (2 * (COMM.size - 1) if COMM.rank == 0 else 0)
    first = np.zeros_like(particles[0]) if COMM.size == 1 else None
    for array in states:
        assert array.shape == (PARTICLES, DIM)
        known = (np.abs(array - particles).max(axis=(1, 2)) == 0).any()
        if not known:  # what the server sends first: the initial particles
            assert COMM.rank == 0
            assert first is None
            first = array
    downloads_and_uploads = COMM.allreduce(len(states))
    assert downloads_and_uploads == (18 if COMM.size > 1 else 0)
    assert communication.mpi_bytes == COMM.allreduce(sum(array.nbytes for array in recorded))


def test_pvi_sends_natural_parameters(mpi_tmp_path, recorded):
    run(config(mpi_tmp_path, "pvi"), comm=COMM)
    dim = 31
    assert {array.shape for array in recorded if array.size > 1} <= {(2, dim)}
    assert COMM.allreduce(sum(array.size > 1 for array in recorded)) == (18 if COMM.size > 1 else 0)


def test_fsgld_counts_its_surrogates(mpi_tmp_path):
    chains = open_run(run(config(mpi_tmp_path / "d", "dsgld"), comm=COMM)).statistics.communication
    corrected = open_run(run(config(mpi_tmp_path / "f", "fsgld"), comm=COMM)).statistics.communication
    assert corrected.messages - chains.messages == AGENTS
    assert corrected.bytes - chains.bytes == AGENTS * (DIM + DIM**2) * 8


@pytest.mark.parametrize("case", ["pvi-all", "dsvgd-all"])
@pytest.mark.parametrize("schedule", ["round_robin", "all"])
def test_an_agent_that_fails_ends_the_run_on_all_ranks(mpi_tmp_path, monkeypatch, schedule, case):
    work = agents.Agents.work

    def broken(self, iteration, deal, received):
        if (iteration, deal.agent) == (3 if schedule == "round_robin" else 1, 3):
            raise DivergedError("client 3 is broken")
        return work(self, iteration, deal, received)

    monkeypatch.setattr(agents.Agents, "work", broken)
    wanted = config(mpi_tmp_path, case)
    algorithm = wanted.algorithm.model_copy(update={"schedule": schedule})
    started = time.monotonic()
    with pytest.raises(DivergedError, match="client 3 is broken"):
        run(wanted.model_copy(update={"algorithm": algorithm}), comm=COMM)
    assert time.monotonic() - started < 20
    assert open_run(mpi_tmp_path).draws == (3 if schedule == "round_robin" else 1)


def test_particles_that_diverge_are_named_and_never_stored(mpi_tmp_path):
    wild = {"name": "dsvgd", "step_size": 1e200, "optimizer": "plain", "global_iterations": 9, "particles": PARTICLES}
    with pytest.raises(DivergedError, match=r"client \d, row \d+ .* in global iteration \d; .*step_size"):
        run(config(mpi_tmp_path, "dsvgd", algorithm=wild), comm=COMM)
    assert np.isfinite(open_run(mpi_tmp_path).position(-1)[:]).all()


def test_a_server_that_cannot_store_ends_the_run_on_all_ranks(mpi_tmp_path, monkeypatch):
    commit = DrawWriter.commit

    def full(self, count, iterations):
        if iterations[0] == 4:
            raise StoreError("no room")
        commit(self, count, iterations)

    monkeypatch.setattr(DrawWriter, "commit", full)
    with pytest.raises(StoreError, match="no room"):
        run(config(mpi_tmp_path, "dsvgd"), comm=COMM)


@pytest.mark.mpi(min_size=2)
def test_more_ranks_than_agents_and_a_server_are_refused(mpi_tmp_path):
    values = CASES["dsvgd"] | {"clients": COMM.size - 2 or 1, "output": {"directory": str(mpi_tmp_path)}}
    wanted = make_config(values | {"algorithm": {"global_iterations": 1} | CASES["dsvgd"]["algorithm"]})
    if COMM.size == 2:
        assert open_run(run(wanted, comm=COMM)).clients == 1
        return
    with pytest.raises(ConfigError, match=rf"clients: found {COMM.size - 2} for {COMM.size} ranks, .* the server"):
        run(wanted, comm=COMM)


@pytest.mark.mpi(min_size=2)
def test_without_clients_every_rank_but_the_server_is_one(mpi_tmp_path):
    values = CASES["dsvgd"] | {"output": {"directory": str(mpi_tmp_path)}, "engine": "interpreted"}
    algorithm = {"global_iterations": 1, "particles": 3} | CASES["dsvgd"]["algorithm"]
    opened = open_run(run(make_config(values | {"algorithm": algorithm}), comm=COMM))
    assert opened.clients == COMM.size - 1
    assert len(opened.files) == 1


@pytest.mark.mpi(min_size=2)
def test_whoever_waits_sleeps():
    with World(COMM) as world:
        channel = ServerChannel(world, (50, 100))
        before, started = time.process_time(), time.perf_counter()
        if COMM.rank == 0:
            time.sleep(0.4)
            channel.send(1, 0, np.ones((50, 100)))
            channel.finish()
        elif COMM.rank == 1:
            assert channel.download(0, 50).sum() == 5000
            assert time.perf_counter() - started >= 0.38
            assert time.process_time() - before < 0.1
        channel.free()


@pytest.mark.mpi(min_size=2)
def test_an_order_comes_instead_of_rows():
    with World(COMM) as world:
        channel = ServerChannel(world, (2, 3))
        if COMM.rank == 0:
            channel.tell(Order(False, 7))
            channel.tell(Order(True, 9))
        else:
            assert channel.download(4, 2) == Order(False, 7)
            assert channel.order() == Order(True, 9)
        channel.free()


def test_overlap_changes_no_particle(mpi_tmp_path):
    algorithm = {"name": "dsvgd", "step_size": 0.05, "particles": 4, "global_iterations": 7, "local_iterations": 5}
    one = open_run(run(config(mpi_tmp_path / "on", "dsvgd", algorithm=algorithm), comm=COMM))
    other = open_run(run(config(mpi_tmp_path / "off", "dsvgd", algorithm=algorithm | {"overlap": False}), comm=COMM))
    np.testing.assert_array_equal(one.position(-1)[:], other.position(-1)[:])


@pytest.mark.mpi(min_size=3)
def test_an_agent_distils_while_the_next_one_works(mpi_tmp_path, monkeypatch):
    spans, distil = [], Dsvgd._distil

    def slow(self, *arguments):
        started = time.monotonic()
        time.sleep(0.2)
        distil(self, *arguments)
        spans.append((started, time.monotonic()))

    monkeypatch.setattr(Dsvgd, "_distil", slow)
    algorithm = {"name": "dsvgd", "step_size": 0.05, "particles": 4, "global_iterations": 6}
    run(config(mpi_tmp_path, "dsvgd", algorithm=algorithm), comm=COMM)
    everyone = sorted(span for of_rank in COMM.allgather(spans) for span in of_rank)
    assert len(everyone) == 6
    beside = [later[0] < earlier[1] for earlier, later in itertools.pairwise(everyone)]
    assert sum(beside) >= 2  # those whose turns are on different ranks
