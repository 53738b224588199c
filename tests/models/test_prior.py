"""Likelihood and prior apart: together they are the potential, for every model."""

import numpy as np
import pytest

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.generic import Everything, gradient
from fedlangevin_mpi.models.gaussian import Gaussian
from fedlangevin_mpi.models.gaussian_mixture import GaussianMixture, NormalPrior, UniformPrior
from fedlangevin_mpi.models.linear import LinearRegression
from fedlangevin_mpi.models.logistic import LogisticRegression, PrecisionPrior
from fedlangevin_mpi.models.softmax import SoftmaxRegression

RNG = np.random.default_rng(0)
ROWS = {"x": RNG.normal(size=(9, 3)), "y": np.array([0.0, 1, 0, 1, 1, 0, 0, 1, 1])}
GAUSSIAN = {"mean": np.ones(3), "covariance": np.diag([1.0, 2.0, 0.5])}
MIXTURE = {
    "weights": np.array([1.0, 0.5]),
    "means": RNG.normal(size=(2, 3)),
    "covariances": np.stack([np.eye(3), 2 * np.eye(3)]),
}
NORMAL = NormalPrior(mean=0.5, scale=2.0)
CASES = {
    "linear": (LinearRegression(prior_scale=0.5), ROWS),
    "linear-flat": (LinearRegression(prior_scale=float("inf")), ROWS),
    "logistic": (LogisticRegression(prior_scale=2.0), ROWS),
    "hierarchical": (LogisticRegression(precision_prior=PrecisionPrior()), ROWS),
    "softmax": (SoftmaxRegression(prior_scale=3.0), ROWS),
    "gaussian": (Gaussian(), GAUSSIAN),
    "mixture": (GaussianMixture(prior=NORMAL), MIXTURE),
    "mixture-uniform": (GaussianMixture(prior=UniformPrior(low=-6.0, high=6.0)), MIXTURE),
}


@pytest.fixture(params=CASES)
def parts(request):
    model, arrays = CASES[request.param]
    shard = Shard(0, arrays, "here")
    facts = model.facts(shard)
    theta = RNG.normal(size=(1, 4, model.dimension(facts)))
    return model, shard, facts, theta


def slope(theta, data):
    return gradient(theta, data, Everything(1), 0)


def test_likelihood_and_prior_add_up(parts):
    model, shard, facts, theta = parts
    prior = model.prior_only(facts, float)
    likelihood, whole = (model.pack([shard], [weight], facts, float) for weight in (0.0, 1.0))
    assert type(prior) is type(likelihood)  # compiled once for both
    assert [np.ndim(a) for a in prior] == [np.ndim(a) for a in likelihood]
    together = slope(theta, likelihood) + slope(theta, prior)
    np.testing.assert_allclose(slope(theta, whole), together, rtol=1e-12, atol=1e-12)


def test_a_normal_prior_has_the_gradient_it_says(parts):
    model, _, facts, theta = parts
    normal = model.normal_prior(facts)
    prior = model.prior_only(facts, float)
    if normal is None:
        assert model.name in ("logistic_regression", "gaussian_mixture")
        return
    mean, precision = normal
    matrix = np.diag(precision) if precision.ndim == 1 else precision
    np.testing.assert_allclose(slope(theta, prior)[0], (theta[0] - mean) @ matrix, rtol=1e-12, atol=1e-15)
