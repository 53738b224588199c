"""Streams: keyed, of the right law, and the same whoever asks."""

import numpy as np
import pytest
from scipy import stats

from fedlangevin_mpi.keys import Purpose, generator
from fedlangevin_mpi.runtime.streams import BlockStreams, RowStreams, block_length, draw_without_replacement


def streams(clients=range(3), total=3, block=0, chains=2, per_chain=False, dtype="float64", seed=5, length=1000):
    iterations = np.arange(block * length, (block + 1) * length)
    return BlockStreams(seed, block, iterations, clients, total, chains, 4, np.dtype(dtype), per_chain)


def test_a_clients_noise_does_not_depend_on_its_host():
    together = streams().noise()
    apart = [streams(range(c, c + 1)).noise() for c in range(3)]
    assert together.flags.c_contiguous
    np.testing.assert_array_equal(together, np.concatenate(apart, axis=1))


def test_keys_give_different_numbers():
    keys = [(1, Purpose.NOISE, 0, 0), (2, Purpose.NOISE, 0, 0), (1, Purpose.ROWS, 0, 0), (1, Purpose.NOISE, 1, 0)]
    keys.append((1, Purpose.NOISE, 0, 1))
    firsts = {generator(*key).random() for key in keys}
    assert len(firsts) == len(keys)


def test_seeds_beyond_32_bits_differ():
    assert generator(1, Purpose.NOISE).random() != generator(1 + 2**32, Purpose.NOISE).random()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_noise_is_standard_normal(dtype):
    noise = streams(dtype=dtype).noise()
    assert noise.dtype == dtype
    assert stats.kstest(noise.ravel(), "norm").pvalue > 0.01


def test_coins_are_shared_by_all_chains_or_drawn_for_each():
    shared, own = streams().communication(0.3), streams(per_chain=True).communication(0.3)
    assert (shared[:, 0] == shared[:, 1]).all()
    assert (own[:, 0] != own[:, 1]).any()
    for coins in (shared[:, 0], own.ravel()):
        assert stats.binomtest(int(coins.sum()), len(coins), 0.3).pvalue > 0.01


def test_reference_coins_are_independent_of_communication_coins():
    both = streams(length=20_000)
    communicate, refresh = both.communication(0.5)[:, 0], both.reference(0.5)[:, 0]
    assert stats.binomtest(int((communicate & refresh).sum()), 20_000, 0.25).pvalue > 0.01


def test_every_subset_of_participants_has_the_same_chance():
    chosen = streams(total=4, length=12_000).participants(2)
    assert (chosen.sum(axis=1) == 2).all()
    _, counts = np.unique(chosen, axis=0, return_counts=True)
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 0.01


def rows(sizes, batch, total=None, clients=None, length=2000):
    clients = clients or range(len(sizes))
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]).tolist()
    drawn = RowStreams(sizes, offsets, batch, np.float64, draw_without_replacement)
    return drawn.draw(streams(clients, total or len(sizes), length=length))


def test_rows_are_distinct_and_every_subset_has_the_same_chance():
    index = rows([4], 2, length=6000).row[:, 0, 0]
    assert (index[:, 0] != index[:, 1]).all()
    _, counts = np.unique(np.sort(index, axis=1), axis=0, return_counts=True)
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 0.01


def test_rows_carry_their_clients_offset_count_and_weight():
    batch = rows([5, 2, 9], 3, length=200)
    assert batch.drawn.tolist() == [3, 2, 3]
    np.testing.assert_allclose(batch.weight, [[5 / 3] * 3, [1, 1, 0], [3] * 3])
    for client, (first, size) in enumerate([(0, 5), (5, 2), (7, 9)]):
        used = batch.row[:, client, :, : batch.drawn[client]]
        assert set(np.unique(used)) == set(range(first, first + size))
    assert set(np.unique(batch.row[:, 1])) <= {5, 6}  # padding stays inside the client's own rows


def test_a_clients_rows_do_not_depend_on_its_host():
    together = rows([5, 2, 9], 3, length=50).row[:, 2] - 7
    apart = rows([9], 3, total=3, clients=range(2, 3), length=50).row[:, 0]
    np.testing.assert_array_equal(together, apart)


def test_block_length_is_a_function_of_the_config():
    assert block_length(1, 1, 10, 0, 8) == 4096
    assert block_length(100, 100, 20, 0, 8) == 5
    assert block_length(20, 20, 60_000, 0, 4) == 1  # 96 MB an iteration
