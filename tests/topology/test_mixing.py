from pathlib import Path

import numpy as np
import pytest

from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.topology import check, fingerprint, mixing_matrix, read_topology, spectrum
from fedlangevin_mpi.topology.generators import Complete, Disconnected, PathGraph, Ring
from fedlangevin_mpi.topology.graph import components
from fedlangevin_mpi.topology.weights import LazyMetropolis, Matrix, MaxDegree, Metropolis, Sinkhorn

SHIPPED = sorted((Path(__file__).parents[2] / "topologies").rglob("*.yaml"))
RULES = [Metropolis(), LazyMetropolis(), MaxDegree(), Sinkhorn()]
CASES = [
    pytest.param(file, clients, id=f"{file.stem}-{clients}")
    for file in SHIPPED
    for clients in (1, 2, 3, 4, 5, 8, 9, 16)
    if file.stem != "hypercube" or clients in (1, 2, 4, 8, 16)
]
PATH = PathGraph().graph(3)
GOOD = np.array([[0.5, 0.5, 0], [0.5, 0.25, 0.25], [0, 0.25, 0.75]])


def changed(*entries):
    W = GOOD.copy()
    for i, j, value in entries:
        W[i, j] = value
    return W


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize(("file", "clients"), CASES)
def test_every_shipped_topology_makes_a_mixing_matrix(file, clients, rule):
    topology = read_topology(file).model_copy(update={"weights": rule})
    W, graph = mixing_matrix(topology, clients), topology.graph(clients)
    assert W.dtype == np.float64
    np.testing.assert_array_equal(W, W.T)
    np.testing.assert_allclose(W.sum(0), 1, atol=1e-12)
    assert (W >= 0).all()
    support = {(i, i) for i in range(clients)} | {pair for i, j in graph.edges for pair in ((i, j), (j, i))}
    assert set(zip(*np.nonzero(W), strict=True)) == support
    eigenvalues = np.linalg.eigvalsh(W)
    assert np.sum(np.isclose(eigenvalues, 1)) == len(components(graph))
    assert eigenvalues.min() > -1
    assert (spectrum(W).gap > 1e-3) == (len(components(graph)) == 1)


def test_a_mixing_matrix_with_rounded_weights_passes():
    check(GOOD, PATH)
    check(changed((0, 0, 0.5 + 9e-11), (2, 1, 0.25 + 9e-11)), PATH)


@pytest.mark.parametrize(
    ("W", "message"),
    [
        (np.eye(2), r"W: found shape \(2, 2\); allowed: \(3, 3\), a row and a column for each of 3 clients"),
        (np.ones((3, 4)), r"W: found shape \(3, 4\)"),
        (changed((1, 2, np.nan)), r"W\[1, 2\]: found nan; allowed: a finite number"),
        (changed((1, 0, -0.5)), r"W\[1, 0\]: found -0.5; allowed: a number >= 0"),
        (changed((0, 1, 0.4)), r"W\[0, 1\]: found 0.4; allowed: 0.5, as W\[1, 0\]"),
        (changed((1, 2, 0.25 + 2e-10)), r"W\[1, 2\]: found 0.2500000002; allowed: 0.25, as W\[2, 1\]"),
        (changed((1, 2, 0), (2, 1, 0)), r"W\[1, 2\]: found 0; allowed: a number > 0, since 1 - 2 is an edge"),
        (changed((1, 1, 0)), r"W\[1, 1\]: found 0; allowed: a number > 0: every client keeps a part"),
        (changed((0, 2, 0.1), (2, 0, 0.1)), r"W\[0, 2\]: found 0.1; allowed: 0, since 0 - 2 is no edge"),
        (changed((2, 2, 0.75 + 2e-10)), r"W: found a sum of 1.0000000002 in row 2; allowed: 1, to 1e-10"),
        (changed((0, 1, 0.5 + 8e-11), (2, 1, 0.25 + 8e-11)), "W: found a sum of 1.00000000016 in column 1; allowed: 1"),
    ],
)
def test_a_wrong_matrix_is_refused_with_row_column_and_value(W, message):
    with pytest.raises(ConfigError, match=message):
        check(W, PATH)


def test_a_given_matrix_is_checked_against_its_topology():
    eye = Matrix(values=((1, 0), (0, 1)))
    np.testing.assert_array_equal(mixing_matrix(Disconnected(weights=eye), 2), np.eye(2))
    with pytest.raises(ConfigError, match=r"topology ring, weights matrix: W\[0, 1\]: found 0; allowed: a number > 0"):
        mixing_matrix(Ring(weights=eye), 2)
    with pytest.raises(ConfigError, match=r"topology ring, weights matrix: W: found shape \(2, 2\); allowed: \(3, 3\)"):
        mixing_matrix(Ring(weights=eye), 3)


def test_a_fingerprint_tells_matrices_apart_by_their_last_bit_and_shape():
    W = mixing_matrix(Complete(), 4)
    assert fingerprint(W) == fingerprint(np.asfortranarray(W))
    other = W.copy()
    other[1, 2] = np.nextafter(W[1, 2], 1)
    assert fingerprint(W) != fingerprint(other)
    assert fingerprint(np.ones((1, 4))) != fingerprint(np.ones((2, 2)))
