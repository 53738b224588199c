"""Posteriors of real models: closed form, or a reference sampler that is exact."""

import numpy as np
import pytest
from scipy import optimize

from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.data.toy_mixture import Mixture, ToyMixture
from fedlangevin_mpi.evaluate import exact
from fedlangevin_mpi.evaluate.diagnostics import standard_error
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.store.reader import open_run
from tests.gaussians import z_scores

CLIENTS = 4


def sample(tmp_path, model, data, algorithm, **more):
    values = {
        "seed": 4,
        "clients": CLIENTS,
        "chains": 8,
        "model": model,
        "data": data,
        "algorithm": algorithm,
        "output": {"directory": str(tmp_path / "run")},
    }
    config = make_config(values | more)
    shards = config.data.shards(range(CLIENTS), CLIENTS, config.seed)
    standardization = config.data.standardization(config.data.moments(shards))
    prepared = [config.data.prepared(shard, standardization).arrays for shard in shards]
    x, y = (np.concatenate([arrays[name] for arrays in prepared]) for name in ("x", "y"))
    return open_run(run(config)), x, y


def linear_run(tmp_path, algorithm, **more):
    """Return a run on conjugate linear regression with its clients' potentials, as means and precisions."""
    model = {"name": "linear_regression", "noise_scale": 0.5, "prior_scale": 0.2}
    data = {"name": "synthetic_linear", "features": 3, "rows": 40, "noise_scale": 0.5}
    opened, x, y = sample(tmp_path, model, data, algorithm, **more)
    x, y = x.reshape(CLIENTS, 40, 3), y.reshape(CLIENTS, 40, 1)
    prior = np.eye(3) / 0.2**2 / CLIENTS  # counted once over all clients
    precisions = x.swapaxes(1, 2) @ x / 0.5**2 + prior
    return opened, np.linalg.solve(precisions, x.swapaxes(1, 2) @ y / 0.5**2)[..., 0], precisions


def test_linear_regression_has_its_exact_law(tmp_path):
    algorithm = {"name": "fald", "step_size": 2e-3, "communication_probability": 0.3}
    opened, means, precisions = linear_run(tmp_path, algorithm, iterations=200_000, warmup=1000, thin=5)
    law = exact.fald(means, precisions, 2e-3, communication_probability=0.3)
    z, power = z_scores(opened.average()[:], exact.average(law, CLIENTS))
    assert np.abs(z).max() < 4
    assert power.max() < 0.01


def test_minibatches_of_conjugate_linear_regression_recover_the_posterior(tmp_path):
    algorithm = {"name": "vr_fald", "step_size": 2e-4, "communication_probability": 0.5, "batch_size": 10}
    opened, means, precisions = linear_run(tmp_path, algorithm, iterations=400_000, warmup=5000, thin=20)
    target = exact.posterior(means, precisions)
    draws = opened.average()[:]
    series = draws.mean(axis=1)
    assert (np.abs(series.mean(0) - target.mean) / standard_error(series)).max() < 4
    covariance = np.cov(draws.reshape(-1, 3).T)
    np.testing.assert_allclose(covariance, target.covariance, atol=0.05 * np.diag(target.covariance).max())


def test_mixture_factors_with_a_normal_prior(tmp_path):
    values = {
        "seed": 4,
        "clients": 2,
        "chains": 8,
        "iterations": 150_000,
        "warmup": 5000,
        "thin": 5,
        "algorithm": {"name": "fald", "step_size": 0.06, "communication_probability": 1.0},
        "model": {"name": "gaussian_mixture", "prior": {"name": "normal", "covariance": [[4.0, 2.0], [2.0, 4.0]]}},
        "data": {"name": "toy_mixture_2d"},
        "output": {"directory": str(tmp_path / "run")},
    }
    draws = open_run(run(make_config(values))).average()[:]
    prior = Mixture(np.ones(1), np.zeros((1, 2)), np.array([[[4.0, 2.0], [2.0, 4.0]]]))
    factor = Mixture(**ToyMixture(name="toy_mixture_2d").shards([0], 1, 0)[0].arrays)
    weights, means, covariances = factor.times(prior)
    weights = weights / weights.sum()
    mean = weights @ means
    second = np.einsum("m,mij->ij", weights, covariances + means[:, :, None] * means[:, None])
    series, squares = draws.mean(axis=1), (draws**2).mean(axis=1)
    assert standard_error(series).max() < 0.02
    np.testing.assert_allclose(series.mean(0), mean, atol=4 * standard_error(series).max())
    np.testing.assert_allclose(squares.mean(0), np.diag(second), rtol=0.05)


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "fald", "communication_probability": 1.0},
        {"name": "vr_fald", "communication_probability": 0.5, "batch_size": 64, "noise_correlation": 1.0},
    ],
    ids=["fald", "vr_fald"],
)
def test_logistic_regression_on_breast_cancer(tmp_path, algorithm):
    model = {"name": "logistic_regression", "prior_scale": 0.3}
    data = {"name": "breast_cancer", "standardize": "pooled", "intercept": True, "partition": {"name": "dirichlet"}}
    steps = {"iterations": 60_000, "warmup": 2000, "thin": 10}
    opened, x, y = sample(tmp_path, model, data, {"step_size": 8e-4} | algorithm, **steps)
    series = opened.average()[:].mean(axis=1)
    error = standard_error(series)
    mean, sd, reference_error = reference(x, y, prior_scale=0.3)
    z = (series.mean(0) - mean) / np.hypot(error, reference_error)
    assert np.abs(z).max() < 4.5
    assert np.median(error / sd) < 0.06
    np.testing.assert_allclose(opened.average()[:].std(axis=(0, 1)) / sd, 1, atol=0.15)


def reference(x, y, prior_scale, chains=100, steps=1500, seed=0):
    """Return mean, sd and the mean's standard error by a Metropolis-adjusted Langevin sampler, which has no bias."""
    precision = 1 / prior_scale**2

    def potential(w):
        z = w @ x.T
        slope = (1 / (1 + np.exp(-z)) - y) @ x + precision * w
        return (np.logaddexp(0, z) - y * z).sum(-1) + precision * (w**2).sum(-1) / 2, slope

    mode = optimize.minimize(lambda w: [r[0] for r in potential(w[None])], np.zeros(x.shape[1]), jac=True).x
    p = 1 / (1 + np.exp(-x @ mode))
    covariance = np.linalg.inv((x.T * (p * (1 - p))) @ x + precision * np.eye(x.shape[1]))
    root, rng, h = np.linalg.cholesky(covariance), np.random.default_rng(seed), 0.7
    inverse = np.linalg.inv(root)
    w = mode + rng.normal(size=(chains, len(mode))) @ root.T
    u, slope = potential(w)
    kept, accepted = [], 0.0
    for step in range(steps):
        drift = w - h / 2 * slope @ covariance
        proposal = drift + np.sqrt(h) * rng.normal(size=w.shape) @ root.T
        u_new, slope_new = potential(proposal)
        back = proposal - h / 2 * slope_new @ covariance
        forward_distance = (((proposal - drift) @ inverse.T) ** 2).sum(-1)
        back_distance = (((w - back) @ inverse.T) ** 2).sum(-1)
        accept = np.log(rng.random(chains)) < u - u_new + (forward_distance - back_distance) / (2 * h)
        w, u, slope = (
            np.where(accept[:, None], proposal, w),
            np.where(accept, u_new, u),
            np.where(accept[:, None], slope_new, slope),
        )
        accepted += accept.mean() / steps
        if step >= 100:
            kept.append(w)
    assert 0.4 < accepted < 0.95
    draws = np.array(kept)
    return draws.mean((0, 1)), draws.std((0, 1)), draws.mean(0).std(0) / np.sqrt(chains)
