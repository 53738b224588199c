import numpy as np
import pytest
from scipy import stats

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.errors import ShardError
from fedlangevin_mpi.generic import Everything, gradient, meaning
from fedlangevin_mpi.models.base import Facts
from fedlangevin_mpi.models.gaussian import Gaussian


def covariance(d: int) -> np.ndarray:
    factor = np.random.default_rng(d).normal(size=(d, d))
    return factor @ factor.T + np.eye(d)


def shard(mean, covariance) -> Shard:
    return Shard(3, {"mean": np.asarray(mean), "covariance": np.asarray(covariance)}, "three.npz")


def test_potential_is_the_normal_log_density():
    mean, matrix, theta = np.array([1.0, -2.0, 0.5]), covariance(3), np.random.default_rng(0).normal(size=(1, 6, 3))
    data = Gaussian().pack([shard(mean, matrix)], [1.0], Facts(3), np.float64)
    law = stats.multivariate_normal(mean, matrix)
    expected = law.logpdf(mean) - law.logpdf(theta[0])
    np.testing.assert_allclose(Gaussian().potential(theta, data)[0], expected, rtol=1e-10)


@pytest.mark.parametrize(("chains", "d"), [(2, 3), (8, 8), (9, 20)])
def test_small_and_large_products_agree(chains, d):
    shards = [shard(np.arange(d) * s, s * covariance(d)) for s in (1.0, 2.0)]
    data = Gaussian().pack(shards, [0.5, 0.5], Facts(d), np.float64)
    theta = np.random.default_rng(0).normal(size=(2, chains, d))
    text = meaning(gradient, type(data), Everything).compiled
    expected = gradient(theta, data, Everything(2), 0)
    np.testing.assert_allclose(text(theta, data, Everything(2), 0), expected, rtol=1e-10, atol=1e-12)


def test_rounding_does_not_make_a_covariance_asymmetric():
    matrix = covariance(3).astype(np.float32)
    matrix[0, 1] *= 1 + 1e-7
    assert Gaussian().facts(shard(np.zeros(3), matrix)) == Facts(3)


@pytest.mark.parametrize(
    ("mean", "matrix", "problem"),
    [
        ([[0.0]], [[1.0]], r"mean has shape \(1, 1\); allowed: \(d,\)"),
        ([0.0, 0.0], [[1.0]], r"covariance has shape \(1, 1\); allowed: \(2, 2\)"),
        ([0.0, 0.0], [[1.0, 0.5], [0.4, 1.0]], r"covariance is not symmetric: off by 0\.1"),
        ([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]], r"not positive definite: its smallest eigenvalue is -1"),
    ],
)
def test_what_is_no_gaussian_is_refused(mean, matrix, problem):
    with pytest.raises(ShardError, match=r"client 3 \(three.npz\): .*" + problem):
        Gaussian().facts(shard(mean, matrix))
