"""SVGD, U-DSVGD and DSVGD as whole runs: limits that are known, and the mixture whose posterior is."""

import numpy as np
import pytest

from fedlangevin_mpi.algorithms.dsvgd import Dsvgd
from fedlangevin_mpi.algorithms.serving import Sent, Target, Turn
from fedlangevin_mpi.algorithms.stein import Stein, kde_score, stein_direction, stein_steps
from fedlangevin_mpi.algorithms.u_dsvgd import UDsvgd
from fedlangevin_mpi.generic import Everything
from fedlangevin_mpi.keys import Purpose, generator
from fedlangevin_mpi.models.gaussian import GaussianData
from tests.gaussians import heterogeneous
from tests.servers import gaussian_files, serve

BANDWIDTH = 0.55
LINEAR = {"name": "linear_regression"}


def starting_at(folder, positions):
    np.savez(folder / "start.npz", position=positions)
    return {"name": "file", "path": str(folder / "start.npz")}


def test_svgd_with_one_particle_is_gradient_ascent(tmp_path):
    means, precisions = heterogeneous(1, 3)
    start = np.array([[0.3, -1.0, 2.0]])
    algorithm = {"name": "svgd", "particles": 1, "step_size": 0.05, "optimizer": "plain", "local_iterations": 3}
    more = {"initial": starting_at(tmp_path, start), "engine": "auto"}
    run = serve(tmp_path, algorithm, "gaussian", gaussian_files(tmp_path, means, precisions), 1, **more)
    theta = start[0]
    for i in range(4):
        for _ in range(3):
            theta = theta - 0.05 * precisions[0] @ (theta - means[0])
        np.testing.assert_allclose(run.position(-1)[i, 0], theta, rtol=1e-12)


def linear_agents(folder, agents, dim, rows=15):
    """Write rows of a linear regression, one file an agent, and return them."""
    rng = np.random.default_rng(11)
    shards = [(rng.normal(size=(rows, dim)), rng.normal(size=rows)) for _ in range(agents)]
    for k, (x, y) in enumerate(shards):
        np.savez(folder / f"client-{k}.npz", x=x, y=y)
    return shards, {"name": "files", "path": str(folder / "client-{client}.npz")}


@pytest.mark.parametrize("alpha", [1.0, 2.5])
@pytest.mark.parametrize("schedule", ["round_robin", "random"])
def test_u_dsvgd_with_one_particle_is_pvi_with_fixed_covariance(tmp_path, alpha, schedule):
    """Appendix A.2: q = N(theta, lambda^2 I), q^(0) = p_0 = N(0, lambda^2 I), quadratic L_k, the same plain steps."""
    agents, dim, iterations, local, rate = 3, 4, 10, 7, 0.01
    shards, data = linear_agents(tmp_path, agents, dim)
    algorithm = {
        "name": "u_dsvgd", "particles": 1, "step_size": rate, "optimizer": "plain", "local_iterations": local,
        "global_iterations": iterations, "kde_bandwidth": BANDWIDTH, "temperature": alpha, "schedule": schedule,
    }  # fmt: skip
    model = {"name": "linear_regression", "prior_scale": BANDWIDTH}
    more = {"initial": starting_at(tmp_path, np.zeros((1, dim)))}
    run = serve(tmp_path, algorithm, model, data, agents, **more)
    eta, factors = np.zeros(dim), np.zeros((agents, dim))  # natural parameters: mean / lambda^2
    for i in range(iterations):
        k = scheduled(run, i, agents)
        (x, y), cavity = shards[k], eta - factors[k]
        mean = BANDWIDTH**2 * eta
        for _ in range(local):  # gradient steps on the mean, of E_q[log exp(-L_k / alpha)] - KL(q || cavity)
            mean = mean - rate * (x.T @ (x @ mean - y) / alpha + mean / BANDWIDTH**2 - cavity)
        factors[k] += mean / BANDWIDTH**2 - eta
        eta = mean / BANDWIDTH**2
        np.testing.assert_allclose(run.position(-1)[i, 0], mean, rtol=1e-10)


def scheduled(run, iteration, agents):
    """Return whose turn it was: from the schedule's own words."""
    algorithm = UDsvgd(**{k: v for k, v in run.config["algorithm"].items() if v is not None})
    return algorithm.deals(iteration, agents, 1, generator(run.seed, Purpose.SCHEDULE, 0, iteration))[0].agent


class Agent:
    """An agent of Gaussian likelihoods with a Gaussian prior, and its scores at points in view of what it remembers."""

    def __init__(self, algorithm, likelihood, prior, start):
        self.algorithm, self.target = algorithm, Target(likelihood, prior, None, None)
        self.memory = algorithm.agent(start, self.target)

    def take_turn(self, iteration, agent, received):
        steps = np.full(self.algorithm.local_iterations, self.algorithm.step_size)
        turn = Turn(iteration, agent, 3, steps, Everything(1), np.empty((0, 0, 1)))
        sent = self.algorithm.work(stein_steps, self.memory, self.target, received, turn)
        self.algorithm.settle(stein_steps, self.memory, self.target, received, Sent(sent[None], 0), turn)
        return sent


def one_dimensional(mean, precision):
    return GaussianData(np.array([[mean]]), np.array([[[precision]]]))


@pytest.fixture
def aims(monkeypatch):
    """The targets of all Stein steps that an algorithm takes."""
    found, run_kernel = [], Stein.run_kernel

    def record(self, kernel, theta, memory, aim, *rest):
        found.append(aim)
        return run_kernel(self, kernel, theta, memory, aim, *rest)

    monkeypatch.setattr(Stein, "run_kernel", record)
    return found


@pytest.mark.parametrize("kind", [UDsvgd, Dsvgd])
def test_the_prior_counts_once(kind, aims):
    """Every local target has in all one prior: with `q = p_0 prod_k t_k` or, in DSVGD, `p_0 prod_k (t_k / p_0)`.

    Densities of particles that represent a Gaussian exactly are replaced by it: what a target's parts say then is a
    natural parameter each, and the tilted distribution's is that of the posterior once every agent had a turn.
    """
    prior, likelihoods = (0.0, 0.5), [(1.0, 2.0), (-2.0, 1.0), (4.0, 3.0)]
    start = np.linspace(-2, 2, 8)[:, None]
    options = {"step_size": 0.05, "global_iterations": 6, "particles": 8, "optimizer": "plain", "local_iterations": 2}
    algorithm = kind(name=kind.model_fields["name"].default, **options)
    agents = [Agent(algorithm, one_dimensional(*own), one_dimensional(*prior), start) for own in likelihoods]
    exact = [np.array([m * p, p]) for m, p in (prior, *likelihoods)]
    named = []  # (particles, natural parameters) of every density that came up

    def parameters_of(particles):
        return next(eta for known, eta in named if np.array_equal(known, particles))

    def weighted(aim):
        pairs = zip(aim.densities, aim.weights, strict=True)
        return [np.zeros(2), *(weight * parameters_of(one) for one, weight in pairs if weight)]

    named.append((start, exact[0]))
    q = start
    for i in range(6):
        k = i % 3
        aims.clear()
        sent = agents[k].take_turn(i, k, q)
        tilted = aims[0]
        total = tilted.prior_weight * exact[0] + tilted.likelihood_weight * exact[1 + k]
        total = total + sum(weighted(tilted))
        named.insert(0, (sent, total))  # the particles that the tilted distribution becomes
        if kind is Dsvgd:
            distilled = aims[1]
            assert distilled.prior_weight == distilled.likelihood_weight == 0
            factor = sum(weighted(distilled))
            np.testing.assert_allclose(factor, exact[0] + exact[1 + k], atol=1e-12)  # t_k = p_0 exp(-L_k)
            named.insert(0, (agents[k].memory.particles, factor))
        q = sent
        if i >= 2:
            np.testing.assert_allclose(total, sum(exact), atol=1e-12)


def mixture_kl(run, prior):
    """Return KL(posterior || KDE of the last particles) of the one-dimensional toy mixture, on a grid."""
    x = np.linspace(-9, 9, 4001)
    step = x[1] - x[0]

    def normal(mean, variance):
        return np.exp(-((x - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)

    exact = prior(x) * normal(1, 4) * (normal(-3, 1) + normal(3, 2))
    exact /= exact.sum() * step
    estimate = np.mean([normal(theta, BANDWIDTH**2) for theta in run.position(-1)[-1, :, 0]], axis=0)
    return (exact * np.log(np.maximum(exact, 1e-300) / estimate)).sum() * step


PRIORS = {
    "normal": ({"name": "normal"}, lambda x: np.exp(-(x**2) / 2)),
    "uniform": ({"name": "uniform", "low": -6.0, "high": 6.0}, lambda x: (np.abs(x) <= 6).astype(float)),
}


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize(("name", "agents"), [("svgd", 1), ("u_dsvgd", 2), ("dsvgd", 2)])
def test_two_hundred_particles_find_the_mixture(tmp_path, prior, name, agents):
    """Section 6 and appendix B.1: N = 200, L = L' = 200, table 3's AdaGrad, kernel bandwidth 0.55."""
    section, density = PRIORS[prior]
    algorithm = {"name": name, "particles": 200, "local_iterations": 200, "step_size": 0.05}
    model = {"name": "gaussian_mixture", "prior": section}
    run = serve(tmp_path, algorithm, model, {"name": "toy_mixture_1d"}, agents, engine="auto")
    assert mixture_kl(run, density) < 0.05


def test_the_correction_acts_in_54_dimensions():
    """The factor's log-gradient moves particles by what 54-dimensional KDEs say, which floored densities would not."""
    rng = np.random.default_rng(5)
    start = rng.normal(size=(10, 54))
    flat = GaussianData(np.zeros((1, 54)), np.zeros((1, 54, 54)))
    options = {"step_size": 1e-3, "global_iterations": 2, "particles": 10, "optimizer": "plain"}
    algorithm = Dsvgd(name="dsvgd", **options)
    agent = Agent(algorithm, flat, flat, start)
    agent.memory.particles = start + rng.normal(size=start.shape)
    slope = kde_score(start, start, BANDWIDTH) - kde_score(start, agent.memory.particles, BANDWIDTH)
    assert np.abs(slope).mean() > 1
    moved = agent.take_turn(1, 0, start)
    np.testing.assert_allclose(moved - start, 1e-3 * stein_direction(start, slope, 0.0), rtol=1e-9, atol=1e-12)
    assert np.abs(stein_direction(start, slope, 0.0) - stein_direction(start, 0 * slope, 0.0)).mean() > 0.1


def test_agents_at_once_with_one_particle_are_damped_pvi(tmp_path):
    agents, dim, iterations, local, rate, damping = 3, 2, 12, 5, 0.01, 0.4
    shards, data = linear_agents(tmp_path, agents, dim)
    algorithm = {
        "name": "u_dsvgd", "particles": 1, "step_size": rate, "optimizer": "plain", "local_iterations": local,
        "global_iterations": iterations, "kde_bandwidth": BANDWIDTH, "schedule": "all", "damping": damping,
    }  # fmt: skip
    model = {"name": "linear_regression", "prior_scale": BANDWIDTH}
    more = {"initial": starting_at(tmp_path, np.zeros((1, dim)))}
    run = serve(tmp_path, algorithm, model, data, agents, **more)
    eta, factors = np.zeros(dim), np.zeros((agents, dim))
    for i in range(iterations):
        moves = np.zeros((agents, dim))
        for k, (x, y) in enumerate(shards):
            mean = BANDWIDTH**2 * eta
            for _ in range(local):
                mean = mean - rate * (x.T @ (x @ mean - y) + mean / BANDWIDTH**2 - (eta - factors[k]))
            moves[k] = mean / BANDWIDTH**2 - eta
        factors += damping * moves
        eta = eta + damping * moves.sum(0)
        np.testing.assert_allclose(run.position(-1)[i, 0], BANDWIDTH**2 * eta, rtol=1e-9)


@pytest.mark.parametrize(
    ("schedule", "iterations"),
    [
        ({"schedule": "all", "damping": 1 / 3}, 20),
        ({"schedule": "all", "damping": 1 / 3, "local_iterations": 60}, 14),
        ({"schedule": "parallel", "agents_per_iteration": 2, "damping": 0.5}, 24),
    ],
)
def test_agents_at_once_end_where_agents_in_turn_do(tmp_path, schedule, iterations):
    """Gaussian likelihoods of three agents that differ, whose posterior mean is known: no drift with local steps."""
    shards, data = linear_agents(tmp_path, 3, 1)
    algorithm = {
        "name": "u_dsvgd", "particles": 8, "step_size": 0.01, "optimizer": "plain", "local_iterations": 30,
        "kde_bandwidth": 0.2,
    }  # fmt: skip
    in_turn = serve(tmp_path / "turn", algorithm | {"global_iterations": 39}, LINEAR, data, 3).position(-1)[-1]
    at_once = serve(tmp_path / "once", algorithm | schedule | {"global_iterations": iterations}, LINEAR, data, 3)
    last = at_once.position(-1)[-1]
    precision = 1 + sum((x**2).sum() for x, _ in shards)
    exact = sum((x[:, 0] * y).sum() for x, y in shards) / precision
    own = [(x[:, 0] * y).sum() / (x**2).sum() for x, y in shards]
    assert np.ptp(own) > 0.2
    assert abs(last.mean() - exact) < 0.003
    np.testing.assert_allclose([last.mean(), last.std()], [in_turn.mean(), in_turn.std()], atol=0.003)
