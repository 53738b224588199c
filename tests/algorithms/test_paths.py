"""The kernels' paths, step by step, against loops written from the papers' equations.

Moments cannot tell the old reference point from the new one (1-3 %); a path can.
"""

import numpy as np
import pytest

from fedlangevin_mpi.algorithms import algorithms
from fedlangevin_mpi.algorithms.base import Algorithm
from fedlangevin_mpi.algorithms.fald import Fald
from fedlangevin_mpi.algorithms.psgld import Psgld
from fedlangevin_mpi.algorithms.vr_fald import VrFald
from fedlangevin_mpi.comm.average import OneRank
from fedlangevin_mpi.generic import Everything
from fedlangevin_mpi.models.gaussian import GaussianData
from fedlangevin_mpi.runtime.streams import BlockStreams
from tests.gaussians import heterogeneous

CLIENTS, CHAINS, DIM, LENGTH, STEP = 3, 2, 2, 60, 0.1


def streams(per_chain):
    return BlockStreams(3, 0, np.arange(LENGTH), range(CLIENTS), CLIENTS, CHAINS, DIM, np.dtype(float), per_chain)


def kernel_path(algorithm, per_chain, means, precisions):
    """Run one block by the interpreted kernel and return its path with what it drew."""
    theta = np.random.default_rng(1).normal(size=(1, CHAINS, DIM)).repeat(CLIENTS, axis=0)
    start, state, draws = theta.copy(), algorithm.state(theta), algorithm.draws(streams(per_chain))
    data, channel = GaussianData(means, precisions), OneRank(np.zeros((CHAINS, DIM)), np.zeros(1, np.int64))
    trace = np.empty((LENGTH, CLIENTS, CHAINS, DIM))
    if algorithm.begin is not None:
        algorithm.begin(theta, state, draws, data, channel)
    algorithm.kernel(theta, state, draws, data, Everything(CLIENTS), channel, trace, np.arange(LENGTH), 0, LENGTH)
    return start, draws, trace


@pytest.mark.parametrize("per_chain", [False, True])
def test_fald_follows_its_equations(per_chain):
    means, precisions = heterogeneous(CLIENTS, DIM)
    algorithm = Fald(step_size=STEP, communication_probability=0.3, noise_correlation=0.4, temperature=0.7)
    start, draws, trace = kernel_path(algorithm, per_chain, means, precisions)
    private, common = streams(per_chain).noise(), streams(per_chain).common_noise()
    for chain in range(CHAINS):
        x = [start[i, chain] for i in range(CLIENTS)]
        for k in range(LENGTH):
            z = [
                np.sqrt(0.4 / CLIENTS) * common[k, chain] + np.sqrt(0.6) * private[k, i, chain] for i in range(CLIENTS)
            ]
            y = [
                x[i] - STEP * precisions[i] @ (x[i] - means[i]) + np.sqrt(2 * STEP * 0.7) * z[i] for i in range(CLIENTS)
            ]
            x = [sum(y) / CLIENTS] * CLIENTS if draws.communicate[k, chain] else y
            np.testing.assert_allclose(trace[k, :, chain], x, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("per_chain", [False, True])
def test_vr_fald_follows_its_equations(per_chain):
    means, precisions = heterogeneous(CLIENTS, DIM)
    algorithm = VrFald(step_size=STEP, communication_probability=0.3, reference_probability=0.2)
    start, draws, trace = kernel_path(algorithm, per_chain, means, precisions)
    noise = streams(per_chain).noise()
    both = draws.communicate & draws.refresh
    assert both.any()  # the order of the two matters only where they meet

    def slope(i, at):
        return precisions[i] @ (at - means[i])

    for chain in range(CHAINS):
        x = [start[i, chain] for i in range(CLIENTS)]
        reference = sum(x) / CLIENTS
        shift = sum(slope(i, reference) for i in range(CLIENTS)) / CLIENTS
        for k in range(LENGTH):
            g = [slope(i, x[i]) - slope(i, reference) + shift for i in range(CLIENTS)]
            if draws.refresh[k, chain]:
                reference = sum(x) / CLIENTS
                shift = sum(slope(i, reference) for i in range(CLIENTS)) / CLIENTS
            y = [x[i] - STEP * g[i] + np.sqrt(2 * STEP) * noise[k, i, chain] for i in range(CLIENTS)]
            x = [sum(y) / CLIENTS] * CLIENTS if draws.communicate[k, chain] else y
            np.testing.assert_allclose(trace[k, :, chain], x, rtol=1e-10, atol=1e-12)


def test_psgld_follows_its_equations():
    mean, precision = np.array([1.0, -2.0]), np.array([[2.0, 0.3], [0.3, 0.5]])
    drawn = BlockStreams(3, 0, np.arange(LENGTH), range(1), 1, CHAINS, DIM, np.dtype(float), False)
    algorithm = Psgld(step_size=STEP, decay=0.9, damping=0.2, temperature=0.7)
    theta = np.random.default_rng(1).normal(size=(1, CHAINS, DIM))
    x, v, trace = theta[0].copy(), np.zeros((CHAINS, DIM)), np.empty((LENGTH, *theta.shape))
    data, draws = GaussianData(mean[None], precision[None]), algorithm.draws(drawn)
    algorithm.kernel(
        theta, algorithm.state(theta), draws, data, Everything(1), None, trace, np.arange(LENGTH), 0, LENGTH
    )
    for k in range(LENGTH):
        for chain in range(CHAINS):
            g = precision @ (x[chain] - mean)
            v[chain] = 0.9 * v[chain] + 0.1 * g**2
            G = 1 / (0.2 + np.sqrt(v[chain]))
            noise = np.sqrt(2 * STEP * 0.7 * G) * drawn.noise()[k, 0, chain]
            x[chain] = x[chain] - STEP * G * g + noise
        np.testing.assert_allclose(trace[k, 0], x, rtol=1e-10, atol=1e-12)


def test_a_kernel_does_not_care_in_which_slices_it_runs():
    means, precisions = heterogeneous(CLIENTS, DIM)
    algorithm = VrFald(step_size=STEP, communication_probability=0.3)
    _, draws, whole = kernel_path(algorithm, False, means, precisions)
    theta = np.random.default_rng(1).normal(size=(1, CHAINS, DIM)).repeat(CLIENTS, axis=0)
    state, data = algorithm.state(theta), GaussianData(means, precisions)
    channel, trace = OneRank(np.zeros((CHAINS, DIM)), np.zeros(1, np.int64)), np.empty_like(whole)
    algorithm.begin(theta, state, draws, data, channel)
    for start, stop in [(0, 7), (7, 8), (8, LENGTH)]:
        arguments = (theta, state, draws, data, Everything(CLIENTS), channel, trace, np.arange(LENGTH), start, stop)
        algorithm.kernel(*arguments)
    np.testing.assert_array_equal(trace, whole)


def test_a_nan_stays_in_its_chain():
    means, precisions = heterogeneous(CLIENTS, DIM)
    algorithm = Fald(step_size=STEP, communication_probability=0.3)
    draws = algorithm.draws(streams(False))
    draws.noise[5, 1, 0, 0] = np.nan
    theta = np.zeros((CLIENTS, CHAINS, DIM))
    channel, trace = OneRank(np.zeros((CHAINS, DIM)), np.zeros(1, np.int64)), np.empty((LENGTH, *theta.shape))
    data, slots = GaussianData(means, precisions), np.arange(LENGTH)
    algorithm.kernel(theta, algorithm.state(theta), draws, data, Everything(CLIENTS), channel, trace, slots, 0, LENGTH)
    bad = np.isnan(trace).any(axis=-1)
    assert not bad[:, :, 1].any()
    first_average = int(np.argmax(draws.communicate[5:, 0])) + 5
    assert not bad[:first_average, [0, 2], 0].any()
    assert bad[first_average:, :, 0].all()


@pytest.mark.parametrize("name", [name for name, kind in algorithms().items() if issubclass(kind, Algorithm)])
def test_every_algorithm_keeps_the_protocol(name):
    """Conformance: any algorithm that a config can name, with nothing but its step size given."""
    algorithm = algorithms()[name](name=name, step_size=STEP)
    clients = 1 if algorithm.communicates == "never" else CLIENTS
    drawn = BlockStreams(3, 0, np.arange(LENGTH), range(clients), clients, CHAINS, DIM, np.dtype("float32"), False, 3)
    draws, again = algorithm.draws(drawn), algorithm.draws(drawn)
    for one, other in zip(draws, again, strict=True):
        assert len(one) == LENGTH
        assert one.flags.c_contiguous
        assert one.flags.writeable
        assert one.dtype in (np.float32, np.bool_, np.int64)
        np.testing.assert_array_equal(one, other)
    theta = np.zeros((clients, CHAINS, DIM), "float32")
    assert all(array.dtype == np.float32 for array in algorithm.state(theta))
    traffic = algorithm.traffic(draws)
    assert all(len(counts) == LENGTH for counts in traffic if isinstance(counts, np.ndarray))
    assert algorithm.summary
    assert algorithm.__doc__


def test_recorded_exchanges_match_the_ledger():
    means, precisions = heterogeneous(CLIENTS, DIM)
    algorithm = VrFald(step_size=STEP, communication_probability=0.3, reference_probability=0.2)
    channel = OneRank(np.zeros((CHAINS, DIM)), np.zeros(1, np.int64))
    theta = np.zeros((CLIENTS, CHAINS, DIM))
    state, draws, data = algorithm.state(theta), algorithm.draws(streams(False)), GaussianData(means, precisions)
    trace, slots = np.empty((LENGTH, *theta.shape)), np.arange(LENGTH)
    algorithm.kernel(theta, state, draws, data, Everything(CLIENTS), channel, trace, slots, 0, LENGTH)
    traffic = algorithm.traffic(draws)
    assert channel.made[0] == traffic.exchanges.sum() == draws.communicate[:, 0].sum() + 2 * draws.refresh[:, 0].sum()
    assert traffic.positions.sum() == CHAINS * traffic.exchanges.sum()
