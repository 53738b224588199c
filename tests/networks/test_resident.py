"""Positions that stay on a device: here a processor under another name, `cpu:0`, which takes the same path as a GPU."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from mpi4py import MPI

torch = pytest.importorskip("torch")

from fedlangevin_mpi.algorithms import algorithms  # noqa: E402
from fedlangevin_mpi.algorithms.base import Algorithm  # noqa: E402
from fedlangevin_mpi.comm.device_average import DeviceAverageChannel  # noqa: E402
from fedlangevin_mpi.comm.world import World  # noqa: E402
from fedlangevin_mpi.config import make_config  # noqa: E402
from fedlangevin_mpi.errors import ConfigError, DivergedError, StoppedError  # noqa: E402
from fedlangevin_mpi.generic import Everything, Rows, define, gradient  # noqa: E402
from fedlangevin_mpi.networks import resident  # noqa: E402
from fedlangevin_mpi.networks.flat import FlatNetwork  # noqa: E402
from fedlangevin_mpi.runtime import run as runtime  # noqa: E402
from fedlangevin_mpi.runtime.blocks import Blocks  # noqa: E402
from fedlangevin_mpi.runtime.prepare import prepare  # noqa: E402
from fedlangevin_mpi.runtime.resume import resume  # noqa: E402
from fedlangevin_mpi.runtime.run import run  # noqa: E402
from fedlangevin_mpi.runtime.streams import draw_without_replacement  # noqa: E402
from fedlangevin_mpi.store.reader import open_run  # noqa: E402
from tests.networks.one_device import OneDevice  # noqa: E402

ROOT = Path(__file__).parents[2]
SAMPLERS = [name for name, kind in algorithms().items() if issubclass(kind, Algorithm)]
AVERAGING = [name for name in SAMPLERS if algorithms()[name].communicates == "average"]


@pytest.fixture
def elsewhere(monkeypatch):
    """Have `device: cuda` name a processor, and return what kinds of positions gradients were asked at."""
    kinds = []
    monkeypatch.setattr(runtime, "device_of", lambda kind, rank: "cpu" if kind == "cpu" else "cpu:0")
    for word in ("gradient_of_rows", "gradient_of_all"):
        plain = getattr(FlatNetwork, word)

        def seen(self, theta, *others, plain=plain):
            kinds.append((type(theta).__name__, str(self._device)))
            return plain(self, theta, *others)

        monkeypatch.setattr(FlatNetwork, word, seen)
    return kinds


def values(name, folder, **more):
    kind = algorithms()[name]
    found = {
        "seed": 3,
        "clients": 1 if kind.communicates == "never" else 3,
        "chains": 2,
        "coins": "per_chain",
        "iterations": 30,
        "thin": 1,
        "initial": {"name": "module"},
        "algorithm": {"name": name, "step_size": 1e-3, "batch_size": 8},
        "model": {"name": "network", "module": "mlp", "options": {"hidden": [4]}},
        "data": {"name": "wine", "standardize": "pooled"},
        "output": {"directory": str(folder)},
    }
    if kind.communicates == "gossip":
        found["topology"] = str(ROOT / "topologies" / "ring.yaml")
    found["algorithm"] |= {"friction": 1.0} if name == "de_sghmc" else {}
    found["algorithm"] |= {"communication_probability": 0.5} if kind.communicates == "average" else {}
    return found | more


def draws(values):
    opened = open_run(run(make_config(values)))
    return np.stack([opened.position(c)[:] for c in range(opened.clients)])


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_has_the_draws_of_positions_in_host_memory(name, elsewhere, tmp_path):
    here = draws(values(name, tmp_path / "here"))
    assert {kind for kind, _ in elsewhere} == {"ndarray"}
    elsewhere.clear()
    there = draws(values(name, tmp_path / "there", device="cuda"))
    assert set(elsewhere) == {("Tensor", "cpu:0")}
    np.testing.assert_allclose(there, here, rtol=0, atol=1e-5 * np.abs(here).max())
    assert (here[:, 0] != here[:, -1]).mean() > 0.99


@pytest.mark.parametrize("name", AVERAGING)
def test_averages_of_the_devices_memory_are_those_of_the_hosts(name, elsewhere, tmp_path, monkeypatch):
    host = draws(values(name, tmp_path / "host", device="cuda"))
    reduced, reduce = [], DeviceAverageChannel._reduce
    monkeypatch.setattr(DeviceAverageChannel, "_reduce", lambda channel: reduced.append(reduce(channel)))
    direct = draws(values(name, tmp_path / "direct", device="cuda", messages="device"))
    np.testing.assert_allclose(direct, host, rtol=0, atol=1e-5 * np.abs(host).max())
    counts = [open_run(tmp_path / folder).summary()["communication"] for folder in ("host", "direct")]
    assert counts[0] == counts[1]
    assert len(reduced) == counts[1]["rounds"] or name == "vr_fald"
    assert len(reduced) > 5


def test_a_stopped_run_goes_on_to_the_bit(elsewhere, tmp_path):
    changed = {"device": "cuda", "messages": "device"}
    whole = draws(values("vr_fald", tmp_path / "whole", **changed))
    stopped = values("vr_fald", tmp_path / "stopped", **changed)
    stopped["output"] |= {"max_seconds": 1e-6}
    with pytest.raises(StoppedError):
        run(make_config(stopped))
    resume(tmp_path / "stopped", ["output.max_seconds=null"])
    opened = open_run(tmp_path / "stopped")
    np.testing.assert_array_equal(np.stack([opened.position(c)[:] for c in range(3)]), whole)


def test_a_position_that_is_not_finite_keeps_the_draws_before_it(elsewhere, tmp_path):
    wild = values("fald", tmp_path / "run", device="cuda", iterations=400)
    wild["algorithm"] |= {"step_size": 1e10, "batch_size": None}
    with pytest.raises(DivergedError, match="stopped being finite in iteration"):
        run(make_config(wild))
    kept = open_run(tmp_path / "run").average()[:]
    assert len(kept) > 0
    assert np.isfinite(kept).all()


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"messages": "device"}, "messages: found 'device'; allowed: host, since device is cpu"),
        ({"name": "de_sgld"}, "allowed: host, since algorithm de_sgld does not average over all clients"),
        ({"name": "sgld"}, "allowed: host, since algorithm sgld does not average over all clients"),
    ],
)
def test_messages_that_cannot_leave_the_device_are_refused(changed, problem, tmp_path):
    name = changed.pop("name", None)
    changed = {"messages": "device"} | ({"device": "cuda"} if name else {})
    with pytest.raises(ConfigError, match=problem):
        make_config(values(name or "fald", tmp_path / "run", **changed))


class Potentials(NamedTuple):
    """Data of which gradients are positions."""

    nothing: int = 0


define(gradient, Potentials, Rows, interpreted=lambda theta, *others: 1 * theta)
define(gradient, Potentials, Everything, interpreted=lambda theta, *others: 1 * theta)


@pytest.mark.parametrize("name", [name for name in SAMPLERS if algorithms()[name].communicates != "gossip"])
def test_every_operand_of_a_kernel_lies_on_the_device(name, monkeypatch, tmp_path):
    monkeypatch.setattr(resident, "_copy", lambda tensor, array: devices.add(tensor.device.type))
    devices = set()
    prepared = prepare(World(MPI.COMM_SELF), make_config(values(name, tmp_path)))
    algorithm, blocks = prepared.config.algorithm, Blocks(prepared, draw_without_replacement)
    drawn, batch = blocks.randomness(0)
    theta = prepared.theta
    channel = DeviceAverageChannel(World(MPI.COMM_SELF), *theta.shape[1:], theta.dtype, "meta").handle
    common = theta, algorithm.state(theta), drawn, Potentials()
    trace, slots = np.empty((30, *theta.shape), theta.dtype), np.arange(30)
    with OneDevice():
        if algorithm.begin is not None:
            resident.resident(algorithm.begin, "meta")(*common, channel)
        resident.resident(algorithm.kernel, "meta")(*common, batch, channel, trace, slots, 0, 10)
    assert devices == {"meta"}
    assert (channel.made[0] > 0) == (algorithm.communicates == "average")
