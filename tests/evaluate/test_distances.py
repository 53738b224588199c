"""Distances between laws, against closed forms."""

import numpy as np
import pytest

from fedlangevin_mpi.evaluate.distances import gaussian_w2
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
