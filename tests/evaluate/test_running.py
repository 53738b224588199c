"""Sums over positions: exact at any scale, by owner and back."""

import numpy as np
import pytest
from scipy.stats import norm

from fedlangevin_mpi.evaluate.predictive import Predictive, regression_metrics
from fedlangevin_mpi.evaluate.running import Running, averaged, padded, unpadded

RNG = np.random.default_rng(1)


def linear(y, scale):
    """A regression whose positions are predictive means of all rows, at a known noise scale a position."""
    return Predictive(lambda positions, x: positions @ x.T, np.eye(len(y)), y, scale)


def added(running, positions, pieces=4):
    for part in np.array_split(positions, pieces):
        running.add(part)
    return averaged(padded(running, [0, positions.shape[1]], positions.shape[1]), 7)


def test_densities_far_in_the_tails_are_added_as_logarithms():
    y = np.array([100.0, -3000.0])
    positions = RNG.normal(size=(9, 2))
    found = added(Running(linear(y, lambda p: np.full((len(p), 1), 0.5))), positions)
    logs = norm.logpdf(y, positions, 0.5)
    largest = logs.max(0)
    expected = largest + np.log(np.exp(logs - largest).mean(0))
    assert expected.max() < -1e4  # exp of it is 0
    np.testing.assert_allclose(found.mixture.log_density, expected, rtol=1e-12)
    assert found.metrics(y) == pytest.approx(regression_metrics(positions, y, 0.5), rel=1e-12)


def test_a_variance_small_beside_the_mean_keeps_its_digits():
    positions = 1e9 + RNG.normal(size=(50, 3))
    noise = np.linspace(0.1, 0.2, 50)[:, None]
    seen = iter(np.array_split(noise, 7))
    found = added(Running(linear(np.zeros(3), lambda p: next(seen))), positions, 7)
    np.testing.assert_allclose(found.mixture.variance, positions.var(0) + np.square(noise).mean(), rtol=1e-6)
    np.testing.assert_allclose(found.mixture.mean, positions.mean(0), rtol=1e-15)


def test_owners_of_unequal_rows_come_back_in_order():
    running = Running(Predictive(lambda p, x: np.tile(x, (len(p), 1, 1)), RNG.random((6, 2)), np.zeros(6), classes=2))
    running.add(np.zeros((3, 1)))
    arrays = padded(running, [0, 1, 1, 6], 5)
    assert arrays["total"].shape == (3, 5, 2)
    positions, sums = unpadded(arrays)
    assert positions == 3
    np.testing.assert_array_equal(sums["total"], running.arrays["total"])
    np.testing.assert_allclose(averaged(arrays, 0).probabilities, running._predictive.x, rtol=1e-15)


def test_nothing_added_is_nothing_known():
    running = Running(linear(np.zeros(2), lambda p: np.ones((len(p), 1))))
    assert averaged(padded(running, [0, 2], 2), 0) is None
