"""The toy mixtures, against the densities that the paper writes down."""

import numpy as np
import pytest
from scipy import stats

from fedlangevin_mpi.data.toy_mixture import Mixture, ToyMixture
from fedlangevin_mpi.errors import ConfigError

FACTORS = {
    "toy_mixture_1d": (
        lambda x: stats.norm.pdf(x[..., 0], 1, np.sqrt(4)),
        lambda x: stats.norm.pdf(x[..., 0], -3, 1) + stats.norm.pdf(x[..., 0], 3, np.sqrt(2)),
    ),
    "toy_mixture_2d": (
        lambda x: (
            stats.multivariate_normal([-1.71, -1.801], [[0.226, 0.1652], [0.1652, 0.6779]]).pdf(x)
            + stats.multivariate_normal([1, 0], [[2, 0.5], [0.5, 2]]).pdf(x)
        ),
        lambda x: stats.multivariate_normal([1, 0], [[3, 0.5], [0.5, 3]]).pdf(x),
    ),
}


def density(shard, x):
    mixture = Mixture(**shard.arrays)
    return sum(w * stats.multivariate_normal(m, c).pdf(x) for w, m, c in zip(*mixture, strict=True))


@pytest.mark.parametrize("name", FACTORS)
def test_two_clients_have_the_papers_factors_and_one_client_their_product(name):
    x = np.random.default_rng(0).normal(scale=2, size=(30, int(name[-2])))
    source, (first, second) = ToyMixture(name=name), FACTORS[name]
    np.testing.assert_allclose([density(s, x) for s in source.shards([0, 1], 2, 0)], [first(x), second(x)], rtol=1e-12)
    np.testing.assert_allclose(density(source.shards([0], 1, 0)[0], x), first(x) * second(x), rtol=1e-12)
    assert source.shards([1], 2, 0)[0].client == 1
    assert source.test_set(2, 0) is None


def test_more_clients_than_factors_are_refused():
    with pytest.raises(ConfigError, match=r"clients: found 3 for data toy_mixture_1d; allowed: 2 as in the paper"):
        ToyMixture(name="toy_mixture_1d").shards([0], 3, 0)
