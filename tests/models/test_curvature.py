"""Bounds of the potentials' curvature, against the Hessian that the gradients have."""

import numpy as np
import pytest

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.generic import Everything, gradient
from fedlangevin_mpi.models import supervised
from fedlangevin_mpi.models.base import Facts
from fedlangevin_mpi.models.custom import Custom
from fedlangevin_mpi.models.gaussian import Gaussian
from fedlangevin_mpi.models.linear import LinearRegression
from fedlangevin_mpi.models.logistic import LogisticRegression, PrecisionPrior
from fedlangevin_mpi.models.softmax import SoftmaxRegression
from tests.gaussians import heterogeneous

SIZES, WEIGHTS = [7, 2, 12], [0.5, 0.2, 0.3]  # with 3 features: the second client's likelihood is flat somewhere


def spectra(data, at, dim, h=1e-4):
    """Return the eigenvalues of every client's Hessian at a point, `(clients, dim)`, by differences of gradients."""
    points = at + h * np.concatenate([np.eye(dim), -np.eye(dim)])
    slopes = gradient(np.tile(points, (3, 1, 1)), data, Everything(3), 0)
    hessians = (slopes[:, :dim] - slopes[:, dim:]) / (2 * h)
    return np.linalg.eigvalsh((hessians + hessians.swapaxes(1, 2)) / 2)


def test_of_gaussian_potentials_it_is_that_of_their_precisions():
    means, precisions = heterogeneous(3, 4)
    arrays = [{"mean": m, "covariance": np.linalg.inv(H)} for m, H in zip(means, precisions, strict=True)]
    data = Gaussian().pack([Shard(i, one, "made up") for i, one in enumerate(arrays)], [1 / 3] * 3, Facts(4), float)
    found = Gaussian().curvature(data)
    exact = spectra(data, np.zeros(4), 4)
    np.testing.assert_allclose(found.smallest, exact[:, 0], rtol=1e-6)
    np.testing.assert_allclose(found.largest, exact[:, -1], rtol=1e-6)


def test_of_linear_regression_it_is_exact(row_shards):
    model = LinearRegression(noise_scale=0.5, prior_scale=2.0)
    data = model.pack(row_shards(SIZES), WEIGHTS, Facts(3), np.float64)
    found, exact = model.curvature(data), spectra(data, np.zeros(3), 3)
    np.testing.assert_allclose(found.smallest, exact[:, 0], rtol=1e-6)
    np.testing.assert_allclose(found.largest, exact[:, -1], rtol=1e-6)


@pytest.mark.parametrize("model", [LogisticRegression(prior_scale=2.0), SoftmaxRegression(classes=2, prior_scale=2.0)])
def test_of_classifiers_it_is_reached_at_even_odds_and_never_left(model, row_shards):
    facts = Facts(3, 2)
    data, dim = model.pack(row_shards(SIZES, classes=2), WEIGHTS, facts, np.float64), model.dimension(facts)
    found, even = model.curvature(data), spectra(data, np.zeros(dim), dim)
    np.testing.assert_allclose(found.largest, even[:, -1], rtol=1e-5)
    for at in np.random.default_rng(0).normal(scale=3, size=(20, dim)):
        values = spectra(data, at, dim)
        assert (values[:, -1] <= found.largest * (1 + 1e-6)).all()
        assert (values[:, 0] >= found.smallest * (1 - 1e-4)).all()
    sure = spectra(data, 1e4 * np.arange(1, dim + 1), dim)  # the likelihood is straight there: the prior is left
    np.testing.assert_allclose(found.smallest, sure[:, 0], rtol=1e-4)


def test_softmax_of_many_classes_stays_below_half_the_gram_matrix(row_shards):
    model, facts = SoftmaxRegression(classes=4), Facts(3, 4)
    data = model.pack(row_shards(SIZES, classes=4), WEIGHTS, facts, np.float64)
    for at in np.random.default_rng(0).normal(size=(20, 12)):
        assert (spectra(data, at, 12)[:, -1] <= model.curvature(data).largest).all()


def test_large_shards_give_the_largest_eigenvalue_alone(monkeypatch, row_shards):
    data = LinearRegression().pack(row_shards([60, 9, 50], p=20), WEIGHTS, Facts(20), np.float64)
    exact = supervised.gram_eigenvalues(data)
    monkeypatch.setattr(supervised, "_EXACT", 8)
    smallest, largest = supervised.gram_eigenvalues(data)
    np.testing.assert_allclose(largest, exact[1], rtol=1e-8)
    assert not smallest.any()


def test_none_is_known_of_potentials_that_are_not_convex_or_are_the_users_own(row_shards):
    hierarchical = LogisticRegression(precision_prior=PrecisionPrior())
    shards = row_shards(SIZES, classes=2)
    assert hierarchical.curvature(hierarchical.pack(shards, WEIGHTS, Facts(3, 2), np.float64)) is None
    assert Custom(factory="somewhere:make").curvature(None) is None
