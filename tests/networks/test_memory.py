"""A rank that samples resnet20 with two chains stays within its rows, three positions a chain and 64 MiB."""

from multiprocessing import get_context

import pytest

from launch.bench import memory

pytest.importorskip("torch")


def test_a_rank_keeps_within_its_bound():
    with get_context("spawn").Pool(1) as pool:  # a peak is of a whole process
        before, after, held, _ = pool.apply(memory.run_one, ("draws", False))
    assert before > 100  # torch alone takes as much
    assert after - before < held + memory.BLOCK
