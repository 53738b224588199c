"""Kernel density estimates, against sums of normal densities."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from fedlangevin_mpi.evaluate.density import log_kde

RNG = np.random.default_rng(0)
POINTS, PARTICLES = 3 * RNG.normal(size=(9, 2)), RNG.normal(size=(20, 2)) @ [[1.0, 0.5], [0.0, 0.3]]


def mixture(covariance):
    terms = [stats.multivariate_normal(particle, covariance).logpdf(POINTS) for particle in PARTICLES]
    return logsumexp(terms, axis=0) - np.log(len(PARTICLES))


@pytest.mark.parametrize("bandwidth", [0.55, 1e-3])  # the second underflows but for logarithms
def test_a_number_is_the_standard_deviation_of_the_kernels(bandwidth):
    np.testing.assert_allclose(log_kde(POINTS, PARTICLES, bandwidth), mixture(bandwidth**2 * np.eye(2)), rtol=1e-10)


@pytest.mark.parametrize(("rule", "factor"), [("scott", 20 ** (-1 / 6)), ("silverman", (20 * 4 / 4) ** (-1 / 6))])
def test_rules_scale_the_particles_covariance(rule, factor):
    expected = mixture(np.cov(PARTICLES.T) * factor**2)
    np.testing.assert_allclose(log_kde(POINTS, PARTICLES, rule), expected, rtol=1e-10)


def test_coinciding_particles_need_a_number():
    same = np.ones((5, 2))
    with pytest.raises(ValueError, match="5 particles span less than 2 dimensions; allowed for them: a number"):
        log_kde(POINTS, same)
    np.testing.assert_allclose(log_kde(np.ones((1, 2)), same, 0.5), np.log(1 / (2 * np.pi * 0.25)))


@pytest.mark.parametrize(("points", "bandwidth"), [(POINTS[:, :1], 1.0), (POINTS, 0.0), (POINTS, -1.0)])
def test_what_does_not_fit_is_refused(points, bandwidth):
    with pytest.raises(ValueError, match="allowed"):
        log_kde(points, PARTICLES, bandwidth)
