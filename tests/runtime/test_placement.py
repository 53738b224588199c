"""Who hosts whom."""

import pytest

from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.runtime.placement import place


@pytest.mark.parametrize(("clients", "ranks"), [(1, 1), (5, 2), (20, 4), (7, 3), (4, 4)])
def test_groups_are_contiguous_and_even(clients, ranks):
    placement = place(clients, ranks)
    assert [c for here in placement.of_rank for c in here] == list(range(clients))
    sizes = [len(here) for here in placement.of_rank]
    assert max(sizes) - min(sizes) <= 1


def test_one_client_a_rank_by_default():
    assert place(None, 3).of_rank == [range(0, 1), range(1, 2), range(2, 3)]


def test_more_ranks_than_clients_is_refused():
    with pytest.raises(ConfigError, match="clients: found 2 for 3 ranks.*start at most 2 ranks"):
        place(2, 3)


def test_dropped_clients_leave_their_numbers_to_nobody():
    placement = place(4, 2)._replace(dropped=(1, 4))
    assert placement.everyone == 6
    assert [placement.numbers(rank) for rank in range(2)] == [[0, 2], [3, 5]]


@pytest.mark.parametrize("lost", range(4))
def test_who_is_left_keeps_its_clients_when_those_of_a_lost_rank_are_dropped(lost):
    before = place(10, 4)
    after = place(10 - len(before.of_rank[lost]), 3)._replace(dropped=tuple(before.of_rank[lost]))
    assert [after.numbers(r) for r in range(3)] == [list(c) for r, c in enumerate(before.of_rank) if r != lost]
