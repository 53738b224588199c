"""Exact laws of the samplers, against closed forms and literal simulations."""

from itertools import combinations

import numpy as np
import pytest

from fedlangevin_mpi.errors import FedLangevinError
from fedlangevin_mpi.evaluate import exact
from fedlangevin_mpi.evaluate.recursion import Branch, stationary


def potentials(clients=3, d=2, seed=5):
    """Clients with far-apart means and different, non-diagonal precisions of eigenvalues 0.5 to 4."""
    rng = np.random.default_rng(seed)
    bases = np.linalg.qr(rng.normal(size=(clients, d, d)))[0]
    precisions = bases * rng.uniform(0.5, 4, size=(clients, 1, d)) @ bases.swapaxes(1, 2)
    return 2 * rng.normal(size=(clients, d)), precisions


def simulate(means, precisions, step, *, due, tau, refresh=None, participants=None, temperature=1.0, phases=1):
    """Run the literal iteration for 10,000 chains with coins of their own; return the last `phases` states."""
    clients, d = means.shape
    chains, iterations = 10_000, 84
    rng = np.random.default_rng(2)
    x = np.zeros((chains, clients, d))
    reference = x.mean(1)
    size = participants or clients
    kept = []
    for k in range(iterations):
        gradient = np.einsum("iab,cib->cia", precisions, x - means)
        if refresh is not None:
            at_reference = np.einsum("iab,cib->cia", precisions, reference[:, None] - means)
            gradient = gradient - at_reference + at_reference.mean(1, keepdims=True)
            renewed = rng.random(chains) < refresh
            reference = np.where(renewed[:, None], x.mean(1), reference)
        common, private = rng.normal(size=(chains, 1, d)), rng.normal(size=(chains, clients, d))
        noise = np.sqrt(tau / clients) * common + np.sqrt((1 - tau) * size / clients) * private
        x = x - step * gradient + np.sqrt(2 * step * temperature) * noise
        takes = np.full(chains, (k + 1) % due == 0) if isinstance(due, int) else rng.random(chains) < due
        chosen = rng.random((chains, clients)).argsort(1) < size  # exactly `size` clients, every subset alike
        mean = (x * chosen[:, :, None]).sum(1, keepdims=True) / size
        x = np.where(takes[:, None, None], mean, x)
        if k >= iterations - phases:
            kept.append(x.reshape(chains, -1))
    return kept


def assert_law(law, kept):
    """Sample moments lie within 4.5 standard errors (those of independent Gaussian draws) of the exact ones."""
    states, chains = np.concatenate(kept), len(kept[0])
    variance = np.diag(law.covariance)
    off_mean = (states.mean(0) - law.mean) / np.sqrt(variance / chains)
    error = np.sqrt((np.outer(variance, variance) + law.covariance**2) / chains)
    off_covariance = (np.cov(states.T) - law.covariance) / error
    assert np.abs(off_mean).max() < 4.5
    assert np.abs(off_covariance).max() < 4.5


CASES = {
    "fald": ("fald", {"communication_probability": 0.3, "noise_correlation": 0.5}),
    "fald, interval": ("fald", {"communication_interval": 4}),
    "fald, participants": ("fald", {"communication_probability": 0.5, "participants": 2, "noise_correlation": 0.4}),
    "fald, participants, interval": ("fald", {"communication_interval": 3, "participants": 1, "temperature": 0.5}),
    "vr_fald": ("vr_fald", {"communication_probability": 0.3, "reference_probability": 0.4, "noise_correlation": 0.5}),
    "vr_fald, interval": ("vr_fald", {"communication_interval": 4, "reference_probability": 0.2}),
    "vr_fald, hot": ("vr_fald", {"communication_probability": 0.2, "reference_probability": 1.0, "temperature": 3.0}),
}


@pytest.mark.parametrize("name", CASES)
def test_law_is_that_of_the_literal_iteration(name):
    algorithm, options = CASES[name]
    means, precisions = potentials()
    law = getattr(exact, algorithm)(means, precisions, 0.2, **options)
    interval = options.get("communication_interval")
    kept = simulate(
        means,
        precisions,
        0.2,
        due=interval or options["communication_probability"],
        tau=options.get("noise_correlation", 0.0),
        refresh=options.get("reference_probability"),
        participants=options.get("participants"),
        temperature=options.get("temperature", 1.0),
        phases=interval or 1,
    )
    assert_law(law, kept)


@pytest.mark.parametrize("tau", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("reference_probability", [None, 0.1, 1.0])
def test_averaging_in_every_iteration_is_unadjusted_langevin(tau, reference_probability):
    means, precisions = potentials(d=3)
    step, clients = 0.3, len(means)
    options = {"noise_correlation": tau, "temperature": 1.7}
    if reference_probability is None:
        law = exact.fald(means, precisions, step, **options)
    else:
        law = exact.vr_fald(means, precisions, step, reference_probability=reference_probability, **options)
    average = exact.average(law, clients)
    total = precisions.sum(0)
    expected = 1.7 * np.linalg.inv(total @ (np.eye(3) - step / clients / 2 * total))
    np.testing.assert_allclose(average.covariance, expected, rtol=0, atol=1e-12)
    target = np.linalg.solve(total, np.einsum("iab,ib->a", precisions, means))
    np.testing.assert_allclose(average.mean, target, rtol=1e-10)
    for client in range(clients):  # all are the average
        np.testing.assert_allclose(law.mean[3 * client : 3 * client + 3], target, rtol=1e-10)


def test_interval_one_and_probability_one_are_the_same():
    means, precisions = potentials()
    one, other = (
        exact.fald(means, precisions, 0.2, communication_probability=1.0, noise_correlation=0.3),
        exact.fald(means, precisions, 0.2, communication_interval=1, noise_correlation=0.3),
    )
    np.testing.assert_allclose(one.covariance, other.covariance, rtol=0, atol=1e-14)


def test_many_clients_at_probability_one_are_unadjusted_langevin():
    means, precisions = potentials(clients=25, d=4)  # 104 dimensions: solved iteratively
    law = exact.average(exact.vr_fald(means, precisions, 0.01, reference_probability=0.05), 25)
    expected = exact.sgld(means, precisions, 0.01 / 25)
    np.testing.assert_allclose(law.covariance, expected.covariance, rtol=0, atol=1e-8 * expected.covariance.max())
    np.testing.assert_allclose(law.mean, expected.mean, rtol=1e-8)


def test_vr_fald_is_centred_at_the_posterior_mean_and_fald_is_not():
    means, precisions = potentials()
    target = exact.posterior(means, precisions)
    unbiased = exact.vr_fald(means, precisions, 0.1, communication_probability=0.2, reference_probability=0.1)
    np.testing.assert_allclose(unbiased.mean, np.tile(target.mean, 3), rtol=1e-10)
    biased = exact.average(exact.fald(means, precisions, 0.1, communication_probability=0.2), 3)
    assert np.abs(biased.mean - target.mean).max() > 0.1 * np.sqrt(np.diag(target.covariance)).max()
    # Clients that differ in their means alone are not biased.
    same = np.broadcast_to(precisions[0], precisions.shape)
    law = exact.average(exact.fald(means, same, 0.1, communication_probability=0.2), 3)
    np.testing.assert_allclose(law.mean, means.mean(0), rtol=1e-10)


def test_the_common_noise_of_the_misprint_would_sample_a_tempered_posterior():
    means, precisions = potentials()
    target = exact.posterior(means, precisions).covariance
    right = exact.average(exact.fald(means, precisions, 1e-4, noise_correlation=1.0), 3)
    # sqrt(tau) in place of sqrt(tau / b): the law of temperature b, pi^(1/b)
    misprint = exact.average(exact.fald(means, precisions, 1e-4, noise_correlation=1.0, temperature=3.0), 3)
    np.testing.assert_allclose(right.covariance, target, rtol=1e-3)
    np.testing.assert_allclose(misprint.covariance, 3 * target, rtol=1e-3)


def test_fald_errs_in_proportion_to_the_step():
    means, precisions = potentials()
    target = exact.posterior(means, precisions)
    errors = []
    for step in (2e-3, 1e-3):
        law = exact.average(exact.fald(means, precisions, step, communication_probability=0.2), 3)
        errors.append([np.linalg.norm(law.covariance - target.covariance), np.linalg.norm(law.mean - target.mean)])
    np.testing.assert_allclose(np.divide(*errors), 2, rtol=0.02)


def test_vr_fald_has_the_matrices_of_its_equations():
    clients, d, step, p, q = 3, 2, 0.4, 0.3, 0.4
    means, precisions = potentials(clients, d)
    law = exact.vr_fald(means, precisions, step, communication_probability=p, reference_probability=q)
    size = clients * d
    mean = np.kron(np.ones((1, clients)) / clients, np.eye(d))
    common = precisions.mean(0)  # grad U_i(x_i) - grad U_i(Y) + C = H_i x_i + (Hbar - H_i) Y - mean_j H_j m_j
    local = np.zeros((size, size + d))
    for i in range(clients):
        block = slice(d * i, d * i + d)
        local[block, block] = np.eye(d) - step * precisions[i]
        local[block, size:] = -step * (common - precisions[i])
    shift = np.tile(step * np.einsum("iab,ib->a", precisions, means) / clients, clients)
    keep, renew = np.hstack([np.zeros((d, size)), np.eye(d)]), np.hstack([mean, np.zeros((d, d))])
    branches = []
    for of_average, mixing in ((1 - p, np.eye(size)), (p, np.tile(mean, (clients, 1)))):
        for of_reference, rows in ((1 - q, keep), (q, renew)):
            noise = np.zeros((size + d, size + d))
            noise[:size, :size] = 2 * step * mixing @ mixing.T
            transition = np.vstack([mixing @ local, rows])
            branches.append(
                Branch(of_average * of_reference, transition, np.append(mixing @ shift, np.zeros(d)), noise)
            )
    expected = stationary(branches)
    np.testing.assert_allclose(law.mean, expected.mean[:size], rtol=1e-10)
    np.testing.assert_allclose(law.covariance, expected.covariance[:size, :size], rtol=0, atol=1e-12)


def test_partial_participation_is_the_mean_over_all_subsets():
    clients, d, size, step = 4, 2, 2, 0.2
    means, precisions = potentials(clients)
    law = exact.fald(means, precisions, step, communication_probability=0.4, participants=size, noise_correlation=0.3)
    local, shift = np.eye(clients * d), np.zeros(clients * d)
    for i in range(clients):
        block = slice(d * i, d * i + d)
        local[block, block] -= step * precisions[i]
        shift[block] = step * precisions[i] @ means[i]
    noise = 2 * step * (0.3 / clients * np.ones((clients, clients)) + 0.7 * size / clients * np.eye(clients))
    branches = [Branch(0.6, local, shift, np.kron(noise, np.eye(d)))]
    for subset in combinations(range(clients), size):
        mixing = np.zeros((clients, clients))
        mixing[:, subset] = 1 / size
        average = np.kron(mixing, np.eye(d))
        branches.append(
            Branch(0.4 / 6, average @ local, average @ shift, np.kron(mixing @ noise @ mixing.T, np.eye(d)))
        )
    enumerated = stationary(branches)
    np.testing.assert_allclose(law.mean, enumerated.mean, rtol=1e-10)
    np.testing.assert_allclose(law.covariance, enumerated.covariance, rtol=0, atol=1e-12)


def test_all_participants_are_full_participation():
    means, precisions = potentials()
    one, other = (exact.fald(means, precisions, 0.2, communication_probability=0.4, participants=s) for s in (3, None))
    np.testing.assert_array_equal(one.covariance, other.covariance)


def test_one_client_is_sgld():
    means, precisions = potentials(clients=1, d=3)
    expected = exact.sgld(means, precisions, 0.3, temperature=2.0)
    law = exact.fald(means, precisions, 0.3, communication_probability=0.1, temperature=2.0)
    np.testing.assert_allclose(law.mean, means[0], rtol=1e-12)
    np.testing.assert_allclose(law.covariance, expected.covariance, rtol=1e-10, atol=1e-14)
    closed_form = 2 * np.linalg.inv(precisions[0] @ (np.eye(3) - 0.15 * precisions[0]))
    np.testing.assert_allclose(expected.covariance, closed_form, rtol=1e-10, atol=1e-14)


def test_average_of_a_law():
    covariance = np.arange(16.0).reshape(4, 4)
    law = exact.average(exact.Law(np.array([1.0, 2.0, 3.0, 6.0]), covariance + covariance.T), 2)
    np.testing.assert_array_equal(law.mean, [2, 4])
    np.testing.assert_array_equal(law.covariance, [[10, 15], [15, 20]])


def test_posterior_is_the_precision_weighted_product():
    law = exact.posterior(np.array([[0.0], [4.0]]), np.array([[[1.0]], [[3.0]]]), temperature=2.0)
    assert law.mean[0] == 3
    assert law.covariance[0, 0] == 0.5


@pytest.mark.parametrize("algorithm", ["fald", "vr_fald"])
def test_too_large_a_step_is_refused_with_its_radius(algorithm):
    options = {} if algorithm == "fald" else {"reference_probability": 0.5}
    means, precisions = np.zeros((2, 1)), np.ones((2, 1, 1))
    with pytest.raises(FedLangevinError, match=r"unstable: .* about 1\.44; allowed: below 1"):
        getattr(exact, algorithm)(means, precisions, 2.2, **options)


def test_sgld_names_the_largest_stable_step():
    with pytest.raises(FedLangevinError, match=r"step_size 1 is unstable; allowed: below 0\.5"):
        exact.sgld(np.zeros((2, 1)), np.array([[[1.0]], [[3.0]]]), 1.0)


def test_arguments_that_do_not_fit_are_refused():
    means, precisions = potentials()
    with pytest.raises(ValueError, match=r"means have shape \(3, 2\) and precisions \(2, 2, 2\)"):
        exact.posterior(means, precisions[:2])
    with pytest.raises(ValueError, match="participants is 4; allowed: 1 to 3"):
        exact.fald(means, precisions, 0.1, participants=4)
    with pytest.raises(ValueError, match="both given"):
        exact.fald(means, precisions, 0.1, communication_probability=0.5, communication_interval=2)
