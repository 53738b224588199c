"""The steps of Stein variational gradient descent: against loops from the equations, and against many digits."""

import mpmath
import numba
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from fedlangevin_mpi.algorithms.dsvgd import Dsvgd
from fedlangevin_mpi.algorithms.serving import Target
from fedlangevin_mpi.algorithms.stein import (
    SteinTarget,
    accumulated,
    kde_score,
    median_bandwidth,
    squared_distances,
    stein_direction,
    stein_steps,
)
from fedlangevin_mpi.generic import OPTIONS, Everything
from fedlangevin_mpi.models.gaussian import GaussianData
from fedlangevin_mpi.runtime import compiled  # noqa: F401  (gives the words their compiled texts)


def direction_by_loops(theta, slope, h):
    """Eq. (12) with k(x, y) = exp(-|x - y|^2 / h), one pair at a time."""
    n = len(theta)
    out = np.zeros_like(theta)
    for i in range(n):
        for j in range(n):
            kernel = np.exp(-((theta[j] - theta[i]) ** 2).sum() / h)
            out[i] += kernel * slope[j] + kernel * (-2 / h) * (theta[j] - theta[i])
    return out / n


def median_by_loops(theta):
    distances = [np.linalg.norm(a - b) for i, a in enumerate(theta) for b in theta[:i]]
    return np.median(distances) ** 2 / np.log(len(theta))


@numba.njit(**OPTIONS)
def compiled_direction(theta, slope, h):
    return stein_direction(theta, slope, h)


@numba.njit(**OPTIONS)
def compiled_score(theta, points, bandwidth):
    return kde_score(theta, points, bandwidth)


DIRECTIONS = [stein_direction, compiled_direction]
SCORES = [kde_score, compiled_score]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("particles", "dim"), [(2, 1), (7, 1), (6, 4), (5, 54), (6, 1200)])
def test_direction_is_the_equation(direction, particles, dim):
    rng = np.random.default_rng(dim)
    theta, slope = 100 + rng.normal(size=(particles, dim)), rng.normal(size=(particles, dim))
    np.testing.assert_allclose(direction(theta, slope, 0.7), direction_by_loops(theta, slope, 0.7), rtol=1e-9)
    expected = direction_by_loops(theta, slope, median_by_loops(theta))
    np.testing.assert_allclose(direction(theta, slope, 0.0), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_direction_of_one_particle_is_the_gradient(direction):
    theta, slope = np.array([[3.0, -1e5]]), np.array([[0.2, 7.0]])
    np.testing.assert_array_equal(direction(theta, slope, 0.0), slope)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dim", [2, 1200])
def test_coinciding_particles_follow_the_mean_gradient(direction, dim):
    theta, slope = np.tile(np.linspace(0.3, 5, dim), (4, 1)), np.arange(4.0 * dim).reshape(4, dim)
    np.testing.assert_allclose(direction(theta, slope, 0.0), np.tile(slope.mean(0), (4, 1)), rtol=1e-12)


@pytest.mark.parametrize("spread", [0, 1e-7, 1e-3])
@pytest.mark.parametrize("dim", [3, 100_000])
def test_distances_of_close_points_have_their_digits(dim, spread):
    rng = np.random.default_rng(1)
    x = np.repeat(np.vstack([rng.normal(size=dim), np.ones(dim)]), 3, axis=0)
    x[1::3] += spread * rng.normal(size=(2, dim))
    x -= x.mean(0)
    np.testing.assert_allclose(squared_distances(x, x), cdist(x, x, "sqeuclidean"), rtol=1e-8)


def test_bandwidth_is_1_where_the_median_says_nothing():
    assert median_bandwidth(np.zeros((1, 1))) == 1
    assert median_bandwidth(np.zeros((5, 5))) == 1
    assert median_bandwidth(np.full((5, 5), np.nan)) == 1
    assert median_bandwidth(np.array([[0, 4.0], [4.0, 0]])) == pytest.approx(4 / np.log(2))


def precise_score(theta, points, bandwidth):
    """The gradient of log sum_m exp(-|theta - x_m|^2 / (2 lambda^2)) with 60 digits."""
    with mpmath.workdps(60):
        weights = []
        for point in points:
            square = sum((mpmath.mpf(a) - mpmath.mpf(b)) ** 2 for a, b in zip(theta, point, strict=True))
            weights.append(mpmath.exp(-square / (2 * mpmath.mpf(bandwidth) ** 2)))
        total = sum(weights)
        columns, pairs = range(len(theta)), list(zip(weights, points, strict=True))
        sums = [sum(w * (mpmath.mpf(p[a]) - mpmath.mpf(theta[a])) for w, p in pairs) for a in columns]
        density = total / (2 * mpmath.pi * mpmath.mpf(bandwidth) ** 2) ** (len(theta) / 2) / len(points)
        return np.array([float(s / total / mpmath.mpf(bandwidth) ** 2) for s in sums]), density


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("dim", [1, 2, 54, 1200])
def test_log_gradient_of_a_density_estimate_has_all_digits(score, dim):
    rng = np.random.default_rng(dim)
    points, theta = rng.normal(size=(20, dim)), 1.5 * rng.normal(size=(6, dim))
    expected, densities = zip(*(precise_score(one, points, 0.55) for one in theta), strict=True)
    np.testing.assert_allclose(score(theta, points, 0.55), expected, rtol=1e-10)
    if dim == 54:  # a density that is floored at 1e-10, as in public code, would have no gradient here
        assert max(densities) < 1e-10
        assert np.abs(expected).min(axis=0).max() > 1


@pytest.mark.parametrize("score", SCORES)
def test_one_kernel_pulls_with_the_inverse_square_of_its_bandwidth(score):
    np.testing.assert_allclose(score(np.array([[1e3]]), np.array([[0.0]]), 0.5), [[-4e3]], rtol=1e-14)


def precision(*diagonal):
    return GaussianData(np.zeros((1, len(diagonal))), np.diag(diagonal)[None].astype(float))


def steps_of(algorithm, theta, aim, likelihood, prior, count, kernel=stein_steps, memory=None):
    target = Target(likelihood, prior, None, None)
    steps = np.full(count, algorithm.step_size)
    return algorithm.run_kernel(kernel, theta, memory or accumulated(theta.shape), aim, target, Everything(1), steps)


def test_a_step_towards_a_ratio_of_densities_is_the_equation():
    """Kernel and slope together: b grad L, a grad U0, KDEs in the numerator and in the denominator."""
    rng = np.random.default_rng(1)
    theta, densities, powers = rng.normal(size=(5, 2)), rng.normal(size=(3, 4, 2)), np.array([1.0, 0.5, -1.0])
    algorithm = Dsvgd(name="dsvgd", step_size=0.1, global_iterations=1, optimizer="plain", kde_bandwidth=0.8)
    moved = steps_of(
        algorithm, theta, SteinTarget(0.5, 2.0, densities, powers), precision(3, 1), precision(1, 5), count=1
    )
    slope = -2.0 * theta * [3, 1] - 0.5 * theta * [1, 5]
    slope += sum(power * precise(theta, points, 0.8) for points, power in zip(densities, powers, strict=True))
    expected = theta + 0.1 * direction_by_loops(theta, slope, median_by_loops(theta))
    np.testing.assert_allclose(moved, expected, rtol=1e-10)


def precise(theta, points, bandwidth):
    return np.array([precise_score(one, points, bandwidth)[0] for one in theta])


def test_adagrad_with_momentum_is_its_equation():
    algorithm = Dsvgd(name="dsvgd", step_size=0.05, global_iterations=1, momentum=0.7, fudge=1e-3)
    theta, nothing = np.array([[1.0], [2.5]]), np.empty((0, 2, 1))
    memory = accumulated(theta.shape)
    moved = steps_of(
        algorithm, theta, SteinTarget(0.0, 1.0, nothing, np.empty(0)), precision(2), precision(0), 6, memory=memory
    )
    expected, G = theta.copy(), None
    for _ in range(6):
        phi = direction_by_loops(expected, -2 * expected, median_by_loops(expected))
        G = phi**2 if G is None else 0.7 * G + 0.3 * phi**2
        expected = expected + 0.05 * phi / (1e-3 + np.sqrt(G))
    np.testing.assert_allclose(moved, expected, rtol=1e-10)
    np.testing.assert_allclose(memory.square, G, rtol=1e-9)
    assert memory.made[0] == 6


@pytest.mark.parametrize("optimizer", ["adagrad", "plain"])
@pytest.mark.parametrize(("particles", "dim"), [(1, 1), (6, 3)])
def test_compiled_steps_are_the_interpreted_ones(optimizer, particles, dim):
    algorithm = Dsvgd(name="dsvgd", step_size=0.05, global_iterations=1, optimizer=optimizer)
    rng = np.random.default_rng(0)
    theta, densities = rng.normal(size=(particles, dim)), rng.normal(size=(2, particles, dim))
    aim = SteinTarget(1.0, 0.5, densities, np.array([1.0, -0.7]))
    both = [
        steps_of(algorithm, theta, aim, precision(*range(1, dim + 1)), precision(*[2] * dim), 8, kernel)
        for kernel in (stein_steps, _COMPILED)
    ]
    np.testing.assert_allclose(both[0], both[1], rtol=1e-10)


_COMPILED = numba.njit(**OPTIONS)(stein_steps)
