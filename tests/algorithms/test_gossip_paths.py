"""The paths of the decentralised kernels, step by step, against loops written from the papers' equations."""

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.algorithms.de_sghmc import DeSghmc
from fedlangevin_mpi.algorithms.de_sgld import DeSgld
from fedlangevin_mpi.algorithms.dgd import Dgd
from fedlangevin_mpi.algorithms.extra_sgld import ExtraSgld
from fedlangevin_mpi.algorithms.gradient_tracking import GradientTracking
from fedlangevin_mpi.algorithms.sgld import Sgld
from fedlangevin_mpi.comm.gossip import GossipChannel
from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.generic import Everything, Rows, define, gradient
from fedlangevin_mpi.models.gaussian import GaussianData
from fedlangevin_mpi.runtime.engine import Engine
from fedlangevin_mpi.runtime.streams import BlockStreams
from tests.gaussians import heterogeneous

CLIENTS, CHAINS, DIM, LENGTH, STEP = 4, 2, 2, 60, 0.1
STAR = np.array([[1, 1, 1, 1], [1, 3, 0, 0], [1, 0, 3, 0], [1, 0, 0, 3]]) / 4
RING = np.array([[2, 1, 0, 1], [1, 2, 1, 0], [0, 1, 2, 1], [1, 0, 1, 2]]) / 4
SCHEDULES = [{}, {"communication_interval": 3}, {"schedule": "random", "communication_interval": 2}]


def streams(clients=CLIENTS):
    return BlockStreams(3, 0, np.arange(LENGTH), range(clients), clients, CHAINS, DIM, np.dtype(float), False, 2)


def start_of(clients=CLIENTS):
    return np.random.default_rng(1).normal(size=(clients, CHAINS, DIM))


class Path:
    """A block of a kernel on the graphs STAR and RING (or a single client), with what it drew."""

    def __init__(self, algorithm, engine="interpreted", draws=None, batch=None, data=None, clients=CLIENTS):
        matrices = [STAR, RING] if clients == CLIENTS else [np.eye(clients)] * 2
        self.theta, self.draws = start_of(clients), draws or algorithm.draws(streams(clients))
        self.state = algorithm.state(self.theta)
        self.trace = np.empty((LENGTH, *self.theta.shape))
        data, batch = data or GaussianData(*heterogeneous(clients, DIM)), batch or Everything(clients)
        with World(MPI.COMM_SELF) as world:
            compiled = engine == "compiled"
            ready = Engine(world, compiled).ready
            channel = GossipChannel(world, [range(clients)], matrices, CHAINS, DIM, np.dtype(float), compiled)
            if algorithm.begin is not None:
                arguments = (self.theta, self.state, self.draws, data, channel.handle)
                ready(algorithm.begin, *arguments)(*arguments)
            arguments = (self.theta, self.state, self.draws, data, batch, channel.handle, self.trace)
            arguments += (np.arange(LENGTH), 0, LENGTH)
            ready(algorithm.kernel, *arguments)(*arguments)
            channel.free()


def graphs(draws):
    """Return the W of every iteration."""
    return [np.eye(CLIENTS) if m < 0 else [STAR, RING][m] for m in draws.mixing]


def slopes(x):
    """Return `grad U_i(x_i)` of all clients, `(clients, dim)`."""
    means, precisions = heterogeneous(CLIENTS, DIM)
    return np.array([precisions[i] @ (x[i] - means[i]) for i in range(CLIENTS)])


def literal_de_sgld(x, draws, noise):
    for k, W in enumerate(graphs(draws)):
        x = W @ x - STEP * slopes(x) + np.sqrt(2 * STEP * 0.7) * noise[k]
        yield x


def literal_de_sghmc(x, draws, noise):
    v = np.zeros_like(x)
    for k, W in enumerate(graphs(draws)):
        v = v - STEP * (3.0 * v + slopes(x)) + np.sqrt(2 * 3.0 * STEP * 0.7) * noise[k]
        x = W @ x + STEP * v
        yield x


def literal_dgd(x, draws, noise):
    for W in graphs(draws):
        x = W @ x - STEP * slopes(x)
        yield x


def literal_gradient_tracking(x, draws, noise):
    y = slopes(x)
    for k, W in enumerate(graphs(draws)):
        old, x = x, W @ x - STEP * y + np.sqrt(2 * STEP * 0.7) * noise[k]
        y = W @ y + slopes(x) - slopes(old)
        yield x


def literal_extra_sgld(x, draws, noise):
    q = np.zeros_like(x)
    for k, W in enumerate(graphs(draws)):
        V = (W + np.eye(CLIENTS)) / 2
        old, x = x, W @ x - q - STEP * slopes(x) + np.sqrt(2 * STEP * 0.7) * noise[k]
        q = q + (V - W) @ old
        yield x


WARM = {"step_size": STEP, "temperature": 0.7}
LITERAL = {
    "de_sgld": (DeSgld, WARM, literal_de_sgld),
    "de_sghmc": (DeSghmc, WARM | {"friction": 3.0}, literal_de_sghmc),
    "dgd": (Dgd, {"step_size": STEP}, literal_dgd),
    "gradient_tracking": (GradientTracking, WARM, literal_gradient_tracking),
    "extra_sgld": (ExtraSgld, WARM, literal_extra_sgld),
}


@pytest.mark.parametrize("engine", ["interpreted", "compiled"])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=["every", "interval", "random"])
@pytest.mark.parametrize("name", LITERAL)
def test_a_kernel_follows_its_equations(name, schedule, engine):
    kind, options, literal = LITERAL[name]
    path = Path(kind(**options, **schedule), engine)
    noise = streams().noise()
    for chain in range(CHAINS):
        expected = list(literal(start_of()[:, chain], path.draws, noise[:, :, chain]))
        np.testing.assert_allclose(path.trace[:, :, chain], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0, 1, 0, 1, 0, 1]),
        ({"communication_interval": 3}, [-1, -1, 0, -1, -1, 1]),
    ],
)
def test_topologies_take_turns_at_the_exchanges_that_are_due(options, expected):
    assert DeSgld(step_size=STEP, **options).draws(streams()).mixing[:6].tolist() == expected


def test_a_random_schedule_chooses_every_topology_at_the_exchanges_that_are_due():
    mixing = DeSgld(step_size=STEP, schedule="random", communication_interval=2).draws(streams()).mixing
    assert (mixing[0::2] == -1).all()
    assert set(mixing[1::2]) == {0, 1}
    later = BlockStreams(3, 1, LENGTH + np.arange(LENGTH), range(2), 4, 1, 1, np.dtype(float), False, 2)
    assert (later.scheduled(2) != streams().scheduled(2)).any()


@pytest.mark.parametrize("engine", ["interpreted", "compiled"])
def test_one_client_is_sgld(engine):
    alone, sgld = (Path(kind(step_size=STEP), engine, clients=1) for kind in (DeSgld, Sgld))
    np.testing.assert_array_equal(alone.trace, sgld.trace)


def test_one_client_is_sghmc():
    path = Path(DeSghmc(step_size=STEP, friction=2.0), clients=1)
    (mean,), (precision,) = heterogeneous(1, DIM)
    noise, x, v = streams(1).noise()[:, 0], start_of(1)[0], np.zeros((CHAINS, DIM))
    for k in range(LENGTH):
        v = v - STEP * (2.0 * v + (x - mean) @ precision) + np.sqrt(2 * 2.0 * STEP) * noise[k]
        x = x + STEP * v
        np.testing.assert_allclose(path.trace[k, 0], x, rtol=1e-12, atol=1e-14)


def test_without_noise_de_sgld_is_dgd():
    algorithm = DeSgld(step_size=STEP)
    draws = algorithm.draws(streams())
    draws.noise[:] = 0
    np.testing.assert_array_equal(Path(algorithm, draws=draws).trace, Path(Dgd(step_size=STEP)).trace)


@pytest.mark.parametrize("kind", [GradientTracking, ExtraSgld])
def test_without_noise_every_client_finds_the_mode(kind):
    means, precisions = heterogeneous(CLIENTS, DIM)
    mode = np.linalg.solve(precisions.sum(0), (precisions @ means[:, :, None]).sum(0))[:, 0]
    algorithm = kind(step_size=STEP)
    draws = algorithm.draws(streams())
    draws.noise[:] = 0
    draws.mixing[:] = 0
    theta, state = start_of(), algorithm.state(start_of())
    data, trace, slots = GaussianData(means, precisions), np.empty((LENGTH, *theta.shape)), np.arange(LENGTH)
    with World(MPI.COMM_SELF) as world:
        channel = GossipChannel(world, [range(CLIENTS)], [STAR], CHAINS, DIM, np.dtype(float), False)
        if algorithm.begin is not None:
            algorithm.begin(theta, state, draws, data, channel.handle)
        for _ in range(20):
            arguments = (theta, state, draws, data, Everything(CLIENTS), channel.handle, trace, slots, 0, LENGTH)
            algorithm.kernel(*arguments)
    np.testing.assert_allclose(theta, np.broadcast_to(mode, theta.shape), rtol=0, atol=1e-10)


def test_extra_wants_one_mixing_matrix():
    assert ExtraSgld(step_size=STEP).notes() == []
    for changing in ({"communication_interval": 2}, {"schedule": "pairwise"}):
        (note,) = ExtraSgld(step_size=STEP, **changing).notes()
        assert "may diverge at any step size" in note


class Noisy(tuple):
    """Gaussian data whose minibatch gradients are off by a known number for every iteration."""


def _noisy_gradient(theta, data, batch, k):
    return gradient(theta, data[0], Everything(len(theta)), k) + data[1][k]


define(gradient, Noisy, Rows, interpreted=_noisy_gradient)
define(gradient, Noisy, Everything, interpreted=lambda theta, data, batch, k: gradient(theta, data[0], batch, k))


def test_gradient_tracking_stores_the_gradient_of_the_old_minibatch():
    """`sum y = sum g` holds for the gradients that were evaluated, and no minibatch is used at two positions."""
    off = np.random.default_rng(0).normal(size=(LENGTH, CLIENTS, CHAINS, DIM))
    data = Noisy((GaussianData(*heterogeneous(CLIENTS, DIM)), off))
    rows = Rows(np.zeros((LENGTH, CLIENTS, CHAINS, 1), np.int64), np.ones(CLIENTS, np.int64), np.ones((CLIENTS, 1)))
    path = Path(GradientTracking(step_size=STEP), data=data, batch=rows)
    noise = streams().noise()
    for chain in range(CHAINS):
        x = start_of()[:, chain]
        slope = y = slopes(x)
        for k, W in enumerate(graphs(path.draws)):
            x = W @ x - STEP * y + np.sqrt(2 * STEP) * noise[k, :, chain]
            old, slope = slope, slopes(x) + off[k, :, chain]
            y = W @ y + slope - old
            np.testing.assert_allclose(path.trace[k, :, chain], x, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(path.state.tracker.sum(0), path.state.slope.sum(0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("engine", ["interpreted", "compiled"])
def test_a_nan_reaches_neighbours_only(engine):
    algorithm = DeSgld(step_size=STEP)
    draws = algorithm.draws(streams())
    draws.mixing[:] = -1
    draws.mixing[[8, 12]] = 0  # of the star: client 2 reaches its centre first, then everybody
    draws.noise[5, 2, 1, 0] = np.nan
    bad = np.isnan(Path(algorithm, engine, draws=draws).trace).any(axis=-1)
    assert not bad[:, :, 0].any()
    assert bad[5:8, :, 1].tolist() == [[False, False, True, False]] * 3
    assert bad[8:12, :, 1].tolist() == [[True, False, True, False]] * 4
    assert bad[12:, :, 1].all()
