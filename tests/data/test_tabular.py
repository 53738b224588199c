import re
from typing import Literal

import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.preprocessing import StandardScaler

from fedlangevin_mpi.data.partition import Dirichlet, LabelSplit, Unequal
from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.data.standardize import Standardization
from fedlangevin_mpi.data.tabular import TableSource
from fedlangevin_mpi.errors import ConfigError, ShardError


class Numbered(TableSource):
    """Row i is (i, -i) with label i % 3."""

    summary = "a table for tests"
    name: Literal["numbered"] = "numbered"

    def table(self):
        rows = np.arange(101)
        return np.column_stack([rows, -rows]).astype(float), rows % 3

    def columns(self):
        return ["up", "down"]


def rows_of(x):
    np.testing.assert_array_equal(x[:, 1], -x[:, 0])
    return x[:, 0].astype(int)


def prepared(source, clients, seed=0):
    raw = source.shards(range(clients), clients, seed)
    standardization = source.standardization(source.moments(raw))
    return raw, standardization, [source.prepared(shard, standardization) for shard in raw]


def test_every_row_is_in_one_shard_or_in_the_test_set():
    source = Numbered(test_fraction=0.25, partition=Dirichlet())
    shards, test = source.shards(range(7), 7, 3), source.test_set(7, 3)
    held_out, owned = rows_of(test.x), np.concatenate([rows_of(shard.arrays["x"]) for shard in shards])
    assert len(held_out) == 26  # rounded up
    np.testing.assert_array_equal(np.sort(np.concatenate([held_out, owned])), np.arange(101))
    for x, y in [(test.x, test.y), *((shard.arrays["x"], shard.arrays["y"]) for shard in shards)]:
        np.testing.assert_array_equal(y, rows_of(x) % 3)


def test_the_test_set_depends_on_the_seed_alone():
    first = rows_of(Numbered().test_set(7, 3).x)
    np.testing.assert_array_equal(first, rows_of(Numbered(partition=Unequal(ratio=0.5)).test_set(2, 3).x))
    assert set(first) != set(rows_of(Numbered().test_set(7, 4).x))


def test_every_row_is_held_out_equally_often():
    hits = np.bincount(np.concatenate([rows_of(Numbered().test_set(1, seed).x) for seed in range(1000)]))
    share = 21 / 101
    np.testing.assert_allclose(hits / 1000, share, atol=4.5 * np.sqrt(share * (1 - share) / 1000))


def test_the_partition_sees_the_training_rows_labels():
    for shard in Numbered(partition=LabelSplit(fraction=1)).shards(range(3), 3, 0):
        assert set(shard.arrays["y"]) == {shard.client}


def test_no_fraction_no_test_set():
    source = Numbered(test_fraction=0)
    assert source.test_set(1, 0) is None
    assert len(source.shards([0], 1, 0)[0].arrays["y"]) == 101


def test_a_client_gets_the_same_shard_whoever_asks():
    source = Numbered(partition=Dirichlet())
    everyone = source.shards(range(6), 6, 5)
    for clients in ([4], [1, 2], [5, 0]):
        for shard in source.shards(clients, 6, 5):
            for name in ("x", "y"):
                np.testing.assert_array_equal(shard.arrays[name], everyone[shard.client].arrays[name])


def test_a_shard_keeps_nothing_of_the_table():
    assert all(array.base is None for array in Numbered().shards([0], 2, 0)[0].arrays.values())


def test_too_many_clients_for_the_training_rows():
    with pytest.raises(ConfigError, match="iid of 80 training rows among 81 clients"):
        Numbered().shards([0], 81, 0)


@pytest.mark.parametrize("fraction", [-0.1, 1, float("nan")])
def test_a_fraction_is_at_least_zero_and_below_one(fraction):
    with pytest.raises(ValidationError, match="test_fraction"):
        Numbered(test_fraction=fraction)


def test_pooled_standardisation_is_that_of_all_training_rows():
    source = Numbered(standardize="pooled", intercept=True, partition=Unequal(ratio=0.7))
    raw, standardization, ready = prepared(source, 5)
    scaler = StandardScaler().fit(np.concatenate([shard.arrays["x"] for shard in raw]))
    for before, after in zip(raw, ready, strict=True):
        expected = np.column_stack([scaler.transform(before.arrays["x"]), np.ones(len(before.arrays["y"]))])
        np.testing.assert_allclose(after.arrays["x"], expected, atol=1e-14)
        assert after.arrays["y"] is before.arrays["y"]
        assert after.features == ("up", "down", "intercept")
    test = source.test_set(5, 0)
    np.testing.assert_allclose(
        source.design_matrix(test.x, standardization)[:, :2], scaler.transform(test.x), atol=1e-14
    )


def test_given_statistics_share_nothing():
    given = Standardization(mean=(1, -1), scale=(2, 2))
    source = Numbered(standardize=given)
    raw, standardization, ready = prepared(source, 2)
    assert source.moments(raw) == []
    assert standardization == given
    np.testing.assert_allclose(ready[0].arrays["x"], (raw[0].arrays["x"] - [1, -1]) / 2)
    assert ready[0].features == ("up", "down")


def test_nothing_is_changed_unasked():
    raw, standardization, ready = prepared(Numbered(), 2)
    assert standardization is None
    assert ready[1] is raw[1]
    assert ready[1].features == ("up", "down")


def test_standardisation_needs_features():
    gaussian = Shard(4, {"mean": np.zeros(2)}, "somewhere")
    with pytest.raises(ShardError, match=r"client 4 \(somewhere\): .* need x \(n, p\), found no array x"):
        Numbered(standardize="pooled").moments([gaussian])
    with pytest.raises(ShardError, match=r"found x of shape \(3,\)"):
        Numbered(intercept=True).prepared(Shard(0, {"x": np.zeros(3)}, "somewhere"), None)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("pool", "Input should be 'pooled'"),
        ({"mean": [0], "scale": [-1]}, "standardize.numbers.scale.0\n  Input should be greater than 0"),
    ],
)
def test_a_wrong_standardisation_is_one_error(given, found):
    with pytest.raises(ValidationError, match=re.escape(found)) as error:
        Numbered(standardize=given)
    assert error.value.error_count() == 1
