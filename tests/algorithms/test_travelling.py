"""DSGLD and FSGLD against the exact law of travelling chains; FedAvg and FedSGD against loops."""

import numpy as np
import pytest

from fedlangevin_mpi.algorithms.dsgld import Dsgld
from fedlangevin_mpi.algorithms.fsgld import MOST_FITTED, Fsgld, surrogate
from fedlangevin_mpi.algorithms.serving import Target
from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.evaluate import exact
from fedlangevin_mpi.evaluate.exact_travelling import dsgld
from fedlangevin_mpi.models.base import Facts
from fedlangevin_mpi.models.logistic import LogisticRegression
from tests.gaussians import heterogeneous, z_scores
from tests.servers import gaussian_files, serve

AGENTS, DIM, STEP, LOCAL = 3, 2, 0.02, 6


def chains(tmp_path, algorithm, means, precisions):
    settings = {"particles": 60, "global_iterations": 6000, "local_iterations": LOCAL, "step_size": STEP}
    data = gaussian_files(tmp_path, means, precisions)
    run = serve(tmp_path, settings | algorithm, "gaussian", data, len(means), warmup=300, thin=2, engine="auto")
    assert not run.particles  # chains, not an approximation that only its last draw is
    return run.position(-1)[:]


def biased_law(means, precisions, taus):
    law, target = dsgld(means, precisions, STEP, taus), exact.posterior(means, precisions)
    assert np.abs(law.covariance - target.covariance).max() > 0.1 * target.covariance.max()
    return law


@pytest.mark.parametrize(("delays", "taus"), [(None, [6, 6, 6]), ([1.0, 2.0, 6.0], [6, 3, 1])])
def test_dsgld_has_the_law_of_travelling_chains(tmp_path, delays, taus):
    means, precisions = heterogeneous(AGENTS, DIM)
    law = biased_law(means, precisions, taus)
    z, power = z_scores(chains(tmp_path, {"name": "dsgld", "delays": delays}, means, precisions), law)
    assert np.abs(z).max() < 4
    assert power.max() < 0.02


def test_fsgld_with_exact_surrogates_is_the_unadjusted_langevin_algorithm(tmp_path):
    means, precisions = heterogeneous(AGENTS, DIM)
    law = exact.sgld(means, precisions, STEP)
    again = dsgld(means, precisions, STEP, [LOCAL] * AGENTS, conducive=True)
    np.testing.assert_allclose(again.covariance, law.covariance, rtol=1e-10)
    # The covariance of the paper's step epsilon = 2 gamma: (P (I - epsilon P / 4))^-1.
    P = precisions.sum(0)
    np.testing.assert_allclose(law.covariance, np.linalg.inv(P @ (np.eye(DIM) - 2 * STEP * P / 4)), rtol=1e-10)
    z, power = z_scores(chains(tmp_path, {"name": "fsgld"}, means, precisions), law)
    assert np.abs(z).max() < 4
    assert power.max() < 0.02
    biased = biased_law(means, precisions, [LOCAL] * AGENTS)
    assert np.abs(biased.covariance - law.covariance).max() > 20 * power.max() * law.covariance.max() / 4


def test_chains_are_dealt_evenly_and_each_to_one_agent():
    algorithm = Dsgld(name="dsgld", step_size=0.1, global_iterations=1, particles=7)
    visits = np.zeros((7, AGENTS))
    for iteration in range(3000):
        deals = algorithm.deals(iteration, AGENTS, 7, np.random.default_rng(iteration))
        assert np.sort(np.concatenate([deal.rows for deal in deals])).tolist() == list(range(7))
        assert {len(deal.rows) for deal in deals} == {2, 3}
        for deal in deals:
            visits[deal.rows, deal.agent] += 1
    assert np.abs(visits / 3000 - 1 / AGENTS).max() < 4 * np.sqrt(2 / 9 / 3000)


def test_a_single_chain_visits_one_agent_a_round(tmp_path):
    means, precisions = heterogeneous(AGENTS, DIM)
    data = gaussian_files(tmp_path, means, precisions)
    algorithm = {"name": "dsgld", "particles": 1, "global_iterations": 30, "step_size": STEP}
    assert serve(tmp_path, algorithm, "gaussian", data, AGENTS).statistics.communication.messages == 30


def test_surrogate_of_a_logistic_likelihood_is_its_expansion_at_the_mode():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(40, 3))
    y = (x[:, 0] + rng.normal(size=40) > 0).astype(float)
    model, facts = LogisticRegression(prior_scale=2.0), Facts(3, 2)
    data = model.pack([Shard(0, {"x": x, "y": y}, "here")], [0.0], facts, float)
    eta = surrogate(Target(data, model.prior_only(facts, float), None, None), np.zeros(3), alpha=1.0)
    curvature = -2 * eta[1:]
    mode = np.zeros(3)
    for _ in range(50):  # Newton, from the formulas
        p = 1 / (1 + np.exp(-x @ mode))
        H = x.T @ (x * (p * (1 - p))[:, None])
        mode = mode - np.linalg.solve(H + np.eye(3) / 4, x.T @ (p - y) + mode / 4)
    np.testing.assert_allclose(curvature, H, rtol=1e-5)
    np.testing.assert_allclose(eta[0] - curvature @ mode, -x.T @ (p - y), atol=1e-5)


def test_surrogates_of_too_many_parameters_are_refused():
    algorithm, large = Fsgld(name="fsgld", step_size=1e-3, global_iterations=1), MOST_FITTED + 1
    assert "found fsgld for 5,001 parameters; allowed: up to 5,000" in algorithm.refusal(
        large, Target(None, None, None, None), None
    )
    assert algorithm.refusal(large, Target(None, None, (None, None), None), None) is None
    assert algorithm.refusal(MOST_FITTED, Target(None, None, None, None), None) is None


def test_sequential_descent_has_a_share_of_the_prior_at_every_client(tmp_path):
    x, y = np.array([[1.0], [2.0]]), np.array([1.0, -1.0])
    for client in range(2):
        np.savez(tmp_path / f"client-{client}.npz", x=x + client, y=y)
    data = {"name": "files", "path": str(tmp_path / "client-{client}.npz")}
    algorithm = {"name": "fed_sgd", "step_size": 0.1, "temperature": 2.0}
    np.savez(tmp_path / "start.npz", position=np.array([[3.0]]))
    initial = {"name": "file", "path": str(tmp_path / "start.npz")}
    model = {"name": "linear_regression", "prior_scale": 0.5}
    run = serve(tmp_path, algorithm, model, data, 2, initial=initial)
    theta = 3.0
    for i in range(4):
        rows = x[:, 0] + i % 2
        theta -= 0.1 * (theta / 0.5**2 / 2 + rows @ (rows * theta - y) / 2.0)
        np.testing.assert_allclose(run.position(-1)[i, 0, 0], theta, rtol=1e-12)


@pytest.mark.parametrize(("name", "local"), [("sequential_fed_avg", 5), ("fed_sgd", 1)])
def test_sequential_descent_is_a_loop_over_clients(tmp_path, name, local):
    means, precisions = heterogeneous(AGENTS, DIM)
    data = gaussian_files(tmp_path, means, precisions)
    algorithm = {"name": name, "step_size": 0.1, "global_iterations": 7}
    run = serve(tmp_path, algorithm | ({"local_iterations": local} if local > 1 else {}), "gaussian", data, AGENTS)
    theta = np.zeros(DIM)
    for i in range(7):
        for _ in range(local):
            theta = theta - 0.1 * precisions[i % AGENTS] @ (theta - means[i % AGENTS])
        np.testing.assert_allclose(run.position(-1)[i, 0], theta, rtol=1e-10)
    assert run.statistics.communication.bytes == 7 * DIM * 8
    assert run.statistics.gradient_evaluations == 7 * local
