"""Exact laws of the samplers that gossip, against literal simulations and closed forms."""

import numpy as np
import pytest
from scipy.linalg import block_diag

from fedlangevin_mpi.errors import FedLangevinError
from fedlangevin_mpi.evaluate import exact, exact_gossip
from fedlangevin_mpi.evaluate.exact_gossip import Gossip
from tests.gaussians import heterogeneous, z_scores

ETA, FRICTION = 0.1, 3.0
STAR = np.array([[0.25, 0.25, 0.25, 0.25], [0.25, 0.75, 0, 0], [0.25, 0, 0.75, 0], [0.25, 0, 0, 0.75]])
RING = np.array([[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]) / 3
COMPLETE = np.full((4, 4), 0.25)
PAIRS = np.kron(np.eye(2), np.full((2, 2), 0.5))  # two components
OTHER_PAIRS = np.array([[1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]]) / 2
DIRECTED = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]]) / 2
GRAPHS = {"star": STAR, "ring": RING, "complete": COMPLETE, "disconnected": PAIRS, "directed": DIRECTED}
SAMPLERS = {
    "de_sgld": exact_gossip.de_sgld,
    "de_sghmc": lambda *args, **options: exact_gossip.de_sghmc(*args, friction=FRICTION, **options),
    "gradient_tracking": exact_gossip.gradient_tracking,
    "extra_sgld": exact_gossip.extra_sgld,
}


def simulate(sampler, means, precisions, cycle, temperature=1.0, chains=400, iterations=1100, warmup=200):
    """Run the equations literally, without noise at temperature 0; return positions `(draw, chain, agents d)`.

    Iterations go through the cycle; every element of it is a list of mixing matrices, of which a chain takes any.
    """
    rng = np.random.default_rng(2)
    H, m = block_diag(*precisions), means.ravel()
    kicks = np.sqrt(2 * ETA * temperature) * rng.normal(size=(iterations, chains, len(m)))
    x = rng.normal(size=(chains, len(m)))
    v, q, y = np.zeros_like(x), np.zeros_like(x), (x - m) @ H
    kept = []
    for k, kick in enumerate(kicks):
        matrices = [np.kron(W, np.eye(means.shape[1])) for W in cycle[k % len(cycle)]]
        taken = rng.integers(len(matrices), size=chains)

        def mix(x, matrices=matrices, taken=taken):
            return np.array([x @ W.T for W in matrices])[taken, np.arange(chains)]

        gradient = (x - m) @ H
        if sampler == "de_sgld":
            x = mix(x) - ETA * gradient + kick
        elif sampler == "de_sghmc":
            v = v - ETA * (FRICTION * v + gradient) + np.sqrt(FRICTION) * kick
            x = mix(x) + ETA * v
        elif sampler == "gradient_tracking":
            x = mix(x) - ETA * y + kick
            y = mix(y) + (x - m) @ H - gradient
        else:
            x, q = mix(x) - q - ETA * gradient + kick, q + (mix(x) + x) / 2 - mix(x)
        kept.append(x)
    return np.array(kept[warmup:])


def assert_law(law, draws, clients):
    """Moments of every agent and of the average lie within 4.5 standard errors, of 2 % for a variance at most."""
    draws = draws.swapaxes(0, 1)  # chains are independent, draws of a chain are not
    z, power = z_scores(draws, law)
    average = draws.reshape(*draws.shape[:2], clients, -1).mean(2)
    z_average, power_average = z_scores(average, exact.average(law, clients))
    assert np.abs(z).max() < 4.5
    assert np.abs(z_average).max() < 4.5
    assert max(power.max(), power_average.max()) < 0.02


CASES = [(sampler, graph) for sampler in SAMPLERS for graph in ("star", "disconnected")]
CASES += [(sampler, "directed") for sampler in ("de_sgld", "de_sghmc", "gradient_tracking")]  # EXTRA: symmetric W only


@pytest.mark.parametrize(("sampler", "graph"), CASES)
def test_law_is_that_of_the_literal_iteration(sampler, graph):
    means, precisions = heterogeneous(4, 2)
    law = SAMPLERS[sampler](means, precisions, GRAPHS[graph], ETA, temperature=0.5)
    assert_law(law, simulate(sampler, means, precisions, [[GRAPHS[graph]]], 0.5), 4)


SCHEDULES = {
    "in turn": (
        Gossip([PAIRS, OTHER_PAIRS], communication_interval=2),
        [[np.eye(4)], [PAIRS], [np.eye(4)], [OTHER_PAIRS]],
    ),
    "random": (Gossip([STAR, PAIRS], "random", communication_interval=2), [[np.eye(4)], [STAR, PAIRS]]),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_several_graphs_and_an_interval(sampler, schedule):
    means, precisions = heterogeneous(4, 2)
    gossip, cycle = SCHEDULES[schedule]
    law = SAMPLERS[sampler](means, precisions, gossip, ETA)
    assert_law(law, simulate(sampler, means, precisions, cycle), 4)


def agents(law, clients):
    return law.mean.reshape(clients, -1)


def test_one_agent_is_sgld():
    means, precisions = heterogeneous(1, 3)
    expected = exact.sgld(means, precisions, 0.3, temperature=2.0)
    for sampler in ("de_sgld", "gradient_tracking", "extra_sgld"):
        law = SAMPLERS[sampler](means, precisions, np.eye(1), 0.3, temperature=2.0)
        np.testing.assert_allclose(law.mean, means[0], rtol=1e-12)
        np.testing.assert_allclose(law.covariance, expected.covariance, rtol=1e-9, atol=1e-12)


def test_one_agent_is_sghmc():
    # x'' = (1 + beta - eta^2 h) x' - beta x + noise, beta = 1 - eta gamma: an autoregression of order 2, whose
    # variance is 1 / (h (1 - eta^2 h / (2 (1 + beta)))) along every eigenvector of the precision.
    means, precisions = heterogeneous(1, 3)
    law = exact_gossip.de_sghmc(means, precisions, np.eye(1), ETA, friction=FRICTION, temperature=2.0)
    h, basis = np.linalg.eigh(precisions[0])
    variances = 2.0 / (h * (1 - ETA**2 * h / (2 * (2 - ETA * FRICTION))))
    np.testing.assert_allclose(law.mean, means[0], rtol=1e-12)
    np.testing.assert_allclose(law.covariance, basis * variances @ basis.T, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sampler", ["de_sgld", "gradient_tracking", "extra_sgld"])
@pytest.mark.parametrize("graph", ["ring", "complete", "star"])
def test_agents_that_differ_in_their_means_alone_average_to_unadjusted_langevin(sampler, graph):
    means, precisions = heterogeneous(4, 2)
    same = np.broadcast_to(precisions[0], precisions.shape)
    law = exact.average(SAMPLERS[sampler](means, same, GRAPHS[graph], ETA), 4)
    expected = exact.sgld(means, same, ETA / 4)
    np.testing.assert_allclose(law.mean, expected.mean, rtol=1e-10)
    np.testing.assert_allclose(law.covariance, expected.covariance, rtol=1e-10, atol=1e-13)


def test_the_mean_is_the_fixed_point_of_decentralised_gradient_descent():
    means, precisions = heterogeneous(4, 2)
    pull = np.einsum("iab,ib->ia", precisions, means).ravel()
    fixed = np.linalg.solve(np.kron(np.eye(4) - RING, np.eye(2)) + ETA * block_diag(*precisions), ETA * pull)
    for law in (exact_gossip.de_sgld, exact_gossip.dgd):
        np.testing.assert_allclose(law(means, precisions, RING, ETA).mean, fixed, rtol=1e-10)
    assert not exact_gossip.dgd(means, precisions, RING, ETA).covariance.any()
    # Mixing in every third iteration, it goes round in a cycle of three points.
    x = simulate("de_sgld", means, precisions, [[np.eye(4)], [np.eye(4)], [RING]], 0.0, chains=1)[-3:, 0]
    law = exact_gossip.dgd(means, precisions, Gossip([RING], communication_interval=3), ETA)
    np.testing.assert_allclose(law.mean, x.mean(0), rtol=1e-9)
    np.testing.assert_allclose(law.covariance, np.cov(x.T, bias=True), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    ("sampler", "W"),
    [
        ("gradient_tracking", RING),
        ("gradient_tracking", DIRECTED),
        ("gradient_tracking", Gossip([PAIRS, OTHER_PAIRS])),
        ("gradient_tracking", Gossip([PAIRS, OTHER_PAIRS], "random")),
        ("extra_sgld", RING),
        ("extra_sgld", STAR),
    ],
)
def test_tracking_and_extra_are_centred_at_the_posterior_mean_and_de_sgld_is_not(sampler, W):
    means, precisions = heterogeneous(4, 2)
    target = exact.posterior(means, precisions)
    law = SAMPLERS[sampler](means, precisions, W, ETA)
    np.testing.assert_allclose(agents(law, 4), np.tile(target.mean, (4, 1)), rtol=0, atol=1e-9)
    biased = exact.average(exact_gossip.de_sgld(means, precisions, W, ETA), 4)
    assert np.abs(biased.mean - target.mean).max() > 0.01


def deviation(law, clients):
    """Root mean square deviation of an agent from the average, about its own mean."""
    off = np.kron(np.eye(clients) - 1 / clients, np.eye(len(law.mean) // clients))
    return np.sqrt(np.trace(off @ law.covariance @ off) / clients)


@pytest.mark.parametrize("graph", ["ring", "star", "complete"])
def test_agents_lie_as_far_from_the_average_as_the_graph_lets_them(graph):
    means, precisions = heterogeneous(4, 3)
    eta = 1e-6
    others = np.linalg.eigvalsh(GRAPHS[graph])[:-1]
    expected = np.sqrt(2 * eta * 3 * (1 / (1 - others**2)).sum() / 4)
    assert deviation(exact_gossip.de_sgld(means, precisions, GRAPHS[graph], eta), 4) == pytest.approx(expected, 1e-3)


def test_agents_of_de_sghmc_on_a_complete_graph_lie_a_step_from_the_average():
    # x_i - xbar = eta (v_i - vbar) then, and v is an autoregression of factor 1 - gamma eta.
    means, precisions = heterogeneous(4, 3)
    eta, friction = 1e-3, 200.0
    law = exact_gossip.de_sghmc(means, precisions, COMPLETE, eta, friction=friction)
    expected = eta * np.sqrt(2 * 3 / (2 - friction * eta)) * np.sqrt(3 / 4)
    assert deviation(law, 4) == pytest.approx(expected, 1e-3)


def test_every_component_of_a_graph_samples_its_own_product():
    means, precisions = heterogeneous(4, 2)
    for name, law_of in SAMPLERS.items():
        law = law_of(means, precisions, PAIRS, ETA)
        one = law_of(means[:2], precisions[:2], PAIRS[:2, :2], ETA)
        other = law_of(means[2:], precisions[2:], PAIRS[2:, 2:], ETA)
        np.testing.assert_allclose(law.mean, np.concatenate([one.mean, other.mean]), rtol=1e-9, err_msg=name)
        expected = block_diag(one.covariance, other.covariance)
        np.testing.assert_allclose(law.covariance, expected, rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("graph", ["ring", "star", "disconnected"])
def test_de_sgld_is_stable_up_to_one_plus_the_smallest_eigenvalue_over_the_curvature(graph):
    precisions = np.full((4, 1, 1), 2.0)
    largest = (1 + np.linalg.eigvalsh(GRAPHS[graph])[0]) / 2.0
    exact_gossip.de_sgld(np.zeros((4, 1)), precisions, GRAPHS[graph], 0.99 * largest)
    with pytest.raises(FedLangevinError, match="the recursion is unstable"):
        exact_gossip.de_sgld(np.zeros((4, 1)), precisions, GRAPHS[graph], 1.01 * largest)


def test_many_agents_on_a_ring():
    ring = (np.eye(40) + np.roll(np.eye(40), 1, 0) + np.roll(np.eye(40), -1, 0)) / 3
    means, precisions = heterogeneous(40, 2)
    tracked = exact_gossip.gradient_tracking(means, precisions, ring, 0.01)
    target = exact.posterior(means, precisions).mean
    np.testing.assert_allclose(agents(tracked, 40), np.tile(target, (40, 1)), rtol=0, atol=1e-8)


def test_a_matrix_of_another_size_is_refused():
    means, precisions = heterogeneous(4, 2)
    with pytest.raises(ValueError, match=r"W has shape \(3, 3\) for 4 agents; allowed: \(4, 4\)"):
        exact_gossip.de_sgld(means, precisions, np.eye(3), ETA)
