"""The average channel: right sums from both engines, with its persistent request and without, of any tensor."""

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.comm import average
from fedlangevin_mpi.comm.average import AverageChannel, BlockingAverage, InterpretedAverage, OneRank, PersistentAverage
from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.generic import exchange
from fedlangevin_mpi.runtime.engine import Engine

CLIENTS_HERE, CHAINS, DIM = 2, 3, 4


@pytest.fixture
def world():
    with World() as world:
        yield world


def perform(theta, channel, weights, chains):
    exchange(theta, channel, weights, chains)


def positions(world, dtype, round_):
    """Return the clients here and the mean over all, different in every round."""
    everyone = np.random.default_rng(round_).normal(size=(CLIENTS_HERE * world.size, CHAINS, DIM)).astype(dtype)
    here = everyone[world.rank * CLIENTS_HERE : (world.rank + 1) * CLIENTS_HERE]
    return here.copy(), everyone.mean(axis=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("persistent", [True, False])
def test_chains_that_take_part_get_the_mean_and_the_others_stay(world, dtype, compiled, persistent, monkeypatch):
    if not persistent:
        monkeypatch.setattr(average, "sums_rightly", first_refused(average.sums_rightly))
    channel = AverageChannel(world, CHAINS, DIM, np.dtype(dtype), compiled)
    kind = (OneRank,) if world.size == 1 else expected_kind(compiled, persistent)
    assert isinstance(channel.handle, kind)
    weights, chains = np.full(CLIENTS_HERE, 1 / (CLIENTS_HERE * world.size), dtype), np.array([True, False, True])
    theta, _ = positions(world, dtype, 0)
    act = Engine(world, compiled).ready(perform, theta, channel.handle, weights, chains)
    for round_ in range(3):
        theta, mean = positions(world, dtype, round_)
        before = theta.copy()
        act(theta, channel.handle, weights, chains)
        np.testing.assert_allclose(theta[:, chains], np.broadcast_to(mean[chains], theta[:, chains].shape), atol=1e-6)
        np.testing.assert_array_equal(theta[:, 1], before[:, 1])
    assert channel.exchanges == 3
    assert channel.bytes_sent == (0 if world.size == 1 else 3 * CHAINS * DIM * np.dtype(dtype).itemsize)
    channel.free()
    channel.free()


def expected_kind(compiled, persistent):
    if compiled:
        return PersistentAverage if persistent else BlockingAverage
    return InterpretedAverage


def first_refused(sums_rightly):
    """Return a self-test that finds the persistent request wrong on rank 0, and tests the fallback truly."""
    calls = []

    def verdict(*arguments):
        calls.append(arguments)
        right = sums_rightly(*arguments)
        return right and len(calls) > 1

    return verdict


def test_a_request_that_returns_old_contents_is_found(world):
    channel = AverageChannel(world, CHAINS, DIM, np.dtype(float), False)
    first = []

    def stale():
        if not first:
            channel._allreduce()
            first.append(channel._receive.copy())
        channel._receive[:] = first[0]

    buffers = world, channel._send, channel._receive
    assert average.sums_rightly(*buffers, channel._allreduce)
    assert not average.sums_rightly(*buffers, stale)
    channel.free()


def test_tensors_are_summed_rightly_or_refused(world):
    torch = pytest.importorskip("torch")
    channel = AverageChannel(world, CHAINS, DIM, np.dtype(np.float32), False)
    here, mean = positions(world, np.float32, 1)
    weights, everyone = np.full(CLIENTS_HERE, 1 / (CLIENTS_HERE * world.size), np.float32), np.ones(CHAINS, np.bool_)
    strided = torch.zeros(CLIENTS_HERE, DIM, CHAINS).transpose(1, 2)
    strided[:] = torch.from_numpy(here)
    tracking = torch.from_numpy(here.copy()).requires_grad_()
    for tensor in (torch.from_numpy(here.copy()), strided, tracking):
        exchange(tensor, channel.handle, weights, everyone)
        values = tensor.detach().numpy()
        np.testing.assert_allclose(values, np.broadcast_to(mean, values.shape), atol=1e-6)
    for dtype in (torch.bfloat16, torch.float64):
        with pytest.raises(TypeError, match=r"a tensor of torch\.\w+ was given to a channel of torch.float32"):
            exchange(torch.from_numpy(here).to(dtype), channel.handle, weights, everyone)
    with pytest.raises(TypeError, match="positions of float64 were given to a channel of float32"):
        exchange(here.astype(float), channel.handle, weights, everyone)
    channel.free()


def test_a_dtype_that_mpi_cannot_sum_is_refused(world):
    with pytest.raises(TypeError, match="an average of float16 was asked for; allowed: float32, float64"):
        AverageChannel(world, CHAINS, DIM, np.dtype(np.float16), False)


def test_errors_are_agreed(world):
    from fedlangevin_mpi.errors import ConfigError

    def fail():
        if world.rank == world.size - 1:
            raise ConfigError("the last rank objects")

    with pytest.raises(ConfigError, match="the last rank objects") as caught:
        world.agree(fail)
    assert caught.value.agreed
    assert MPI.COMM_WORLD.allgather(caught.value.exit_status) == [2] * world.size
