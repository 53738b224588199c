import numpy as np
import pytest

from fedlangevin_mpi.topology import Spectrum, mixing_matrix, spectrum, step_size_bound
from fedlangevin_mpi.topology.generators import Complete, Disconnected, PathGraph, Ring, Star


@pytest.mark.parametrize("N", [3, 4, 5, 6, 20, 100])
def test_a_ring(N):
    found = spectrum(mixing_matrix(Ring(), N))
    assert found.gbar == pytest.approx(abs(1 / 3 + 2 / 3 * np.cos(2 * np.pi / N)), abs=1e-12)
    assert found.lambda_n == pytest.approx(1 / 3 + 2 / 3 * np.cos(2 * np.pi * (N // 2) / N), abs=1e-12)
    assert found.gap == 1 - found.gbar


def test_a_star():
    # W = I - L / N with the Laplacian's eigenvalues 0, 1 (N - 2 times) and N.
    assert spectrum(mixing_matrix(Star(), 5)) == pytest.approx((4 / 5, 0, 4 / 5, 1 / 5), abs=1e-12)


@pytest.mark.parametrize("N", [2, 3, 6, 20])
def test_a_complete_graph_and_a_pair_average_at_once(N):
    assert spectrum(mixing_matrix(Complete(), N)) == pytest.approx((0, 0, 0, 1), abs=1e-12)


def test_the_larger_modulus_counts():
    assert spectrum(np.array([[0.1, 0.9], [0.9, 0.1]])) == pytest.approx((-0.8, -0.8, 0.8, 0.2))


def test_one_node_and_a_disconnected_graph():
    assert spectrum(mixing_matrix(Ring(), 1)) == Spectrum(lambda_2=0, lambda_n=1, gbar=0, gap=1)
    assert spectrum(mixing_matrix(Disconnected(sizes=(2, 3)), 5)) == pytest.approx((1, 0, 1, 0), abs=1e-12)


def test_one_node_has_the_bounds_of_sgld_and_sghmc():
    one = np.eye(1)
    assert step_size_bound(one, L=4, mu=1) == (2 / 4, 1 / 5)
    assert step_size_bound(one, L=4, mu=1, friction=1e-12).stability == pytest.approx(2 / np.sqrt(4))


def sgld(W, step_size, L):
    return W - step_size * L * np.eye(len(W))


def sghmc(W, step_size, L, friction):
    """The matrix of (x, v) -> (W x + eta v', v'), v' = (1 - gamma eta) v - eta L x."""
    eye, decay = np.eye(len(W)), 1 - friction * step_size
    return np.block([[W - step_size**2 * L * eye, step_size * decay * eye], [-step_size * L * eye, decay * eye]])


def radius(A):
    return np.abs(np.linalg.eigvals(A)).max()


@pytest.mark.parametrize("W", [mixing_matrix(kind, N) for kind in (Ring(), PathGraph()) for N in (1, 2, 5, 8)])
def test_stability_bounds_are_where_equal_quadratics_become_unstable(W):
    L = 3.0
    bound = step_size_bound(W, L, mu=1).stability
    assert radius(sgld(W, 0.999 * bound, L)) < 1 < radius(sgld(W, 1.001 * bound, L))
    bound = step_size_bound(W, L, mu=1, friction=0.3).stability
    assert radius(sghmc(W, 0.999 * bound, L, 0.3)) < 1 < radius(sghmc(W, 1.001 * bound, L, 0.3))


def test_theory_bounds_follow_the_paper():
    W = mixing_matrix(Ring(), 4)  # lambda_N = -1/3
    assert step_size_bound(W, L=3, mu=1) == pytest.approx((2 / 9, 2 / 9))
    assert step_size_bound(W, L=3, mu=2) == pytest.approx((2 / 9, 1 / 5))
    assert step_size_bound(W, L=3, mu=1, friction=0.1).theory == pytest.approx(np.sqrt(2 / 3 / 8))


def test_friction_times_step_size_stays_below_one():
    assert step_size_bound(np.eye(1), L=1e-4, mu=1e-4, friction=10) == (0.1, 0.1)
