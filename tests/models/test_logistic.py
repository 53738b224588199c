import itertools

import numba
import numpy as np
import pytest
from pydantic import ValidationError
from scipy import special, stats
from sklearn.linear_model import LogisticRegression as SklearnLogistic

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.errors import ShardError
from fedlangevin_mpi.generic import Everything, gradient
from fedlangevin_mpi.models.base import Facts
from fedlangevin_mpi.models.logistic import LogisticRegression
from fedlangevin_mpi.runtime.compiled import OPTIONS

HIERARCHICAL = LogisticRegression(precision_prior={"shape": 2.5, "rate": 0.3})


@numba.njit(**OPTIONS)
def compiled(theta, data, batch, k):
    return gradient(theta, data, batch, k)


def test_potential_is_the_bernoulli_log_likelihood_and_the_normal_prior(row_shards):
    shards = row_shards([7], p=2, classes=2)
    theta = np.random.default_rng(0).normal(size=(1, 5, 2))
    x, y = shards[0].arrays["x"], shards[0].arrays["y"]
    probability = 1 / (1 + np.exp(-theta[0] @ x.T))
    expected = -stats.bernoulli.logpmf(y, probability).sum(1) - stats.norm.logpdf(theta[0], scale=0.7).sum(1)
    model = LogisticRegression(prior_scale=0.7)
    found = model.potential(theta, model.pack(shards, [1.0], Facts(2, 2), np.float64))
    constant = -2 * stats.norm.logpdf(0, scale=0.7)
    np.testing.assert_allclose(found[0] + constant, expected, rtol=1e-12)


def test_hierarchical_prior_is_the_joint_density_in_the_logarithm_of_the_precision():
    nothing = Shard(0, {"x": np.zeros((1, 3)), "y": np.zeros(1)}, "a row without features")
    data = HIERARCHICAL.pack([nothing], [1.0], Facts(3, 2), np.float64)
    theta = np.random.default_rng(0).normal(size=(1, 50, 4)) * 2
    alpha = np.exp(theta[0, :, 3])
    log_density = (
        stats.norm.logpdf(theta[0, :, :3], scale=alpha[:, None] ** -0.5).sum(1)
        + stats.gamma.logpdf(alpha, 2.5, scale=1 / 0.3)
        + np.log(alpha)  # d alpha / d log alpha
    )
    np.testing.assert_allclose(np.ptp(HIERARCHICAL.potential(theta, data)[0] + log_density), 0, atol=1e-10)


def test_hierarchical_prior_draws_follow_the_prior():
    draws = HIERARCHICAL.prior_draws(np.random.default_rng(0), 5000, 4)
    alpha = np.exp(draws[:, 3])
    assert stats.kstest(alpha, stats.gamma(2.5, scale=1 / 0.3).cdf).pvalue > 0.01
    assert stats.kstest((draws[:, :3] * np.sqrt(alpha)[:, None]).ravel(), "norm").pvalue > 0.01


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_scores_give_finite_exact_gradients(dtype):
    scores, labels = np.array(list(itertools.product([-1e6, -1e3, 1e3, 1e6], [0, 1]))).T
    shard = Shard(0, {"x": scores[:, None], "y": labels}, "far out")
    model = LogisticRegression(prior_scale=np.inf)
    data, theta = model.pack([shard], [1.0], Facts(1, 2), dtype), np.ones((1, 1, 1), dtype)
    expected = (((scores > 0) - labels) * scores).sum()
    for found in (gradient(theta, data, Everything(1), 0), compiled(theta, data, Everything(1), 0)):
        np.testing.assert_allclose(found, expected, atol=abs(scores).max() * 1e-6)
    losses = np.where(labels == 1, np.maximum(-scores, 0), np.maximum(scores, 0)).sum()
    np.testing.assert_allclose(model.potential(theta, data), losses, rtol=1e-6)


def test_an_infinite_position_in_one_chain_stays_there(row_shards):
    data = LogisticRegression().pack(row_shards([5], classes=2), [1.0], Facts(3, 2), np.float64)
    theta = np.ones((1, 2, 3))
    theta[0, 0] = np.nan
    for found in (gradient(theta, data, Everything(1), 0), compiled(theta, data, Everything(1), 0)):
        assert np.isnan(found[0, 0]).all()
        assert np.isfinite(found[0, 1]).all()


@pytest.mark.parametrize("model", [LogisticRegression(), HIERARCHICAL])
def test_predicts_the_probabilities_of_both_classes(model):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 3))
    positions = rng.normal(size=(4, model.dimension(Facts(3, 2))))
    found = model.predict(positions, x, Facts(3, 2))
    for position, probabilities in zip(positions, found, strict=True):
        reference = SklearnLogistic()
        reference.coef_, reference.intercept_, reference.classes_ = position[None, :3], np.zeros(1), np.arange(2)
        np.testing.assert_allclose(probabilities, reference.predict_proba(x), rtol=1e-12)


@pytest.mark.parametrize("model", [LogisticRegression(), HIERARCHICAL])
def test_density_estimates_predict_the_mean_over_their_kernels(model):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 3))
    positions = rng.normal(size=(4, model.dimension(Facts(3, 2))))
    found = model.predict_kde(positions, x, Facts(3, 2), 0.55)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    scores = (positions[:, :3] @ x.T)[..., None] + 0.55 * np.linalg.norm(x, axis=1)[:, None] * nodes
    expected = special.expit(scores) @ weights / weights.sum()
    np.testing.assert_allclose(found[..., 1], expected, atol=0.01)  # the probit approximation's own error
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-12)
    assert abs(model.predict(positions, x, Facts(3, 2))[..., 1] - expected).max() > 0.02
    literal = 1 / (1 + np.exp(-((1 + 0.55**2 * (x * x).sum(1) * np.pi / 8) ** -0.5) * (positions[:, :3] @ x.T)))
    np.testing.assert_allclose(found[..., 1], literal, rtol=1e-12)  # equations (26) and (27)


def test_parameters_name_the_precision_only_where_it_is_sampled():
    assert LogisticRegression().parameters(Facts(3, 2)) == {"coefficients": (3,)}
    assert HIERARCHICAL.parameters(Facts(3, 2)) == {"coefficients": (3,), "log_precision": ()}


@pytest.mark.parametrize("label", [2, -1, 0.5])
def test_labels_other_than_0_and_1_are_refused(label):
    shard = Shard(4, {"x": np.ones((3, 2)), "y": np.array([0, 1, label])}, "four.csv")
    with pytest.raises(ShardError, match=rf"client 4 \(four.csv\): label {label} in row 2; allowed: 0 to 1"):
        LogisticRegression().facts(shard)


def test_two_priors_at_once_are_refused():
    with pytest.raises(ValidationError, match=r"prior_scale: found 2\.0 together with precision_prior; allowed: one"):
        LogisticRegression(prior_scale=2.0, precision_prior={})


def test_the_default_prior_depends_on_the_other_one():
    assert LogisticRegression().prior_scale == 1.0
    hierarchical = LogisticRegression(precision_prior={})
    assert hierarchical.precision_prior.model_dump() == {"shape": 1.0, "rate": 0.01}
    assert hierarchical.prior_scale is None


@pytest.mark.parametrize("model", [LogisticRegression(prior_scale=3.0), LogisticRegression(), HIERARCHICAL])
def test_a_config_with_all_defaults_filled_in_is_the_same_config(model):
    assert LogisticRegression.model_validate_json(model.model_dump_json(), strict=True) == model
