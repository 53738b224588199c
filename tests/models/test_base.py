import numpy as np
import pytest

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.errors import ShardError
from fedlangevin_mpi.models.base import Facts, agree
from fedlangevin_mpi.models.supervised import stack_rows, supervised_arrays

ORIGINS = {0: "a.npz", 1: "b.npz"}


def test_all_clients_together_have_the_largest_number_of_classes():
    assert agree({1: Facts(4, 5), 0: Facts(4, 2)}, ORIGINS) == Facts(4, 5)


def test_clients_with_another_dimension_are_named():
    with pytest.raises(ShardError, match=r"client 1 \(b.npz\): has dimension 5, but client 0 has 4; allowed: one"):
        agree({0: Facts(4), 1: Facts(5)}, ORIGINS)


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"y": np.ones(2)}, r"array 'x' is missing; found: y"),
        ({"x": np.ones(2), "y": np.ones(2)}, r"x has shape \(2,\); allowed: \(n, p\)"),
        ({"x": np.ones((2, 3)), "y": np.ones(3)}, r"y has shape \(3,\); allowed: \(2,\) for x \(2, 3\)"),
        ({"x": np.ones((0, 3)), "y": np.ones(0)}, r"the shard is empty: x has shape \(0, 3\)"),
    ],
)
def test_arrays_that_are_no_rows_are_refused(arrays, problem):
    with pytest.raises(ShardError, match=r"client 1 \(b.npz\): " + problem):
        supervised_arrays(Shard(1, arrays, "b.npz"))


def test_rows_lie_one_behind_the_other_in_the_dtype_of_the_run():
    shards = [Shard(c, {"x": np.full((n, 2), c), "y": np.full(n, 10 * c)}, "made up") for c, n in enumerate([2, 1])]
    x, y, offsets = stack_rows(shards, np.float32)
    np.testing.assert_array_equal(x, [[0, 0], [0, 0], [1, 1]])
    np.testing.assert_array_equal(y, [0, 0, 10])
    np.testing.assert_array_equal(offsets, [0, 2, 3])
    assert x.dtype == y.dtype == np.float32
    assert x.flags.c_contiguous
