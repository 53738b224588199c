import numpy as np
import pytest

from fedlangevin_mpi.data.synthetic import SyntheticGaussian, SyntheticLinear, SyntheticLogistic

SOURCES = [SyntheticGaussian(dim=3), SyntheticLinear(rows=5), SyntheticLogistic(rows=5)]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_a_clients_data_depend_on_seed_and_client_alone(source):
    def arrays(client, total, seed):
        return np.concatenate([a.ravel() for a in source.shards([client], total, seed)[0].arrays.values()])

    np.testing.assert_array_equal(arrays(2, 3, 1), arrays(2, 9, 1))
    assert (arrays(2, 3, 1) != arrays(1, 3, 1)).any()
    assert (arrays(2, 3, 1) != arrays(2, 3, 2)).any()
    together = source.shards([0, 2], 3, 1)
    assert [shard.client for shard in together] == [0, 2]
    assert together[0].features == (None if source.name == "synthetic_gaussian" else ("x0", "x1"))
    np.testing.assert_array_equal(np.concatenate([a.ravel() for a in together[1].arrays.values()]), arrays(2, 3, 1))


@pytest.mark.parametrize("dim", [2, 5])
def test_covariances_have_the_condition_number_and_differ(dim):
    shards = SyntheticGaussian(dim=dim, condition=50).shards(range(4), 4, 0)
    covariances = np.stack([shard.arrays["covariance"] for shard in shards])
    np.testing.assert_allclose(np.linalg.cond(covariances), 50, rtol=1e-10)
    np.testing.assert_allclose(np.linalg.eigvalsh(covariances)[:, -1], np.sqrt(50), rtol=1e-10)
    np.testing.assert_array_equal(covariances, covariances.swapaxes(1, 2))
    assert abs(covariances[:, 0, 1]).min() > 1e-3
    assert abs(covariances[0] - covariances[1]).max() > 0.1


def test_rotations_are_uniform():
    # E[C] = E[v] I for a uniform rotation; here v is 1/2 and 2, so E[v] = 1.25 and sd(C_01) = 0.75/sqrt(8).
    shards = SyntheticGaussian(dim=2, condition=4).shards(range(2000), 2000, 0)
    mean = np.mean([shard.arrays["covariance"] for shard in shards], axis=0)
    np.testing.assert_allclose(mean, 1.25 * np.eye(2), atol=4 * 1.5 / np.sqrt(8 * 2000))


def test_one_dimensional_variances_lie_in_their_range():
    shards = SyntheticGaussian(dim=1, condition=100).shards(range(1000), 1000, 0)
    variances = np.array([shard.arrays["covariance"].item() for shard in shards])
    assert 0.1 <= variances.min() < 0.11
    assert 9 < variances.max() <= 10
    np.testing.assert_allclose(np.log(variances).mean(), 0, atol=4 * np.log(100) / np.sqrt(12 * 1000))


def test_means_spread_by_mean_scale():
    source = SyntheticGaussian(dim=4, mean_scale=3)
    means = np.stack([shard.arrays["mean"] for shard in source.shards(range(1000), 1000, 0)])
    np.testing.assert_allclose(means.std(), 3, rtol=4 / np.sqrt(2 * 4000))
    assert (SyntheticGaussian(mean_scale=0).shards([1], 2, 0)[0].arrays["mean"] == 0).all()


def test_gaussian_potentials_have_no_rows():
    source = SyntheticGaussian()
    shards = source.shards([0], 1, 0)
    assert source.test_set(1, 0) is None
    assert source.moments(shards) == []
    assert source.prepared(shards[0], source.standardization([])) is shards[0]


def test_linear_rows_follow_the_model():
    source = SyntheticLinear(rows=20_000, features=3, noise_scale=0.5, coefficient_scale=2)
    truth = source.coefficients(7)
    for shard in source.shards([0, 3], 4, 7):
        x, y = shard.arrays["x"], shard.arrays["y"]
        np.testing.assert_allclose(np.cov(x.T), np.eye(3), atol=0.05)
        np.testing.assert_allclose(np.linalg.lstsq(x, y)[0], truth, atol=4 * 0.5 / np.sqrt(20_000))
        np.testing.assert_allclose((y - x @ truth).std(), 0.5, rtol=4 / np.sqrt(2 * 20_000))


def test_true_coefficients_spread_by_coefficient_scale():
    np.testing.assert_allclose(SyntheticLinear(features=5000, coefficient_scale=3).coefficients(0).std(), 3, rtol=0.04)


def test_no_client_holds_the_numbers_that_made_the_truth():
    source = SyntheticLinear(rows=50, features=2)
    x = source.shards([0], 1, 0)[0].arrays["x"]
    assert not np.isin(source.coefficients(0), x).any()


def test_logistic_labels_follow_the_model():
    source = SyntheticLogistic(rows=50_000, features=2, x_scale=3, coefficient_scale=0.5)
    shard = source.shards([1], 2, 3)[0]
    x, y = shard.arrays["x"], shard.arrays["y"]
    probability = 1 / (1 + np.exp(-x @ source.coefficients(3)))
    np.testing.assert_allclose(x.std(), 3, rtol=4 / np.sqrt(2 * x.size))
    assert np.issubdtype(y.dtype, np.integer)
    # The score of the truth is zero in expectation, its variance the Fisher information.
    deviation = np.sqrt((probability * (1 - probability)) @ x**2)
    np.testing.assert_array_less(abs((y - probability) @ x), 4 * deviation)
    low, high = probability < 0.2, probability > 0.8
    assert y[low].mean() < 0.2
    assert y[high].mean() > 0.8


@pytest.mark.parametrize("kind", [SyntheticLinear, SyntheticLogistic], ids=["linear", "logistic"])
def test_test_rows_are_new_rows_of_the_same_truth(kind):
    source = kind(rows=30, test_rows=40, features=2)
    test = source.test_set(3, 5)
    assert test.x.shape == (40, 2)
    assert test.y.shape == (40,)
    owned = np.concatenate([shard.arrays["x"][:, 0] for shard in source.shards(range(3), 3, 5)])
    assert len(np.unique(np.concatenate([owned, test.x[:, 0]]))) == 3 * 30 + 40
    assert kind().test_set(3, 5) is None


def test_linear_test_rows_need_no_noise_to_show_the_truth():
    source = SyntheticLinear(noise_scale=0, test_rows=10)
    test = source.test_set(2, 5)
    np.testing.assert_array_equal(test.y, test.x @ source.coefficients(5))
