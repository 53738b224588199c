"""`device: cuda`: every operand of a gradient lies on the device; where there is a GPU, its numbers are a processor's.

Torch's device `meta` has shapes and no numbers; nothing else is needed to see where operands lie.
"""

import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fedlangevin_mpi.config import make_config  # noqa: E402
from fedlangevin_mpi.errors import ConfigError  # noqa: E402
from fedlangevin_mpi.generic import AugmentedRows, Rows  # noqa: E402
from fedlangevin_mpi.models.network import NetworkData  # noqa: E402
from fedlangevin_mpi.networks import device, flat  # noqa: E402
from fedlangevin_mpi.networks.architectures import lenet5, mlp  # noqa: E402
from fedlangevin_mpi.networks.flat import FlatNetwork  # noqa: E402
from fedlangevin_mpi.networks.likelihoods import Categorical, Gaussian  # noqa: E402
from fedlangevin_mpi.runtime.run import run  # noqa: E402
from fedlangevin_mpi.store.reader import open_run  # noqa: E402
from tests.networks.one_device import OneDevice  # noqa: E402

NETWORKS = {
    "lenet5": lambda where: FlatNetwork(lenet5((1, 12, 12), 3), Categorical(3), (1, 12, 12), np.float32, where),
    "mlp": lambda where: FlatNetwork(mlp((144,), 1), Gaussian(None), (144,), np.float32, where),
}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def problem(name, where, chains=5):
    rng = np.random.default_rng(0)
    network = NETWORKS[name](where)
    x = rng.normal(size=(20, 144)).astype(np.float32)
    y = rng.integers(0, 3, 20) if name == "lenet5" else rng.normal(size=20).astype(np.float32)
    data = NetworkData(x, y, np.array([0, 20]), np.ones(1, np.float32), network)
    theta = 0.1 * rng.normal(size=(1, chains, network.dim)).astype(np.float32)
    rows = Rows(rng.integers(0, 20, (1, 1, chains, 6)), np.array([6]), np.full((1, 6), 20 / 6, np.float32))
    return network, data, theta, rows


def augmented(rows):
    shift = np.ones((*rows.row.shape, 2), np.int64)
    return AugmentedRows(*rows, shift, np.zeros(rows.row.shape, np.bool_), 1)


@pytest.fixture
def left(monkeypatch):
    """The devices that results are taken from, as zeros."""
    devices = []

    def numbers(tensor, *, force=False):
        assert force or tensor.device.type == "cpu"
        devices.append(tensor.device.type)
        return np.zeros(tuple(tensor.shape), np.float32)

    monkeypatch.setattr(torch.Tensor, "numpy", numbers)
    with OneDevice():
        yield devices


@pytest.mark.parametrize("few", [0, 10**7], ids=["inside", "outside"])
@pytest.mark.parametrize("together", [4, 100], ids=["at once", "one by one"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_operand_of_a_gradient_lies_on_the_device(name, together, few, left, monkeypatch):
    monkeypatch.setattr(flat, "_TOGETHER", together)
    monkeypatch.setattr(flat, "_FEW_NUMBERS", few)
    network, data, theta, rows = problem(name, "meta")
    network._row_bytes = 100  # `probe` needs numbers
    assert network.gradient_of_rows(theta, data, rows, 0).shape == theta.shape
    if name == "lenet5":
        assert network.gradient_of_rows(theta, data, augmented(rows), 0).shape == theta.shape
    assert network.gradient_of_all(theta, data).shape == theta.shape
    assert network.gradient_of_rows(torch.zeros(theta.shape, device="meta"), data, rows, 0).device.type == "meta"
    assert len(network.predict(theta[0], data.x)) == 5
    assert set(left) == {"meta"}


def test_operands_that_lie_apart_are_found(left, monkeypatch):
    network, data, theta, rows = problem("mlp", "meta")
    monkeypatch.setattr(FlatNetwork, "_there", lambda self, array: torch.from_numpy(array))
    with pytest.raises(Exception, match="more than one device"):
        network.gradient_of_rows(theta, data, rows, 0)


@needs_gpu
@pytest.mark.parametrize("name", NETWORKS)
def test_a_gpu_and_a_processor_agree(name):
    found = []
    for where in (device.device_of("cuda", 0), "cpu"):
        with device.taken(where):
            network, data, theta, rows = problem(name, where)
            network.probe(data.x)
            gradients = network.gradient_of_rows(theta, data, rows, 0), network.gradient_of_all(theta, data)
            found.append([*gradients, network.losses(theta, data), network.predict(theta[0], data.x)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())


@needs_gpu
@pytest.mark.parametrize("messages", ["host", "device"])
def test_a_run_on_a_gpu_has_the_draws_of_a_processor(messages, tmp_path):
    found = []
    for where in ({"device": "cuda", "messages": messages}, {"device": "cpu"}):
        values = {
            "clients": 3,
            "iterations": 20,
            "initial": {"name": "module"},
            "algorithm": {"name": "vr_fald", "step_size": 1e-3, "batch_size": 8, "communication_probability": 0.5},
            "model": {"name": "network", "module": "mlp", "options": {"hidden": [4]}},
            "data": {"name": "wine", "standardize": "pooled"},
            "output": {"directory": str(tmp_path / where["device"])},
        }
        found.append(open_run(run(make_config(values | where))).average()[:])
    np.testing.assert_allclose(*found, rtol=0, atol=1e-3 * np.abs(found[1]).max())


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_no_gpu_is_said():
    with pytest.raises(ConfigError, match="device: found 'cuda', but torch .* finds no GPU here; allowed: cpu"):
        device.device_of("cuda", 0)


def test_ranks_of_a_node_take_its_gpus_in_turn(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [device.device_of("cuda", rank) for rank in range(4)] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert device.device_of("cpu", 3) == "cpu"


def test_a_run_on_a_gpu_leaves_torch_as_it_was(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)

    def settings():
        flags = torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
        return flags, torch.are_deterministic_algorithms_enabled()

    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    before = settings()
    with device.taken("cuda:1"):
        assert (device.current(), settings()) == ("cuda:1", ((False, False, False), True))
    assert (device.current(), settings()) == ("cpu", before)


def test_torch_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match="pip install"):
        device.device_of("cuda", 0)
