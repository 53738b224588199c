"""Mixture factors, against normal densities."""

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.errors import ConfigError, ShardError
from fedlangevin_mpi.generic import Everything, gradient
from fedlangevin_mpi.models.base import Facts
from fedlangevin_mpi.models.gaussian_mixture import GaussianMixture

ARRAYS = {
    "weights": np.array([0.5, 2.0]),
    "means": np.array([[0.0, 1.0], [3.0, -1.0]]),
    "covariances": np.array([[[1.0, 0.3], [0.3, 0.5]], [[2.0, -0.4], [-0.4, 1.0]]]),
}
COVARIANCE = ((4.0, 2.0), (2.0, 4.0))
POINTS = np.random.default_rng(0).normal(scale=2, size=(20, 2))


def shard(**changes):
    return Shard(3, ARRAYS | {name: np.asarray(value) for name, value in changes.items()}, "three.npz")


def potential(prior, weights, points=POINTS):
    model = GaussianMixture(prior=prior)
    data = model.pack([shard() for _ in weights], weights, Facts(2), np.float64)
    return model.potential(np.broadcast_to(points, (len(weights), *points.shape)), data)


def likelihood():
    components = zip(*ARRAYS.values(), strict=True)
    return sum(w * stats.multivariate_normal(mean, covariance).pdf(POINTS) for w, mean, covariance in components)


@pytest.mark.parametrize(
    ("prior", "law"),
    [
        ({"mean": 0.5, "scale": 2.0}, stats.multivariate_normal([0.5, 0.5], 4 * np.eye(2))),
        ({"scale": 2.0, "covariance": COVARIANCE}, stats.multivariate_normal([0, 0], 4 * np.array(COVARIANCE))),
    ],
)
def test_potential_is_the_log_density_with_a_share_of_the_prior(prior, law):
    for share, found in zip([0.25, 0.0], potential({"name": "normal"} | prior, [0.25, 0.0]), strict=True):
        constant = share * law.logpdf(law.mean)
        np.testing.assert_allclose(found, -share * law.logpdf(POINTS) + constant - np.log(likelihood()), rtol=1e-12)


def test_a_uniform_prior_is_a_box_of_whoever_has_a_share_of_it():
    inside, outside = np.abs(POINTS).max(-1) < 2, np.abs(POINTS).max(-1) > 2
    found = potential({"name": "uniform", "low": -2.0, "high": 2.0}, [0.5, 0.0])
    np.testing.assert_allclose(found[0, inside], -np.log(likelihood()[inside]), rtol=1e-12)
    assert np.isinf(found[0, outside]).all()
    assert outside.any()
    np.testing.assert_allclose(found[1], -np.log(likelihood()), rtol=1e-12)


def test_far_out_the_gradient_is_that_of_the_nearest_component():
    model = GaussianMixture(prior={"name": "uniform", "low": -1e9, "high": 1e9})
    data = model.pack([shard()], [1.0], Facts(2), np.float64)
    at = np.array([1e6, 0.0])
    slopes = [np.linalg.solve(c, at - m) for m, c in zip(ARRAYS["means"], ARRAYS["covariances"], strict=True)]
    nearest = min(slopes, key=lambda slope: slope @ at)
    np.testing.assert_allclose(gradient(at[None, None], data, Everything(1), 0)[0, 0], nearest, rtol=1e-9)


@pytest.mark.parametrize(
    ("prior", "law"),
    [
        ({"name": "normal", "mean": 1.0, "scale": 2.0}, stats.norm(1, 2)),
        ({"name": "normal", "covariance": COVARIANCE}, stats.norm(0, 2)),
        ({"name": "uniform", "low": -1.0, "high": 3.0}, stats.uniform(-1, 4)),
    ],
)
def test_prior_draws_follow_the_prior(prior, law):
    draws = GaussianMixture(prior=prior).prior_draws(np.random.default_rng(0), 4000, 2)
    for column in draws.T:
        assert stats.kstest(column, law.cdf).pvalue > 0.01
    expected = 0.5 if "covariance" in prior else 0.0
    assert np.corrcoef(draws.T)[0, 1] == pytest.approx(expected, abs=0.07)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"weights": [[1.0]]}, "weights have shape (1, 1); allowed: (k,)"),
        ({"weights": [1.0]}, "means have shape (2, 2); allowed: (1, d) for 1 weights"),
        ({"covariances": np.ones((2, 2))}, "covariances have shape (2, 2); allowed: (2, 2, 2)"),
        ({"weights": [1.0, 0.0]}, "weight 0 of component 1; allowed: above 0"),
        ({"covariances": [np.eye(2), [[1, 2], [2, 1]]]}, "the covariance of component 1 is not positive definite"),
        ({"covariances": [[[1, 1], [0, 1]], np.eye(2)]}, "the covariance of component 0 is not symmetric: off by 1"),
    ],
)
def test_what_is_no_mixture_is_refused(changes, problem):
    with pytest.raises(ShardError) as error:
        GaussianMixture().facts(shard(**changes))
    assert f"client 3 (three.npz): {problem}" in str(error.value)


@pytest.mark.parametrize(
    ("prior", "problem"),
    [
        ({"name": "uniform", "low": 2.0, "high": 2.0}, "low 2.0 and high 2.0; allowed: low < high"),
        ({"name": "normal", "covariance": ((1.0, 2.0), (2.0, 1.0))}, "it is not positive definite"),
        ({"name": "normal", "covariance": ((1.0, 2.0),)}, "rows of length [2]; allowed: a square matrix"),
    ],
)
def test_what_is_no_prior_is_refused(prior, problem):
    with pytest.raises(ValidationError) as error:
        GaussianMixture(prior=prior)
    assert problem in str(error.value)


def test_a_prior_of_another_dimension_is_refused():
    model = GaussianMixture(prior={"name": "normal", "covariance": ((1.0,),)})
    with pytest.raises(ConfigError, match=r"model.prior.covariance: found 1 rows for dimension 2; allowed: one a dim"):
        model.facts(shard())


@pytest.mark.parametrize("prior", [{"name": "normal", "covariance": COVARIANCE}, {"name": "normal"}])
def test_a_config_with_all_defaults_filled_in_is_the_same_config(prior):
    model = GaussianMixture(prior=prior)
    assert GaussianMixture.model_validate_json(model.model_dump_json(), strict=True) == model
    values = {"iterations": 1, "algorithm": {"name": "fald", "step_size": 0.1}, "data": {"name": "toy_mixture_2d"}}
    assert make_config(values | {"model": {"name": "gaussian_mixture", "prior": prior}}).model == model
