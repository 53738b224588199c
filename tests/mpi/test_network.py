"""Networks under mpirun: the same draws on any number of ranks, and a bad module ends all of them."""

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.cli import main
from fedlangevin_mpi.comm import device_average
from fedlangevin_mpi.comm.device_average import DeviceAverageChannel
from fedlangevin_mpi.config import make_config, to_yaml
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.runtime import run as runtime
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.store.reader import open_run
from tests.data.test_images import SIDE, TEST, TRAIN, write_idx

torch = pytest.importorskip("torch")

COMM = MPI.COMM_WORLD
CLIENTS = 4
MODULE = """
import torch

class Mine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)

    def forward(self, x):
        return {forward}
"""
ALGORITHMS = {
    "vr_fald": {"name": "vr_fald", "communication_probability": 0.2},
    "de_sghmc": {"name": "de_sghmc", "friction": 5.0},
}


def values(folder, **more):
    return {
        "seed": 2,
        "clients": CLIENTS,
        "iterations": 100,
        "thin": 50,
        "initial": {"name": "module"},
        "model": {"name": "network", "module": "mlp", "options": {"hidden": [20], "activation": "tanh"}},
        "data": {"name": "digits", "standardize": "pooled", "partition": {"name": "dirichlet"}},
        "output": {"directory": str(folder)},
    } | more


def draws(folder, name, comm, **more):
    algorithm = ALGORITHMS[name] | {"step_size": 1e-5 if name == "vr_fald" else 2e-3, "batch_size": 10}
    topology = {"topology": "topologies/ring.yaml"} if name == "de_sghmc" else {}
    opened = open_run(run(make_config(values(folder, algorithm=algorithm, **topology, **more)), comm=comm, force=True))
    return np.stack([opened.position(c)[:] for c in range(CLIENTS)])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_draws_do_not_depend_on_ranks(name, mpi_tmp_path):
    together = draws(mpi_tmp_path / "together", name, COMM)
    alone = draws(mpi_tmp_path / f"alone-{COMM.rank}", name, MPI.COMM_SELF)
    assert together.dtype == np.float32
    np.testing.assert_allclose(together, alone, rtol=0, atol=2e-5 * np.abs(alone).max())


@pytest.mark.parametrize("messages", ["host", "device"])
def test_positions_that_stay_on_a_device_have_the_same_draws(messages, mpi_tmp_path, monkeypatch):
    """A processor under another name takes the path of a GPU; MPI is given the addresses of torch's memory."""
    plain = draws(mpi_tmp_path / "plain", "vr_fald", COMM)
    monkeypatch.setattr(runtime, "device_of", lambda kind, rank: "cpu:0")
    there = draws(mpi_tmp_path / "there", "vr_fald", COMM, device="cuda", messages=messages)
    np.testing.assert_allclose(there, plain, rtol=0, atol=2e-5 * np.abs(plain).max())


@pytest.mark.parametrize(
    ("member", "broken", "problem"),
    [
        ("_reduce", lambda channel: channel._receive.copy_(channel._send), "a sum came out wrong"),
        (
            "_device",
            property(lambda channel: torch.device("cuda:0"), lambda *_: None),
            r"MPIX_Query_cuda_support\(\) says no",
        ),
    ],
)
def test_an_mpi_that_cannot_is_refused_before_an_older_run_goes(member, broken, problem, mpi_tmp_path, monkeypatch):
    older = draws(mpi_tmp_path / "run", "vr_fald", COMM)
    monkeypatch.setattr(runtime, "device_of", lambda kind, rank: "cpu:0")
    monkeypatch.setattr(device_average, "built_with_cuda", lambda: False)
    monkeypatch.setattr(DeviceAverageChannel, member, broken, raising=False)
    if COMM.size > 1:  # alone, no message is sent
        with pytest.raises(ConfigError, match=rf"messages: found 'device', but of this MPI \(.+\): {problem}"):
            draws(mpi_tmp_path / "run", "vr_fald", COMM, device="cuda", messages="device")
    opened = open_run(mpi_tmp_path / "run")
    np.testing.assert_array_equal(np.stack([opened.position(c)[:] for c in range(CLIENTS)]), older)


def test_augmented_minibatches_do_not_depend_on_ranks(mpi_tmp_path):
    images = mpi_tmp_path / "images"
    if COMM.rank == 0:
        images.mkdir()
        rng, count = np.random.default_rng(1), TRAIN + TEST
        pixels, labels = rng.integers(256, size=(count, SIDE, SIDE)), rng.integers(10, size=count)
        write_idx(images, False, pixels.astype(np.uint8), labels.astype(np.uint8))
    COMM.Barrier()
    changed = {
        "iterations": 30,
        "thin": 10,
        "model": {"name": "network", "module": "mlp", "options": {"hidden": [5]}, "input_shape": [1, SIDE, SIDE]},
        "data": {"name": "idx", "path": str(images), "augmentation": {"padding": 1, "flip": True}},
        "algorithm": {"name": "fald", "step_size": 1e-4, "communication_interval": 3, "batch_size": 8},
    }
    found = []
    for folder, comm in ((mpi_tmp_path / "together", COMM), (mpi_tmp_path / f"alone-{COMM.rank}", MPI.COMM_SELF)):
        found.append(open_run(run(make_config(values(folder) | changed), comm=comm)).average()[:])
    np.testing.assert_allclose(*found, rtol=0, atol=2e-5 * np.abs(found[1]).max())


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_gpu_ends_all_ranks(mpi_tmp_path, capsys):
    algorithm = {"name": "fald", "step_size": 1e-3, "batch_size": 10}
    (mpi_tmp_path / f"{COMM.rank}.yaml").write_text(to_yaml(values(mpi_tmp_path / "run", algorithm=algorithm)))
    with pytest.raises(SystemExit) as ended:
        main(["run", str(mpi_tmp_path / f"{COMM.rank}.yaml"), "device=cuda"])
    assert COMM.allgather(ended.value.code) == [2] * COMM.size
    assert "finds no GPU here; allowed: cpu" in COMM.bcast(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("forward", "message", "expected"),
    [
        ("self.layer(x) @", "failed: SyntaxError", 2),
        ("self.layer(x)[:, :3]", "returned shape (4, 3); allowed: (4, k)", 2),
        ("self.layer(x).log()", "numbers that are not finite", 2),
        # Fine where it is made, not after a step.
        ("self.layer(x) + (1 - self.layer.weight.square().mean()).sqrt()", "client ", 1),
    ],
    ids=["syntax", "shape", "nan", "later"],
)
def test_a_bad_module_ends_all_ranks_and_is_named(forward, message, expected, mpi_tmp_path, monkeypatch, capsys):
    name = f"bad_module_{COMM.size}_{expected}_{len(forward)}"  # a process imports a module once
    if COMM.rank == 0:
        (mpi_tmp_path / f"{name}.py").write_text(MODULE.format(forward=forward))
        algorithm = {"name": "fald", "step_size": 1.0, "batch_size": 10}
        config = values("run", model={"name": "network", "module": f"{name}:Mine"}, algorithm=algorithm)
        (mpi_tmp_path / "config.yaml").write_text(to_yaml(config))
    COMM.Barrier()
    monkeypatch.chdir(mpi_tmp_path)
    monkeypatch.syspath_prepend(str(mpi_tmp_path))
    with pytest.raises(SystemExit) as ended:
        main(["run", "config.yaml"])
    assert COMM.allgather(ended.value.code) == [expected] * COMM.size
    stderr = COMM.bcast(capsys.readouterr().err)
    assert message in stderr
    assert "Traceback" not in stderr
