"""Distances between laws, against closed forms."""

import re

import numpy as np
import pytest
from scipy import stats

from fedlangevin_mpi.evaluate.distances import (
    empirical_w2,
    gaussian_w2,
    grid,
    grid_kl,
    hpd_relative_error,
    hpd_threshold,
    sliced_w2,
)
from fedlangevin_mpi.evaluate.recursion import Law


def test_commuting_gaussians_are_as_far_apart_as_their_means_and_standard_deviations():
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    one, other = (
        Law(np.array(mean), basis * np.square(sd) @ basis.T)
        for mean, sd in (([0.0, 1.0, 2.0], [1.0, 2.0, 3.0]), ([1.0, 1.0, 4.0], [2.0, 2.0, 0.5]))
    )
    assert gaussian_w2(one, other) == pytest.approx(np.sqrt(1 + 4 + 1 + 6.25))


def test_the_optimal_map_between_gaussians_moves_as_much_as_their_distance():
    # T(x) = S x with S positive definite is the gradient of a convex function: it is the optimal map from N(0, C).
    rng = np.random.default_rng(1)
    roots = rng.normal(size=(2, 3, 3))
    covariance, transport = roots @ roots.swapaxes(1, 2) + 0.1 * np.eye(3)
    one = Law(np.zeros(3), covariance)
    moved = Law(np.zeros(3), transport @ covariance @ transport)
    off = transport - np.eye(3)
    expected = np.sqrt(np.trace(off @ covariance @ off))
    assert gaussian_w2(one, moved) == pytest.approx(expected)
    assert gaussian_w2(moved, one) == pytest.approx(expected)


def test_a_law_is_at_no_distance_from_itself_and_a_point_at_its_standard_deviation():
    law = Law(np.array([1.0, 2.0]), np.array([[2.0, 0.5], [0.5, 1.0]]))
    assert gaussian_w2(law, law) < 1e-7
    assert gaussian_w2(law, Law(law.mean, np.zeros((2, 2)))) == pytest.approx(np.sqrt(3))


RNG = np.random.default_rng(5)
CLOUD = RNG.normal(size=(60, 3)) * [1.0, 2.0, 0.5]
SHIFT = np.array([1.0, -2.0, 0.5])


def test_a_shifted_sample_is_as_far_as_the_shift():
    shuffled = RNG.permutation(CLOUD + SHIFT)
    assert empirical_w2(CLOUD, shuffled) == pytest.approx(np.sqrt(5.25))
    assert sliced_w2(CLOUD, shuffled, projections=20_000) == pytest.approx(np.sqrt(5.25 / 3), rel=0.02)
    assert empirical_w2(CLOUD, RNG.permutation(CLOUD)) < 1e-7


def test_a_sample_is_as_far_from_a_point_as_its_points_are():
    expected = np.sqrt(np.square(CLOUD - SHIFT).sum(1).mean())
    assert empirical_w2(CLOUD, SHIFT[None]) == pytest.approx(expected)
    assert empirical_w2(CLOUD, np.repeat(SHIFT[None], 7, 0)) == pytest.approx(expected)


def test_on_a_line_sorted_points_are_matched():
    one, other = RNG.normal(size=(50, 1)), 3 * RNG.normal(size=(50, 1)) + 1
    expected = np.sqrt(np.square(np.sort(one, 0) - np.sort(other, 0)).mean())
    assert empirical_w2(one, other) == pytest.approx(expected)
    assert sliced_w2(one, other) == pytest.approx(expected)


def test_samples_of_gaussians_approach_their_laws_distance():
    one = RNG.normal(size=(1500, 1))
    other = 2 * RNG.normal(size=(1200, 1)) + 3
    exact = gaussian_w2(Law(np.zeros(1), np.eye(1)), Law(np.full(1, 3.0), 4 * np.eye(1)))
    assert exact == pytest.approx(np.sqrt(10))
    assert empirical_w2(one, other) == pytest.approx(exact, rel=0.05)


def test_samples_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=re.escape("(60, 3) and (5, 2); allowed: (n, d) and (m, d)")):
        empirical_w2(CLOUD, np.ones((5, 2)))
    with pytest.raises(ValueError, match="allowed"):
        sliced_w2(CLOUD, np.ones((0, 3)))


@pytest.mark.parametrize("dim", [1, 2])
def test_kl_on_a_grid_is_that_of_gaussians(dim):
    points = grid(-12, 12, 241, dim)
    mean, scale = 0.7, 1.5
    log_p = stats.norm.logpdf(points).sum(1) + 3.0  # constants do not matter
    log_q = stats.norm.logpdf(points, mean, scale).sum(1)
    exact = dim * (np.log(scale) + (1 + mean**2) / (2 * scale**2) - 1 / 2)
    assert grid_kl(log_p, log_q) == pytest.approx(exact, rel=1e-6)
    back = dim * (-np.log(scale) + (scale**2 + mean**2) / 2 - 1 / 2)
    assert grid_kl(log_q, log_p) == pytest.approx(back, rel=1e-6)


def test_kl_of_bounded_densities():
    points = grid(0, 1, 1001, 1)[:, 0]
    half = np.where(points < 0.5, 0.0, -np.inf)
    assert grid_kl(half, np.zeros(1001)) == pytest.approx(np.log(2), abs=0.003)
    assert grid_kl(np.zeros(1001), half) == np.inf
    with pytest.raises(ValueError, match="0 at every point"):
        grid_kl(np.full(3, -np.inf), np.zeros(3))


def test_hpd_regions_of_gaussians_end_at_chi_square_quantiles():
    x = RNG.normal(size=(200_000, 4))
    potentials = np.square(x).sum(1) / 2
    assert hpd_threshold(potentials, 0.9) == pytest.approx(stats.chi2.ppf(0.9, 4) / 2, rel=0.01)
    wider = np.square(1.2 * x).sum(1) / 2  # the same U at draws that are 1.2 times too wide
    assert hpd_relative_error(wider, potentials, 0.9) == pytest.approx(1.2**2 - 1)
    with pytest.raises(ValueError, match=re.escape("probability 1.0 of 200000 draws; allowed: in (0, 1)")):
        hpd_threshold(potentials, 1.0)
