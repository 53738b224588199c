"""Only positions cross an edge, and only to neighbours: recorded on a star and a ring, one client a rank and packed."""

from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.comm.gossip import GossipChannel
from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.runtime.placement import place
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.store.reader import open_run

COMM = MPI.COMM_WORLD
SHIPPED = Path(__file__).parents[2] / "topologies"
GRAPHS = {"ring": nx.cycle_graph, "star": lambda n: nx.star_graph(n - 1)}
ITERATIONS = 40


class Watched(MPI.Intracomm):
    """A communicator that remembers to which ranks the graphs made from it lead; its duplicates do the same."""

    targets: list[list[int]] = []  # noqa: RUF012  (shared with the duplicates)

    def Create_dist_graph_adjacent(self, sources, destinations, *args, **options):  # noqa: N802  (MPI's name)
        self.targets.append(list(destinations))
        return super().Create_dist_graph_adjacent(sources, destinations, *args, **options)


@pytest.fixture
def recorded(monkeypatch):
    """Return what every exchange sent from this rank, and what it received, row by row."""
    sent, received = [], []
    carry = GossipChannel._carry

    def record(self, m):
        sent.append(self._send.copy())
        carry(self, m)
        received.append(self._rows[len(self._here) :].copy())

    monkeypatch.setattr(GossipChannel, "_carry", record)
    return sent, received


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", ["de_sgld", "de_sghmc", "extra_sgld", "gradient_tracking"])
def test_only_positions_cross_and_only_to_neighbours(name, graph, packed, recorded, mpi_tmp_path):
    clients = 2 * COMM.size + 1 if packed else COMM.size
    values = {
        "clients": clients,
        "chains": 2,
        "iterations": ITERATIONS,
        "engine": "interpreted",
        "initial": {"name": "zeros"},
        "algorithm": {"name": name, "step_size": 0.05},
        "model": {"name": "gaussian"},
        "data": {"name": "synthetic_gaussian", "dim": 3},
        "topology": str(SHIPPED / f"{graph}.yaml"),
        "output": {"directory": str(mpi_tmp_path / "run")},
    }
    Watched.targets.clear()
    opened = open_run(run(make_config(values), comm=Watched(COMM), force=True))
    hosted = place(clients, COMM.size).of_rank
    rank_of = np.repeat(np.arange(COMM.size), [len(here) for here in hosted])
    here = hosted[COMM.rank]
    outside = [(i, j) for i, j in both_ways(GRAPHS[graph](clients)) if i in here and j not in here]
    assert Watched.targets == ([sorted({rank_of[j] for _, j in outside})] if COMM.size > 1 else [])
    sent, received = (rows[2:] if COMM.size > 1 else rows for rows in recorded)  # after the two of the self-test
    if name == "gradient_tracking":  # of two exchanges an iteration, the first is of positions
        sent, received = sent[::2], received[::2]
    assert len(sent) == ITERATIONS
    to_each = sorted({(rank_of[j], i) for i, j in outside})
    neighbours = sorted({j for _, j in outside})
    for k in range(ITERATIONS):
        np.testing.assert_array_equal(sent[k], positions(opened, k, [i for _, i in to_each]))
        np.testing.assert_array_equal(received[k], positions(opened, k, neighbours))


def both_ways(graph):
    return [pair for edge in graph.edges if edge[0] != edge[1] for pair in (edge, edge[::-1])]


def positions(opened, iteration, clients):
    """Return the positions at the start of an iteration, `(clients, chains, dim)`; the run starts at zero."""
    rows = [opened.position(c)[iteration - 1] if iteration else np.zeros((2, 3)) for c in clients]
    return np.array(rows).reshape(len(clients), 2, 3)
