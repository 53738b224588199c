"""From topologies and a schedule to mixing matrices."""

from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.store.metadata import Topology
from fedlangevin_mpi.topology.scheduled import mixing_of, one_peer_exponential, pairwise

SHIPPED = Path(__file__).parents[2] / "topologies"


def config(*names, **algorithm):
    return make_config(
        {
            "iterations": 1,
            "algorithm": {"name": "de_sgld", "step_size": 0.1} | algorithm,
            "model": {"name": "gaussian"},
            "data": {"name": "synthetic_gaussian", "dim": 1},
            "topology": [str(SHIPPED / name) for name in names],
        }
    )


def test_every_topology_has_its_matrix_its_edges_and_its_facts():
    mixing = mixing_of(config("ring.yaml", "star.yaml"), 5)
    assert mixing.edges.tolist() == [10, 8]
    np.testing.assert_allclose(mixing.matrices[0].toarray()[0], [1 / 3, 1 / 3, 0, 0, 1 / 3])
    ring = Topology.model_validate(mixing.topologies[0])
    assert ring.kind == "ring"
    assert ring.path.endswith("ring.yaml")
    assert ring.lambda_2 == pytest.approx(1 / 3 + 2 / 3 * np.cos(2 * np.pi / 5))
    assert ring.lambda_n == pytest.approx(1 / 3 + 2 / 3 * np.cos(4 * np.pi / 5))
    assert ring.components == [[0, 1, 2, 3, 4]]
    assert mixing.notes == []


def test_components_of_a_disconnected_graph_are_named(tmp_path):
    (tmp_path / "two.yaml").write_text("kind: disconnected\nsizes: [3, 2]\n")
    (note,) = mixing_of(config(str(tmp_path / "two.yaml")), 5).notes
    assert "two.yaml: the graph has 2 components" in note
    assert "clients 0-2 | 3-4" in note


def test_pairwise_gossip_has_one_matrix_an_edge_in_which_two_clients_take_their_mean():
    matrices = pairwise(nx.star_graph(3))
    assert len(matrices) == 3
    for leaf, W in enumerate((m.toarray() for m in matrices), start=1):
        x = np.array([1.0, 2.0, 4.0, 8.0])
        mixed = x.copy()
        mixed[[0, leaf]] = (x[0] + x[leaf]) / 2
        np.testing.assert_array_equal(W @ x, mixed)
    assert mixing_of(config("star.yaml", schedule="pairwise"), 4).edges.tolist() == [2, 2, 2]


@pytest.mark.parametrize("clients", [2, 4, 8])
def test_one_peer_exponential_graphs_in_turn_give_the_exact_average(clients):
    matrices = [m.toarray() for m in one_peer_exponential(nx.complete_graph(clients))]
    assert len(matrices) == np.log2(clients)
    assert all((np.count_nonzero(m, axis=1) == 2).all() for m in matrices)
    np.testing.assert_allclose(
        np.linalg.multi_dot([np.eye(clients), *matrices]), np.full((clients, clients), 1 / clients)
    )


@pytest.mark.parametrize("clients", [3, 5, 6])
def test_one_peer_exponential_matrices_are_doubly_stochastic(clients):
    matrices = mixing_of(config("exponential.yaml", schedule="one_peer_exponential"), clients).matrices
    assert len(matrices) == np.ceil(np.log2(clients))
    for W in matrices:
        np.testing.assert_array_equal(W.sum(axis=0), 1)
        np.testing.assert_array_equal(W.sum(axis=1), 1)


def test_one_peer_exponential_uses_no_edge_that_the_topology_lacks():
    with pytest.raises(ConfigError, match="no edge between clients 0 and 2; allowed: a topology that connects"):
        mixing_of(config("ring.yaml", schedule="one_peer_exponential"), 8)


@pytest.mark.parametrize("schedule", ["cyclic", "pairwise", "one_peer_exponential"])
def test_one_client_mixes_with_itself(schedule):
    mixing = mixing_of(config("ring.yaml", schedule=schedule), 1)
    assert [m.toarray().tolist() for m in mixing.matrices] == [[[1.0]]]
    assert mixing.edges.tolist() == [0]
