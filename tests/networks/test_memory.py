"""A rank stays within its rows, three positions a chain and a block of 64 MiB: resnet20, two chains."""

from multiprocessing import get_context

import pytest

from launch.bench import memory

pytest.importorskip("torch")


def test_a_rank_that_samples_resnet20_keeps_within_its_bound():
    with get_context("spawn").Pool(1) as pool:  # a peak is of a whole process
        before, after, held, _ = pool.apply(memory.run_one, ("draws", False))
    assert before > 100  # torch alone takes as much
    assert after - before < held + memory.BLOCK
