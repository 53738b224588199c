import sys

import networkx as nx
import numpy as np
import pytest

from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.topology.generators import Complete, Disconnected, PathGraph, Ring, Star
from fedlangevin_mpi.topology.graph import read_topology
from fedlangevin_mpi.topology.listed import Edges
from fedlangevin_mpi.topology.mixing import mixing_matrix
from fedlangevin_mpi.topology.spectrum import spectrum
from fedlangevin_mpi.topology.weights import (
    FastestMixing,
    LazyMetropolis,
    Matrix,
    MaxDegree,
    Metropolis,
    Sinkhorn,
    weight_rules,
)

STAR = [[1 / 4, 1 / 4, 1 / 4, 1 / 4], [1 / 4, 3 / 4, 0, 0], [1 / 4, 0, 3 / 4, 0], [1 / 4, 0, 0, 3 / 4]]
PATH = [[2 / 3, 1 / 3, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0], [0, 1 / 3, 1 / 3, 1 / 3], [0, 0, 1 / 3, 2 / 3]]
KITE = nx.Graph([(0, 1), (1, 2), (0, 2), (2, 3)])


def test_metropolis_on_a_star_and_a_path():
    np.testing.assert_allclose(Metropolis().matrix(Star().graph(4)), STAR, atol=1e-15)
    np.testing.assert_allclose(Metropolis().matrix(PathGraph().graph(4)), PATH, atol=1e-15)


def test_metropolis_takes_the_larger_degree_of_a_pair():
    # Degrees with the node itself: 3, 3, 4, 2.
    expected = [[5, 4, 3, 0], [4, 5, 3, 0], [3, 3, 3, 3], [0, 0, 3, 9]]
    np.testing.assert_allclose(Metropolis().matrix(KITE), np.array(expected) / 12, atol=1e-15)


def test_lazy_metropolis_is_halfway_to_the_identity():
    lazy = LazyMetropolis().matrix(PathGraph().graph(4))
    np.testing.assert_allclose(lazy, (np.eye(4) + PATH) / 2, atol=1e-15)
    assert np.linalg.eigvalsh(lazy).min() > 0


def test_max_degree_weighs_all_edges_equally():
    expected = [[2, 1, 1, 0], [1, 2, 1, 0], [1, 1, 1, 1], [0, 0, 1, 3]]
    np.testing.assert_allclose(MaxDegree().matrix(KITE), np.array(expected) / 4, atol=1e-15)


def test_sinkhorn_of_two_clients():
    # A = [[a, b], [b, c]] balances to W_01 = b / (b + sqrt(a c)).
    topology = Edges(clients=2, edges=((0, 1),), edge_weights=(3,), self_weights=(4, 0.25), weights=Sinkhorn())
    np.testing.assert_allclose(mixing_matrix(topology, 2), [[1 / 4, 3 / 4], [3 / 4, 1 / 4]], atol=1e-12)


def test_sinkhorn_balances_and_keeps_the_cross_ratios_of_the_weights():
    rng = np.random.default_rng(0)
    graph = nx.gnp_random_graph(12, 0.4, seed=1)
    A = np.triu(np.exp(3 * rng.standard_normal((12, 12))), 1)
    A = A + A.T + np.diag(np.exp(rng.standard_normal(12)))
    for i, j in graph.edges:
        graph.edges[i, j]["weight"] = A[i, j]
    for i in graph:
        graph.nodes[i]["weight"] = A[i, i]
    W = Sinkhorn().matrix(graph)
    np.testing.assert_allclose(W.sum(0), 1, atol=1e-12)
    np.testing.assert_array_equal(W, W.T)
    for i, j in graph.edges:  # D A D has W_ij^2 / (W_ii W_jj) = A_ij^2 / (A_ii A_jj)
        np.testing.assert_allclose(W[i, j] ** 2 / (W[i, i] * W[j, j]), A[i, j] ** 2 / (A[i, i] * A[j, j]), rtol=1e-9)


def test_sinkhorn_without_weights_balances_ones():
    np.testing.assert_allclose(Sinkhorn().matrix(Ring().graph(5)), Metropolis().matrix(Ring().graph(5)), atol=1e-12)


def test_sinkhorn_gives_up_on_weights_that_cannot_be_balanced(monkeypatch):
    monkeypatch.setattr("fedlangevin_mpi.topology.weights._MOST_SWEEPS", 10)
    graph = Star().graph(5)
    nx.set_node_attributes(graph, 1e-9, "weight")
    with pytest.raises(
        ConfigError, match="weights sinkhorn: found row sums up to .* after 10 sweeps; allowed: weights"
    ):
        Sinkhorn().matrix(graph)


@pytest.mark.parametrize("rule", [Metropolis(), LazyMetropolis(), MaxDegree(), Sinkhorn(), FastestMixing()])
def test_an_isolated_client_keeps_its_position(rule):
    np.testing.assert_array_equal(rule.matrix(Disconnected().graph(3)), np.eye(3))


def test_fastest_mixing_reaches_the_known_optima():
    pytest.importorskip("cvxpy")
    # All edges of a ring are alike: the best equal weight is 2 / (mu_2 + mu_N), mu the Laplacian's eigenvalues.
    ring = spectrum(mixing_matrix(Ring(weights=FastestMixing()), 5))
    mu = 2 - 2 * np.cos(2 * np.pi * np.array([1, 2]) / 5)
    assert ring.gbar == pytest.approx((mu[1] - mu[0]) / (mu[1] + mu[0]), abs=1e-5)
    # Boyd, Diaconis, Sun, Xiao (2006): a path's optimum is cos(pi / N), with zero self-loops inside.
    path = spectrum(mixing_matrix(PathGraph(weights=FastestMixing(floor=1e-4)), 4))
    assert path.gbar == pytest.approx(np.cos(np.pi / 4), abs=1e-4)


def test_fastest_mixing_solves_component_by_component_and_keeps_its_floor():
    pytest.importorskip("cvxpy")
    W = mixing_matrix(Disconnected(sizes=(1, 3, 2), weights=FastestMixing()), 6)
    blocks = np.zeros((6, 6))
    blocks[0, 0], blocks[1:4, 1:4], blocks[4:, 4:] = 1, 1 / 3, 1 / 2
    np.testing.assert_allclose(W, blocks, atol=1e-5)
    star = mixing_matrix(Star(weights=FastestMixing(floor=0.5)), 4)
    assert star[0, 0] == pytest.approx(0.5 / 4, rel=1e-5)
    kite = FastestMixing(floor=1).matrix(KITE)
    assert kite[2] == pytest.approx(np.full(4, 1 / 4), rel=1e-5)


def test_fastest_mixing_without_cvxpy_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(ConfigError, match="weights fastest_mixing: cvxpy is not installed; allowed: pip install"):
        FastestMixing().matrix(Ring().graph(3))


@pytest.mark.parametrize("name", ["w.npy", "w.csv"])
def test_a_matrix_is_read_from_beside_the_topology(tmp_path, name):
    if name == "w.npy":
        np.save(tmp_path / name, STAR)
    else:
        np.savetxt(tmp_path / name, STAR, delimiter=",")
    (tmp_path / "star.yaml").write_text(f"kind: star\nweights: {{name: matrix, path: {name}}}")
    np.testing.assert_array_equal(mixing_matrix(read_topology(tmp_path / "star.yaml"), 4), STAR)


def test_a_matrix_is_listed_in_the_topology(tmp_path):
    (tmp_path / "pair.yaml").write_text("kind: path\nweights: {name: matrix, values: [[0.75, 0.25], [0.25, 0.75]]}")
    W = mixing_matrix(read_topology(tmp_path / "pair.yaml"), 2)
    np.testing.assert_array_equal(W, [[0.75, 0.25], [0.25, 0.75]])
    assert W.dtype == np.float64


def test_a_matrix_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "w.csv").write_text("1,0\n0,one\n")
    np.save(tmp_path / "w.npy", np.array([{}], object))
    for name, problem in (("w.csv", "could not convert string 'one'"), ("w.npy", "pickle"), ("no.npy", "No such file")):
        with pytest.raises(ConfigError, match=f"weights matrix: .*{name}: cannot be read: .*{problem}"):
            Matrix(path=str(tmp_path / name)).matrix(Complete().graph(2))


def test_every_rule_says_what_it_is():
    assert {*weight_rules()} == {
        *("metropolis", "lazy_metropolis", "max_degree", "sinkhorn", "fastest_mixing", "matrix")
    }
    assert all(rule.summary for rule in weight_rules().values())
