"""PVI and GVI: exact where likelihoods are Gaussian, a fixed point of the natural gradient where they are not."""

import numpy as np
import pytest
from scipy.optimize import minimize

from fedlangevin_mpi.algorithms.natural import mean_of, natural, precision_of, root_of, sample
from fedlangevin_mpi.algorithms.pvi import MOST_FULL, Pvi, _damped, conjugate_fit
from fedlangevin_mpi.algorithms.serving import Deal, Sent, Target, Turn
from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.errors import FedLangevinError
from fedlangevin_mpi.evaluate import exact
from fedlangevin_mpi.generic import Everything
from fedlangevin_mpi.models.base import Facts
from fedlangevin_mpi.models.logistic import LogisticRegression
from tests.gaussians import heterogeneous

AGENTS, DIM = 3, 3
PRIOR = (np.array([1.0, 0.0, -1.0]), np.diag([0.5, 1.0, 2.0]))


class Server:
    """PVI's server and agents without a run: quadratic likelihoods, and a Gaussian prior."""

    def __init__(self, alpha=1.0, prior=PRIOR, agents=AGENTS, **options):
        self.algorithm = Pvi(name="pvi", global_iterations=1, temperature=alpha, **options)
        self.means, self.precisions = heterogeneous(agents, DIM)
        self.targets = [
            Target(None, None, likelihood, prior) for likelihood in zip(self.means, self.precisions, strict=True)
        ]
        self.memories = [self.algorithm.agent(None, target) for target in self.targets]
        self.eta = self.algorithm.served(None, self.targets[0])
        P = prior[1] + self.precisions.sum(0) / alpha
        h = prior[1] @ prior[0] + np.einsum("kij,kj->i", self.precisions, self.means) / alpha
        self.precision, self.mean = P, np.linalg.solve(P, h)

    def iterate(self, iteration, agents):
        received = [self.eta.copy() for _ in agents]
        turn = Turn(iteration, 0, AGENTS, np.empty(0), Everything(1), np.empty((0, 0, DIM)))
        sent = [
            self.algorithm.work(None, self.memories[k], self.targets[k], one, turn)
            for k, one in zip(agents, received, strict=True)
        ]
        for k, one, upload in zip(agents, received, sent, strict=True):
            self.algorithm.settle(None, self.memories[k], self.targets[k], one, Sent(upload[None], 0), turn)
        self.eta = self.algorithm.combine(self.eta, [Deal(k, np.arange(len(self.eta))) for k in agents], sent)

    def found(self):
        return mean_of(self.eta, root_of(self.eta)), precision_of(self.eta)


@pytest.mark.parametrize("alpha", [1.0, 3.0])
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_one_sweep_of_full_covariance_is_exact_on_gaussians(alpha, order):
    server = Server(alpha)
    for i, k in enumerate(order):
        server.iterate(i, [k])
    mean, precision = server.found()
    np.testing.assert_allclose(mean, server.mean, rtol=1e-10)
    np.testing.assert_allclose(precision, server.precision, rtol=1e-10)


def test_mean_field_has_the_diagonal_of_the_precision_and_converges_to_the_mean():
    server = Server(covariance="diagonal")
    off = []
    for i in range(60):
        server.iterate(i, [i % AGENTS])
        mean, precision = server.found()
        off.append(np.abs(mean - server.mean).max())
    np.testing.assert_allclose(np.diagonal(precision), np.diagonal(server.precision), rtol=1e-10)
    assert off[2] > 1e-3  # after one sweep
    assert off[-1] < 1e-9


@pytest.mark.parametrize("together", [2, 3])
def test_agents_at_once_are_exact_after_an_undamped_turn_each(together):
    server = Server(schedule="parallel", agents_per_iteration=together)
    for i in range(2 if together == 2 else 1):
        deals = server.algorithm.deals(i, AGENTS, len(server.eta), np.random.default_rng(0))
        server.iterate(i, [deal.agent for deal in deals])
    mean, precision = server.found()
    np.testing.assert_allclose(mean, server.mean, rtol=1e-10)
    np.testing.assert_allclose(precision, server.precision, rtol=1e-10)


def test_damped_agents_at_once_converge_geometrically():
    server = Server(schedule="all", damping=0.25)
    start = server.eta.copy()
    target = natural(server.precision @ server.mean, server.precision)
    for i in range(40):
        np.testing.assert_allclose(server.eta, target + 0.75**i * (start - target), rtol=1e-9, atol=1e-12)
        server.iterate(i, range(AGENTS))


def logistic_target(rows=60, dim=2, scale=1.5):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, dim))
    y = (x[:, 0] + rng.normal(size=rows) > 0).astype(float)
    model, facts = LogisticRegression(prior_scale=scale), Facts(dim, 2)
    data = model.pack([Shard(0, {"x": x, "y": y}, "here")], [0.0], facts, float)
    return Target(data, model.prior_only(facts, float), None, model.normal_prior(facts)), (x, y)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_natural_gradient_steps_end_at_the_optimum_of_the_free_energy(covariance):
    """Against SciPy's minimum of E_q[L] + alpha KL(q || p_0), its expectations by Gauss-Hermite quadrature."""
    alpha, scale = 1.3, 1.5
    target, (x, y) = logistic_target(scale=scale)
    algorithm = Pvi(
        name="pvi", global_iterations=1, covariance=covariance, temperature=alpha, samples=200,
        step_size={"name": "polynomial", "initial": 0.5, "offset": 20, "power": 1.0}, local_iterations=400,
    )  # fmt: skip
    noise = np.random.default_rng(8).normal(size=(400, 100, 2))
    turn = Turn(0, 0, 1, algorithm.steps(0, 400), Everything(1), noise)
    memory, served = algorithm.agent(None, target), algorithm.served(None, target)
    eta = algorithm.work(None, memory, target, served, turn)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()

    def free_energy(parameters):
        mean, root = parameters[:2], np.diag(np.exp(parameters[2:4]))
        if covariance == "full":
            root[1, 0] = parameters[4]
        z = x @ mean + np.linalg.norm(x @ root, axis=1) * nodes[:, None]  # x'theta is Gaussian
        loss = weights @ (np.logaddexp(0, z) - y * z).sum(1)
        square = (mean @ mean + (root**2).sum()) / scale**2
        return loss + alpha * (square / 2 - parameters[2:4].sum())

    best = minimize(free_energy, np.zeros(5 if covariance == "full" else 4), method="BFGS", tol=1e-10).x
    root = np.diag(np.exp(best[2:4]))
    if covariance == "full":
        root[1, 0] = best[4]
    np.testing.assert_allclose(mean_of(eta, root_of(eta)), best[:2], atol=0.01)
    np.testing.assert_allclose(np.linalg.inv(precision_of(eta)), root @ root.T, atol=0.004)


def test_a_step_out_of_the_positive_definite_precisions_is_halved():
    """A bimodal likelihood has negative curvature between its modes; whole steps would leave no density."""
    from fedlangevin_mpi.data.toy_mixture import ToyMixture
    from fedlangevin_mpi.models.gaussian_mixture import GaussianMixture, NormalPrior

    (shard,) = ToyMixture(name="toy_mixture_1d").shards([1], 2, 0)
    model, facts = GaussianMixture(prior=NormalPrior(scale=3.0)), Facts(1)
    target = Target(model.pack([shard], [0.0], facts, float), None, None, model.normal_prior(facts))
    algorithm = Pvi(name="pvi", global_iterations=1, step_size=1.0, local_iterations=30)
    turn = Turn(0, 0, 1, np.ones(30), Everything(1), np.random.default_rng(0).normal(size=(30, 16, 1)))
    eta = algorithm.work(None, algorithm.agent(None, target), target, algorithm.served(None, target), turn)
    assert root_of(eta) is not None


def test_of_mean_field_the_step_of_each_parameter_is_halved_alone():
    eta, improper = natural(np.zeros(3), np.ones(3)), natural(np.ones(3), np.array([5.0, -7.0, 1.0]))
    moved = _damped(eta, improper, 0.4)
    # 1 - 8 rho is more than 1/2 for rho = 0.4 / 8; the others take the whole step.
    np.testing.assert_allclose(-2 * moved[1], [2.6, 0.6, 1])
    np.testing.assert_allclose(moved[0], [0.4, 0.05, 0.4])


@pytest.mark.parametrize("diagonal", [False, True])
def test_no_step_takes_more_than_half_of_a_precision(diagonal):
    rng = np.random.default_rng(0)
    for _ in range(200):
        root, other = rng.normal(size=(2, 3, 3))
        before, towards = root @ root.T, other + other.T
        eta, optimum = (natural(rng.normal(size=3), np.diagonal(P) if diagonal else P) for P in (before, 5 * towards))
        left = precision_of(_damped(eta, optimum, 0.3)) - precision_of(eta) / 2
        assert np.linalg.eigvalsh(left)[0] > 0


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_a_fit_that_is_not_finite_is_what_an_agent_would_send(covariance):
    target, _ = logistic_target()
    algorithm = Pvi(name="pvi", global_iterations=1, covariance=covariance, local_iterations=2)
    turn = Turn(0, 0, 1, np.ones(2), Everything(1), np.full((2, 16, 2), np.nan))
    sent = algorithm.work(None, algorithm.agent(None, target), target, algorithm.served(None, target), turn)
    assert not np.isfinite(sent).all()


def test_a_full_covariance_of_a_large_model_is_refused():
    prior = np.zeros(MOST_FULL + 1), np.ones(MOST_FULL + 1)
    target = Target(None, None, None, prior)
    found = Pvi(name="pvi", global_iterations=1).refusal(MOST_FULL + 1, target, None)
    assert "covariance: found full, a matrix of 2,001 x 2,001; allowed: diagonal" in found
    assert Pvi(name="pvi", global_iterations=1, covariance="diagonal").refusal(MOST_FULL + 1, target, None) is None


def test_natural_parameters_are_the_papers():
    eta = natural(np.array([3.0]), np.array([[2.0]]))
    assert eta.tolist() == [[3.0], [-1.0]]
    assert -eta[0] / (2 * eta[1]) == 1.5  # the mean -eta_1 / (2 eta_2)
    assert -1 / (2 * eta[1]) == 0.5  # the variance


def test_draws_of_q_have_its_moments():
    mean, precision = np.array([1.0, -2.0]), np.array([[2.0, 0.8], [0.8, 1.0]])
    draws = sample(natural(precision @ mean, precision), np.random.default_rng(0).normal(size=(200_000, 2)))
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.01)
    np.testing.assert_allclose(np.cov(draws.T), np.linalg.inv(precision), atol=0.02)


def test_a_factor_is_no_density():
    with pytest.raises(FedLangevinError, match="q is no density"):
        sample(natural(np.zeros(2), np.diag([1.0, 0.0])), np.zeros((3, 2)))


def test_a_flat_prior_is_no_obstacle_to_conjugate_fits():
    flat = (np.zeros(DIM), np.zeros((DIM, DIM)))
    server = Server(prior=flat)
    for i in range(AGENTS):
        server.iterate(i, [i])
    law = exact.posterior(server.means, server.precisions)
    np.testing.assert_allclose(server.found()[0], law.mean, rtol=1e-10)
    assert conjugate_fit(np.zeros((DIM + 1, DIM)), (server.means[0], server.precisions[0]), 1.0, False).shape == (4, 3)
