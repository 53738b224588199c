"""Gossip gives the same draws to the bit on any number of ranks and by both carriers; and what it costs."""

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.store.reader import open_run

COMM = MPI.COMM_WORLD
CLIENTS, CHAINS, DIM, ITERATIONS = 5, 2, 3, 300
SHIPPED = Path(__file__).parents[2] / "topologies"

GAUSSIAN = {"model": {"name": "gaussian"}, "data": {"name": "synthetic_gaussian", "dim": DIM}}
LOGISTIC = {
    "model": {"name": "logistic_regression"},
    "data": {"name": "synthetic_logistic", "features": DIM, "rows": 40},
}
CASES = {
    "de_sgld": GAUSSIAN | {"topology": "ring.yaml", "algorithm": {}},
    "de_sghmc": LOGISTIC | {"topology": "exponential.yaml", "algorithm": {"batch_size": 8, "step_size": 0.02}},
    "dgd": GAUSSIAN | {"topology": ["path.yaml", "star.yaml"], "algorithm": {"communication_interval": 3}},
    "gradient_tracking": LOGISTIC | {"topology": "barbell.yaml", "algorithm": {"batch_size": 8, "step_size": 1e-3}},
    "extra_sgld": GAUSSIAN | {"topology": "star.yaml", "algorithm": {"step_size": 0.01}, "dtype": "float32"},
}


def config(folder, name, engine="compiled", **more):
    case = CASES[name]
    files = case["topology"]
    paths = [str(SHIPPED / f) for f in files] if isinstance(files, list) else str(SHIPPED / files)
    values = {"seed": 2, "clients": CLIENTS, "chains": CHAINS, "iterations": ITERATIONS, "engine": engine}
    algorithm = {"name": name, "step_size": 0.05} | case["algorithm"] | more.pop("algorithm", {})
    output = {"directory": str(folder)}
    return make_config(values | case | {"algorithm": algorithm, "topology": paths, "output": output} | more)


def draws(wanted, comm):
    """Run on `comm` and return all clients' draws `(draw, client, chain, dim)` with the communication."""
    opened = open_run(run(wanted, comm=comm, force=True))
    return np.stack([opened.position(c)[:] for c in range(CLIENTS)], axis=1), opened.statistics.communication


@pytest.mark.parametrize("name", CASES)
def test_draws_are_the_same_bits_on_any_number_of_ranks(name, mpi_tmp_path):
    alone_folder = mpi_tmp_path / f"alone-{COMM.rank}"
    found = {}
    for engine in ("compiled", "interpreted"):
        found[engine], communication = draws(config(mpi_tmp_path / "run", name, engine), COMM)
        alone, communication_alone = draws(config(alone_folder, name, engine), MPI.COMM_SELF)
        np.testing.assert_array_equal(found[engine], alone)
        logical = ("rounds", "messages", "bytes")
        assert [getattr(communication, n) for n in logical] == [getattr(communication_alone, n) for n in logical]
    assert np.isfinite(alone).all()
    tolerance = (1e-9 if alone.dtype == np.float64 else 1e-4) * np.abs(alone).max()
    np.testing.assert_allclose(found["compiled"], found["interpreted"], rtol=0, atol=tolerance)


@pytest.mark.parametrize("engine", ["compiled", "interpreted"])
@pytest.mark.parametrize("schedule", ["cyclic", "pairwise", "one_peer_exponential"])
def test_sendrecv_gives_the_same_bits(mpi_tmp_path, schedule, engine):
    topology = str(SHIPPED / "exponential.yaml")
    both = [
        draws(
            config(
                mpi_tmp_path / e, "de_sgld", engine, algorithm={"exchange": e, "schedule": schedule}, topology=topology
            ),
            COMM,
        )
        for e in ("neighbor", "sendrecv")
    ]
    np.testing.assert_array_equal(both[0][0], both[1][0])
    assert both[0][1] == both[1][1]


def test_messages_are_counted_on_the_edges_of_the_clients_graph(mpi_tmp_path):
    _, ring = draws(config(mpi_tmp_path / "ring", "de_sgld"), COMM)
    assert ring.rounds == ITERATIONS
    assert ring.messages == 2 * CLIENTS * ITERATIONS
    assert ring.bytes == ring.messages * CHAINS * DIM * 8
    crossing = [0, 0, 4, 6, 8][COMM.size] if COMM.size < 5 else 10
    assert ring.mpi_bytes == crossing * ITERATIONS * CHAINS * DIM * 8


def test_pairwise_gossip_is_two_messages_an_exchange(mpi_tmp_path):
    options = {"schedule": "pairwise", "communication_interval": 2}
    found, pairs = draws(config(mpi_tmp_path / "pairs", "de_sgld", algorithm=options), COMM)
    assert pairs.rounds == ITERATIONS // 2
    assert pairs.messages == 2 * pairs.rounds
    assert np.isfinite(found).all()


def test_gradient_tracking_sends_two_vectors_along_an_edge(mpi_tmp_path):
    _, tracking = draws(config(mpi_tmp_path / "tracking", "gradient_tracking", "interpreted"), COMM)
    edges = 2 * (1 + 3 + 1)  # a barbell of five: a pair, a triangle, and the edge between them
    assert tracking.messages == 2 * edges * ITERATIONS
    assert tracking.bytes == tracking.messages * CHAINS * DIM * 8
