"""The gossip channel: `W X` on any graph and placement, by both carriers and both engines, the same to the bit."""

import logging
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.comm.gossip import GossipChannel
from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.errors import ConfigError, FedLangevinError
from fedlangevin_mpi.generic import exchange
from fedlangevin_mpi.runtime.engine import Engine
from fedlangevin_mpi.runtime.placement import place
from fedlangevin_mpi.topology import mixing_matrix, read_topology
from fedlangevin_mpi.topology.scheduled import one_peer_exponential, pairwise

DIM = 3
SHIPPED = Path(__file__).parents[2] / "topologies"
FILES = sorted(SHIPPED.rglob("*.yaml"))
CARRIERS = ["neighbor", "sendrecv"]
ENGINES = ["interpreted", "compiled"]


@pytest.fixture
def world():
    with World() as world:
        yield world


def perform(theta, channel, m):
    exchange(theta, channel, m)


class Gossip:
    """The clients of one rank, at positions that all ranks know, and a channel."""

    def __init__(self, world, matrices, chains, engine="interpreted", carrier="neighbor", dtype=float):
        self.clients = matrices[0].shape[0]
        hosted = place(self.clients, world.size).of_rank
        self.here = slice(hosted[world.rank].start, hosted[world.rank].stop)
        compiled = engine == "compiled"
        self.channel = GossipChannel(world, hosted, matrices, chains, DIM, np.dtype(dtype), compiled, carrier)
        shape = (self.clients, chains, DIM)
        self.everyone = np.random.default_rng(self.clients).normal(size=shape).astype(dtype)
        self.theta = self.everyone[self.here].copy()
        self.act = Engine(world, compiled).ready(perform, self.theta, self.channel.handle, 0)

    def exchange(self, m=0):
        self.act(self.theta, self.channel.handle, m)
        return self.theta


def mixing_matrices(clients):
    """Return W of every shipped topology that fits so many clients, by its name."""
    found = {}
    for file in FILES:
        try:
            found[str(file.relative_to(SHIPPED))] = mixing_matrix(read_topology(file), clients)
        except ConfigError as e:
            assert "clients" in str(e)  # noqa: PT017  (a hypercube of five)
    return found


@pytest.mark.parametrize(("carrier", "engine"), [("neighbor", "compiled"), ("sendrecv", "interpreted")])
@pytest.mark.parametrize("chains", [1, 3])
@pytest.mark.parametrize("clients", [1, 2, 4, 5, 8])
def test_an_exchange_is_the_product_with_W(world, clients, chains, carrier, engine, caplog):  # noqa: N802
    if clients < world.size:
        with pytest.raises(ConfigError, match="at least one client a rank"):
            place(clients, world.size)
        return
    matrices = mixing_matrices(clients)
    assert len(matrices) >= 12
    for name, W in matrices.items():
        gossip = Gossip(world, [W], chains, engine, carrier)
        expected = np.einsum("ij,jkl->ikl", W, gossip.everyone)
        np.testing.assert_allclose(gossip.exchange(), expected[gossip.here], rtol=0, atol=1e-12, err_msg=name)
        expected = np.einsum("ij,jkl->ikl", W, expected)
        np.testing.assert_allclose(gossip.exchange(), expected[gossip.here], rtol=0, atol=1e-12, err_msg=name)
        assert gossip.channel.exchanges == 2
        gossip.channel.free()
        gossip.channel.free()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]  # such as a fallback


def time_varying(clients):
    graph = read_topology(SHIPPED / "complete.yaml").graph(clients)
    return [*pairwise(graph), *one_peer_exponential(graph), *mixing_matrices(clients).values()]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_matrices_one_channel_and_the_same_bits_as_one_rank(world, carrier, engine, dtype):
    matrices = time_varying(5)
    order = np.random.default_rng(1).permutation(len(matrices))
    gossip = Gossip(world, matrices, 2, engine, carrier, dtype)
    with World(MPI.COMM_SELF) as self_world:
        alone = Gossip(self_world, matrices, 2, engine, dtype=dtype)
    expected = gossip.everyone.astype(float)
    crossing = 0
    for m in order.tolist():
        W = np.asarray(matrices[m].todense() if hasattr(matrices[m], "todense") else matrices[m])
        expected = np.einsum("ij,jkl->ikl", W, expected)
        np.testing.assert_array_equal(gossip.exchange(m), alone.exchange(m)[gossip.here])
        crossing += crossings(W, world.size)
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(gossip.theta, expected[gossip.here], rtol=0, atol=tolerance)
    assert world.sum(gossip.channel.bytes_sent) == crossing * 2 * DIM * np.dtype(dtype).itemsize
    gossip.channel.free()


def crossings(W, ranks):
    """Return how many positions must cross ranks: each client once to every other rank that needs it."""
    rank_of = np.repeat(np.arange(ranks), [len(c) for c in place(len(W), ranks).of_rank])
    needs = {(rank_of[i], j) for i, j in np.argwhere(W)}
    return sum(rank != rank_of[j] for rank, j in needs)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("reason", ["missing", "stale"])
def test_without_persistent_neighbour_exchanges_sendrecv_takes_over(world, engine, reason, monkeypatch, caplog):
    def missing(self):
        raise NotImplementedError("MPI_Neighbor_alltoallv_init")

    if reason == "missing":
        monkeypatch.setattr(GossipChannel, "_declare_neighbor", missing)
    else:
        monkeypatch.setattr(GossipChannel, "_delivers", first_refused(GossipChannel._delivers))
    W = mixing_matrices(5)["ring.yaml"]
    with caplog.at_level(logging.WARNING):
        gossip = Gossip(world, [W], 2, engine)
    assert "using sendrecv" in caplog.text
    expected = np.einsum("ij,jkl->ikl", W, gossip.everyone)
    np.testing.assert_allclose(gossip.exchange(), expected[gossip.here], rtol=0, atol=1e-12)
    gossip.channel.free()


def first_refused(delivers):
    """Return a self-test that finds the first carrier wrong, and tests the second truly."""
    calls = []

    def verdict(self):
        calls.append(self)
        return delivers(self) and len(calls) > 1

    return verdict


@pytest.mark.mpi(min_size=2)
def test_a_carrier_that_delivers_old_contents_is_found(world):
    channel = Gossip(world, [mixing_matrices(5)["complete.yaml"]], 1).channel
    carry, first = channel._carry, []
    assert channel._delivers()

    def stale(m):
        if not first:
            carry(m)
            first.append(channel._rows.copy())
        channel._rows[:] = first[0]

    channel._carry = stale
    assert not channel._delivers()
    channel.free()


@pytest.mark.mpi(min_size=2)
def test_ranks_with_different_matrices_are_refused(world):
    names = ["ring.yaml", "star.yaml"]
    with pytest.raises(FedLangevinError, match=r"rank 1 holds other mixing matrices than rank 0") as caught:
        Gossip(world, [mixing_matrices(5)[names[world.rank == 1]]], 1)
    assert caught.value.agreed


def test_a_dtype_that_mpi_does_not_know_is_refused(world):
    with pytest.raises(TypeError, match="gossip of float16 was asked for; allowed: float32, float64"):
        GossipChannel(world, place(5, world.size).of_rank, [np.eye(5)], 1, DIM, np.dtype(np.float16), False)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["ring.yaml", "star.yaml", "torus.yaml"])
def test_a_nan_reaches_neighbours_only(world, name, engine):
    W = mixing_matrices(8)[name]
    gossip = Gossip(world, [W], 2, engine)
    if gossip.here.start <= 3 < gossip.here.stop:
        gossip.theta[3 - gossip.here.start, 1] = np.nan
    for power in (W, W @ W):
        bad = np.isnan(gossip.exchange()).any(axis=-1)
        assert not bad[:, 0].any()
        np.testing.assert_array_equal(bad[:, 1], (power[:, 3] > 0)[gossip.here])
    gossip.channel.free()


def test_tensors_are_mixed_rightly(world):
    torch = pytest.importorskip("torch")
    W = mixing_matrices(5)["star.yaml"]
    gossip = Gossip(world, [W], 2, dtype=np.float32)
    expected = np.einsum("ij,jkl->ikl", W, gossip.everyone)[gossip.here]
    for tensor in (torch.from_numpy(gossip.theta.copy()), torch.from_numpy(gossip.theta.copy()).requires_grad_()):
        exchange(tensor, gossip.channel.handle, 0)
        np.testing.assert_allclose(tensor.detach().numpy(), expected, atol=1e-6)
    with pytest.raises(TypeError, match="a tensor of torch.float64 was given to a channel of torch.float32"):
        exchange(torch.from_numpy(gossip.theta).double(), gossip.channel.handle, 0)
    gossip.channel.free()
