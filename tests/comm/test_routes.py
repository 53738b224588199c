"""Who sends what to whom, from W and the placement alone."""

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_array

from fedlangevin_mpi.comm.routes import needs, plan

HOSTED = [range(0, 3), range(3, 5), range(5, 6)]


def matrix(graph):
    return csr_array(nx.to_numpy_array(graph, range(len(graph))) + np.eye(len(graph)))


def test_a_client_is_sent_once_to_a_rank_and_local_edges_never():
    star = needs(matrix(nx.star_graph(5)), HOSTED)
    assert star.sent_by(0) == {1: [0], 2: [0]}
    assert star.sent_by(1) == {0: [3, 4]}
    assert star.received_by(0) == {1: [3, 4], 2: [5]}
    assert star.received_by(2) == {0: [0]}


def test_two_ranks_of_a_ring_exchange_both_ends():
    ring = needs(matrix(nx.cycle_graph(4)), [range(0, 2), range(2, 4)])
    assert ring.sent_by(0) == {1: [0, 1]}
    assert ring.received_by(0) == {1: [2, 3]}


def test_a_directed_graph_has_receivers_that_do_not_send():
    one_way = csr_array(np.eye(6) + np.eye(6, k=3))  # client i needs client i + 3
    found = needs(one_way, HOSTED)
    assert [found.sent_by(rank) for rank in range(3)] == [{}, {0: [3, 4]}, {0: [5]}]
    assert [found.received_by(rank) for rank in range(3)] == [{1: [3, 4], 2: [5]}, {}, {}]


def test_isolated_ranks_need_nothing():
    nothing = needs(matrix(nx.empty_graph(6)), HOSTED)
    assert [nothing.sent_by(rank) | nothing.received_by(rank) for rank in range(3)] == [{}, {}, {}]
    assert nothing.colours() == {}


@pytest.mark.parametrize("graph", [nx.cycle_graph(8), nx.star_graph(7), nx.complete_graph(8), nx.petersen_graph()])
def test_pairs_of_one_colour_are_disjoint(graph):
    clients = len(graph)
    colours = needs(matrix(graph), [range(c, c + 1) for c in range(clients)]).colours()
    assert sorted(colours) == sorted((min(edge), max(edge)) for edge in graph.edges)
    for colour in set(colours.values()):
        ranks = [rank for pair, found in colours.items() if found == colour for rank in pair]
        assert len(ranks) == len(set(ranks))
    largest = max(degree for _, degree in graph.degree)
    assert len(set(colours.values())) <= 2 * largest - 1


def test_neighbours_are_summed_in_the_order_of_their_global_numbers():
    complete = matrix(nx.complete_graph(6))
    middle = plan([complete], [needs(complete, HOSTED)], HOSTED[1], rank=1)
    # Rows of rank 1: its clients 3 and 4, then what it receives: 0, 1, 2 from rank 0 and 5 from rank 2.
    assert middle.source.tolist() == [2, 3, 4, 0, 1, 5] * 2
    assert middle.pack.tolist() == [0, 1, 0, 1]
    first, second = (part.toarray() for part in plan_of_two(complete))
    np.testing.assert_array_equal(first, np.ones((2, 6)))
    np.testing.assert_array_equal(second, np.eye(2, 6))


def plan_of_two(complete):
    identity = csr_array(np.eye(6))
    both = [complete, identity]
    return plan(both, [needs(m, HOSTED) for m in both], HOSTED[1], rank=1).local_matrices(6)
