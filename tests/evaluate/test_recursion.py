"""The exact laws of linear random recursions, against closed forms."""

import numpy as np
import pytest

from fedlangevin_mpi.errors import FedLangevinError
from fedlangevin_mpi.evaluate import recursion
from fedlangevin_mpi.evaluate.recursion import Branch, advance, cycle, lifted, restricted, stationary


def scalar(probability, a, c, variance):
    return Branch(probability, np.array([[a]]), np.array([c]), np.array([[variance]]))


def random_branches(n, probabilities, seed=1):
    rng = np.random.default_rng(seed)
    branches = []
    for p in probabilities:
        a, root = rng.normal(size=(2, n, n))
        branches.append(Branch(p, 0.7 * a / np.sqrt(n), rng.normal(size=n), root @ root.T))
    return branches


def test_autoregression_has_its_closed_form():
    law = stationary([scalar(1.0, 0.8, 0.5, 0.3)])
    assert law.mean[0] == pytest.approx(0.5 / 0.2)
    assert law.covariance[0, 0] == pytest.approx(0.3 / (1 - 0.64))


def test_two_scalar_branches_have_their_closed_form():
    law = stationary([scalar(0.3, 0.9, 1.0, 0.2), scalar(0.7, -0.5, -2.0, 0.1)])
    mean = (0.3 * 1.0 - 0.7 * 2.0) / (1 - (0.3 * 0.9 - 0.7 * 0.5))
    raw = 0.3 * (2 * 0.9 * mean + 1 + 0.2) + 0.7 * (2 * 0.5 * 2 * mean + 4 + 0.1)  # sum_r q_r (2 a c m + c^2 + Q)
    raw /= 1 - (0.3 * 0.81 + 0.7 * 0.25)
    assert law.mean[0] == pytest.approx(mean)
    assert law.covariance[0, 0] == pytest.approx(raw - mean**2)


def halves(branch):
    """The same recursion as two branches: solved as the laws of several branches are."""
    return [branch._replace(probability=branch.probability / 2)] * 2


@pytest.mark.parametrize("n", [4, 50], ids=["direct", "krylov"])
@pytest.mark.parametrize("probabilities", [[1.0], [0.2, 0.3, 0.5]], ids=["one branch", "three"])
def test_one_more_iteration_leaves_the_law_as_it_is(n, probabilities):
    branches = random_branches(n, probabilities)
    law = stationary(branches)
    after = advance(law, branches)
    np.testing.assert_allclose(after.mean, law.mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(after.covariance, law.covariance, rtol=0, atol=1e-8 * np.abs(law.covariance).max())
    assert np.linalg.eigvalsh(law.covariance)[0] > 0


@pytest.mark.parametrize("n", [9, 90], ids=["direct", "krylov"])
def test_one_branch_and_its_two_halves_have_the_same_law(n):
    phases = [random_branches(n, [1.0], seed) for seed in (1, 2)]
    for one, two in zip(cycle(phases), cycle([halves(branch) for (branch,) in phases]), strict=True):
        np.testing.assert_allclose(one.mean, two.mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(one.covariance, two.covariance, rtol=0, atol=1e-8 * np.abs(two.covariance).max())


def test_a_conserved_quantity_is_left_out_of_the_state():
    # (s1 + s2) / sqrt 2 never changes; (s1 - s2) / sqrt 2 is an autoregression of factor 0.8 and variance 2 * 0.3.
    transition = np.array([[0.9, 0.1], [0.1, 0.9]])
    branch = Branch(1.0, transition, np.array([0.1, -0.1]), 0.3 * np.array([[1.0, -1.0], [-1.0, 1.0]]))
    basis = np.array([[1.0], [-1.0]]) / np.sqrt(2)
    law = lifted(stationary([restricted(branch, basis)]), basis)
    np.testing.assert_allclose(law.mean, [0.5, -0.5])
    np.testing.assert_allclose(law.covariance, 0.3 / (1 - 0.64) * np.array([[1, -1], [-1, 1]]))
    with pytest.raises(FedLangevinError, match="spectral radius of about 1;"):
        stationary([branch])


def test_direct_and_iterative_solution_agree(monkeypatch):
    phases = [random_branches(9, [0.4, 0.6], seed) for seed in (1, 2, 3)]
    direct = cycle(phases)
    monkeypatch.setattr(recursion, "DIRECT_LIMIT", 0)
    for slow in (None, np.eye(9)[:, :2]):
        for one, other in zip(cycle(phases, slow), direct, strict=True):
            np.testing.assert_allclose(one.mean, other.mean, rtol=1e-9)
            np.testing.assert_allclose(one.covariance, other.covariance, rtol=0, atol=1e-8)


def test_slow_directions_make_the_iterative_solution_converge(monkeypatch):
    monkeypatch.setattr(recursion, "DIRECT_LIMIT", 0)
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    rates = np.concatenate([1 - 1e-6 * rng.uniform(1, 100, 15), rng.uniform(-0.5, 0.5, 15)])
    branch = Branch(1.0, (basis * rates) @ basis.T, np.zeros(30), np.eye(30))
    law = stationary(halves(branch), slow=basis[:, :15])
    np.testing.assert_allclose(np.diag(basis.T @ law.covariance @ basis), 1 / (1 - rates**2), rtol=1e-6)


def test_laws_of_a_cycle_follow_one_another():
    phases = [[scalar(1.0, 0.5, 1.0, 0.1)], [scalar(1.0, 1.2, 0.0, 0.4)]]
    first, second = cycle(phases)
    # s -> 0.5 s + 1 -> 1.2 (0.5 s + 1): factor 0.6, shift 1.2, noise 1.44 * 0.1 + 0.4 over the cycle
    assert second.mean[0] == pytest.approx(1.2 / 0.4)
    assert second.covariance[0, 0] == pytest.approx((0.144 + 0.4) / (1 - 0.36))
    assert first.mean[0] == pytest.approx(0.5 * 3 + 1)
    assert first.covariance[0, 0] == pytest.approx(0.25 * second.covariance[0, 0] + 0.1)


def test_a_mean_that_settles_and_a_variance_that_does_not_is_unstable():
    branches = [scalar(0.5, 0.0, 0.0, 1.0), scalar(0.5, 1.5, 0.0, 1.0)]  # E a = 0.75, E a^2 = 1.125
    with pytest.raises(FedLangevinError, match=r"unstable: .* spectral radius of about 1\.125; allowed: below 1"):
        stationary(branches)


@pytest.mark.parametrize("n", [3, 50], ids=["direct", "krylov"])
@pytest.mark.parametrize("factor", [1.0, -1.0, 1.01, 30.0])
def test_unstable_recursion_is_refused_without_noise_too(n, factor):
    branch = Branch(1.0, np.diag([factor] + [0.5] * (n - 1)), np.zeros(n), np.zeros((n, n)))
    for branches in ([branch], halves(branch)):
        with pytest.raises(FedLangevinError, match=f"spectral radius of about {factor**2:.6g};"):
            stationary(branches)


def test_probabilities_must_sum_to_one():
    with pytest.raises(ValueError, match=r"probabilities \[0.5, 0.4\]"):
        stationary([scalar(0.5, 0.1, 0.0, 1.0), scalar(0.4, 0.1, 0.0, 1.0)])
