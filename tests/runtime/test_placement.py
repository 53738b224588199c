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
