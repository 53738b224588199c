import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.preprocessing import StandardScaler

from fedlangevin_mpi.data.standardize import Standardization, apply, moments, pooled
from fedlangevin_mpi.errors import ConfigError, ShardError

# Three clients of unequal size, far-apart means and unlike scales; one has a single row.
CLIENTS = [
    np.random.default_rng(client).normal(client * 5, [0.1, 1, 30], (rows, 3)) for client, rows in enumerate((1, 40, 7))
]


def test_pooled_statistics_are_those_of_all_rows():
    found = pooled([moments(x) for x in CLIENTS])
    scaler = StandardScaler().fit(np.concatenate(CLIENTS))
    np.testing.assert_allclose(found.mean, scaler.mean_, rtol=1e-13)
    np.testing.assert_allclose(found.scale, scaler.scale_, rtol=1e-13)
    for x in CLIENTS:
        np.testing.assert_allclose(apply(x, found, intercept=False), scaler.transform(x), rtol=1e-11)


def test_moments_keep_their_digits_far_from_zero():
    x = np.random.default_rng(0).normal(1e8, 1, (100, 1))
    np.testing.assert_allclose(pooled([moments(x[:30]), moments(x[30:])]).scale, x.std(0), rtol=1e-7)


def test_moments_are_sums_in_float64():
    assert moments(np.ones((3, 2), np.float32)).mean.dtype == np.float64


def test_a_constant_column_is_centred_and_not_scaled():
    x = np.column_stack([np.full(1000, 0.1), np.arange(1000.0)])
    found = pooled([moments(x[:300]), moments(x[300:])])
    assert found.scale[0] == 1
    np.testing.assert_allclose(apply(x, found, intercept=False)[:, 0], 0, atol=1e-15)


def test_clients_with_unlike_columns_are_refused():
    with pytest.raises(ShardError, match=r"client 1 .*: x has 2 columns, client 0 has 3"):
        pooled([moments(CLIENTS[1]), moments(CLIENTS[2][:, :2])])


def test_the_intercept_is_the_last_column_and_not_standardised():
    x = np.array([[1.0, 2.0], [3.0, 6.0]])
    given = Standardization(mean=(1, 2), scale=(2, 4))
    np.testing.assert_array_equal(apply(x, given, intercept=True), [[0, 0, 1], [1, 1, 1]])
    np.testing.assert_array_equal(apply(x, None, intercept=True), [[1, 2, 1], [3, 6, 1]])
    assert apply(x, None, intercept=False) is x


def test_statistics_of_other_columns_are_refused():
    with pytest.raises(ConfigError, match=r"data\.standardize: found 2 means and scales for 3 columns of x"):
        apply(CLIENTS[1], Standardization(mean=(0, 0), scale=(1, 1)), intercept=False)


@pytest.mark.parametrize("wrong", [{"mean": [0, 0], "scale": [1]}, {"mean": [0], "scale": [0]}, {"mean": [0]}])
def test_statistics_that_are_none_are_refused(wrong):
    with pytest.raises(ValidationError):
        Standardization.model_validate(wrong)
