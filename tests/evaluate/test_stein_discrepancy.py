"""Kernel Stein discrepancies of Gaussian samples from a Gaussian target, against their exact values.

With target N(0, I) and X ~ N(m, I), s_p - s_q is -m everywhere, so that KSD^2 = |m|^2 E k(X, Y) with X - Y ~ N(0, 2 I).
"""

import numpy as np
import pytest
from scipy import integrate, stats

from fedlangevin_mpi.evaluate import stein_discrepancy
from fedlangevin_mpi.evaluate.stein_discrepancy import SteinKernel, median_scale, squared_stein_discrepancy

MEAN = np.array([0.8, -0.3, 0.5])


def exact(kernel):
    if kernel.name == "rbf":
        mean = (1 + 4 / kernel.scale**2) ** -1.5
    else:
        mean = integrate.quad(lambda z: (kernel.scale**2 + 2 * z) ** -0.5 * stats.chi2.pdf(z, 3), 0, np.inf)[0]
    return MEAN @ MEAN * mean


def literal(x, scores, kernel):
    """Return u of all pairs by numerical derivatives of the kernel."""
    step = 1e-4 * np.eye(x.shape[1])

    def k(a, b):
        square = np.square(a - b).sum()
        return np.exp(-square / kernel.scale**2) if kernel.name == "rbf" else (kernel.scale**2 + square) ** -0.5

    def u(i, j):
        a, b = x[i], x[j]
        along_a = np.array([k(a + h, b) - k(a - h, b) for h in step]) / 2e-4
        along_b = np.array([k(a, b + h) - k(a, b - h) for h in step]) / 2e-4
        mixed = sum(k(a + h, b + h) - k(a + h, b - h) - k(a - h, b + h) + k(a - h, b - h) for h in step) / 4e-8
        return scores[i] @ scores[j] * k(a, b) + scores[i] @ along_b + scores[j] @ along_a + mixed

    return np.array([[u(i, j) for j in range(len(x))] for i in range(len(x))])


@pytest.mark.parametrize("kernel", [SteinKernel("imq", 1.0), SteinKernel("rbf", 1.5), SteinKernel("imq", 0.7)])
def test_it_is_the_mean_of_the_stein_kernel(kernel, monkeypatch):
    monkeypatch.setattr(stein_discrepancy, "_BLOCK", 20)  # several blocks of rows
    rng = np.random.default_rng(0)
    x, scores = rng.normal(size=(7, 2)) + 5, rng.normal(size=(7, 2))
    u = literal(x, scores, kernel)
    assert squared_stein_discrepancy(x, scores, kernel) == pytest.approx(max(u.mean(), 0), abs=1e-6)
    off = u.sum() - np.trace(u)
    assert squared_stein_discrepancy(x, scores, kernel, "u") == pytest.approx(off / 42, abs=1e-6)


@pytest.mark.parametrize("kernel", [SteinKernel("imq", 1.0), SteinKernel("rbf", 1.5)])
def test_a_shifted_gaussian_has_its_exact_discrepancy(kernel):
    rng = np.random.default_rng(1)
    found = []
    for _ in range(40):
        x = MEAN + rng.normal(size=(300, 3))
        found.append(squared_stein_discrepancy(x, -x, kernel, "u"))
    error = np.std(found, ddof=1) / np.sqrt(40)
    assert abs(np.mean(found) - exact(kernel)) < 4 * error
    assert error < 0.03 * exact(kernel)


def test_it_tends_to_zero_only_on_the_target():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2000, 3))
    assert abs(squared_stein_discrepancy(x, -x, statistic="u")) < 0.01
    assert squared_stein_discrepancy(1.5 * x, -1.5 * x) > 0.05


def test_one_particle_at_the_mode_is_left_with_the_kernels_curvature():
    # s = 0 and u(x, x) = -2 d k'(0): d / scale^3 of the inverse multiquadric.
    assert squared_stein_discrepancy(np.ones((1, 2)), np.zeros((1, 2)), SteinKernel("imq", 2.0)) == pytest.approx(2 / 8)


def test_the_median_scale():
    assert median_scale(np.array([[0.0], [1.0], [5.0]])) == pytest.approx(4 / np.sqrt(np.log(3)))
    assert median_scale(np.zeros((5, 2))) == median_scale(np.zeros((1, 2))) == 1.0


@pytest.mark.parametrize(
    ("x", "scores", "kernel", "statistic"),
    [
        (np.ones((3, 2)), np.ones((3, 1)), SteinKernel(), "v"),
        (np.ones((1, 2)), np.ones((1, 2)), SteinKernel(), "u"),
        (np.full((3, 2), np.nan), np.ones((3, 2)), SteinKernel(), "v"),
        (np.ones((3, 2)), np.ones((3, 2)), SteinKernel("rbf", 0.0), "v"),
    ],
)
def test_what_has_no_discrepancy_is_refused(x, scores, kernel, statistic):
    with pytest.raises(ValueError, match="allowed"):
        squared_stein_discrepancy(x, scores, kernel, statistic)
