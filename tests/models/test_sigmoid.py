"""The compiled logistic function against SciPy's, over the whole range."""

import numba
import numpy as np
import pytest
from scipy.special import expit

from fedlangevin_mpi.models.sigmoid import sigmoid
from fedlangevin_mpi.runtime.compiled import OPTIONS

EPS = np.finfo(np.float64).eps


@numba.njit(**OPTIONS)
def compiled(z):
    out = np.empty(z.shape)
    for i in range(len(z)):
        out[i] = sigmoid(z[i])
    return out


@pytest.mark.parametrize("span", [1e-3, 1.0, 5.0, 40.0, 690.0])
def test_is_that_of_scipy(span):
    z = np.random.default_rng(0).uniform(-span, span, 100_000)
    expected = expit(z)
    error = abs(compiled(z) - expected) / expected
    assert (error <= EPS * (4 + abs(z) / 2)).all()  # a rounded z alone would make |z| / 2


def test_borders_between_powers_of_two_are_no_steps():
    border = (np.arange(-60, 60) + 0.5) * np.log(2)
    z = (border[:, None] + np.linspace(-1e-14, 1e-14, 41)).ravel()
    np.testing.assert_allclose(compiled(z), expit(z), rtol=2e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extremes_and_nan(dtype):
    z = np.array([-np.inf, -1e30, -800, -750, 750, 800, 1e30, np.inf, 0.0, -0.0, np.nan] * 3, dtype)
    np.testing.assert_allclose(compiled(z), expit(z.astype(np.float64)), rtol=1e-15, atol=1e-300)


def test_a_nan_stays_among_its_neighbours():
    z = np.linspace(-3, 3, 64)
    z[[5, 40]] = np.nan
    found = compiled(z)
    assert np.flatnonzero(np.isnan(found)).tolist() == [5, 40]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_takes_numbers_of_both_precisions(dtype):
    z = np.linspace(-20, 20, 999).astype(dtype)
    np.testing.assert_allclose(compiled(z), expit(z.astype(np.float64)), rtol=1e-14)
