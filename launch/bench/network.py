"""What the runtime costs around a network, as ratios. Start it with launch/bench/bench.sh network.

(a) FALD, LeNet-5, batch 64, p_c=0.2, two ranks: against a hand-written loop of the same torch forward and backward
    pass, noise and mpi4py Allreduce, from the same position (max-pooling takes longer at some than at others).
(b) The gradient of 20 chains, 8-50-1, batch 100: against 20 forward and backward passes of the plain module.
(c) The same for 784-100-10, batch 64.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import COMM, ROUNDS, measure, ratio, report, seconds_an_iteration, together

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.generic import Rows, gradient
from fedlangevin_mpi.models.network import Network
from fedlangevin_mpi.networks.architectures import lenet5, mlp
from fedlangevin_mpi.runtime.initial import aligned

STEP, BATCH, PROBABILITY = 1e-6, 64, 0.2
IMAGES = 1000


def write_files(folder: Path) -> None:
    generator = np.random.default_rng(COMM.rank)
    x, y = generator.random((IMAGES, 784)), generator.integers(0, 10, IMAGES)
    np.savez(folder / f"images-{COMM.rank}.npz", x=x, y=y)
    if COMM.rank == 0:
        made = lenet5((1, 28, 28), 10).parameters()
        np.savez(folder / "start.npz", position=torch.nn.utils.parameters_to_vector(made).detach().numpy()[None])
    COMM.Barrier()


class HandWritten:
    """What one would write for this one network, sampler and communicator: parameters as views of one vector."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self.x = torch.from_numpy(file["x"].astype(np.float32)).reshape(-1, 1, 28, 28)
            self.y = torch.from_numpy(file["y"])
        self.module = lenet5((1, 28, 28), 10)
        self.parameters = list(self.module.parameters())
        self.generator = np.random.default_rng(1)  # coins: the same on both ranks
        self.noise = torch.Generator().manual_seed(COMM.rank)

    def start(self, path: Path) -> None:
        with np.load(path) as file:
            self.position = torch.from_numpy(file["position"][0]).clone()
        torch.nn.utils.vector_to_parameters(self.position, self.parameters)
        self.received = np.empty(len(self.position), np.float32)

    def step(self) -> None:
        rows = torch.randperm(IMAGES)[:BATCH]
        outputs = self.module(self.x[rows])
        loss = IMAGES / BATCH * torch.nn.functional.cross_entropy(outputs, self.y[rows], reduction="sum")
        slopes = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, self.parameters)])
        noise = torch.randn(len(self.position), generator=self.noise)
        self.position -= STEP * (slopes + self.position / 2)
        self.position += math.sqrt(2 * STEP) * noise
        if self.generator.random() < PROBABILITY:
            COMM.Allreduce(self.position.numpy() / 2, self.received)
            self.position[:] = torch.from_numpy(self.received)


def overhead(folder: Path) -> None:
    torch.set_num_threads(1)
    write_files(folder)
    values = {
        "clients": 2,
        "iterations": 200,
        "thin": 200,
        "initial": {"name": "file", "path": str(folder / "start.npz")},
        "algorithm": {
            "name": "fald",
            "step_size": STEP,
            "communication_probability": PROBABILITY,
            "batch_size": BATCH,
        },
        "model": {"name": "network", "module": "lenet5"},
        "data": {"name": "files", "path": str(folder / "images-{client}.npz")},
    }
    peer = HandWritten(folder / f"images-{COMM.rank}.npz")
    ours, theirs = [], []
    for _ in range(ROUNDS + 1):
        peer.start(folder / "start.npz")
        theirs.append(together(peer.step, 200))
        ours.append(seconds_an_iteration(folder, values))
    detail = f"{statistics.median(ours) * 1e3:.2f} ms against {statistics.median(theirs) * 1e3:.2f} ms"
    report("(a) FALD, LeNet-5, batch 64 / hand-written loop", ratio(ours[1:], theirs[1:]), "1.05", detail)


def chains_at_once(name: str, sizes: tuple[int, int, int], batch: int, allowed: str) -> None:
    inputs, hidden, outputs = sizes
    likelihood = "gaussian" if outputs == 1 else "categorical"
    generator = np.random.default_rng(0)
    x = generator.normal(size=(500, inputs)).astype(np.float32)
    y = generator.normal(size=500) if outputs == 1 else generator.integers(0, outputs, 500)
    model = Network(module="mlp", options={"hidden": [hidden]}, likelihood=likelihood)
    shard = Shard(0, {"x": x, "y": y}, name)
    facts = model.facts(shard)
    data = model.pack([shard], [1.0], facts, np.float32)
    theta = aligned(model.own_draws(generator, 20, facts)[None], np.float32)
    row = np.stack([generator.permutation(500)[:batch] for _ in range(20)])[None, None]
    rows = Rows(row, np.array([batch]), np.full((1, batch), 500 / batch, np.float32))
    module = mlp((inputs,), outputs, [hidden])
    features, targets = torch.from_numpy(data.x), torch.from_numpy(data.y)
    drawn = torch.from_numpy(row[0, 0])

    def at_once() -> None:
        gradient(theta, data, rows, 0)

    def one_by_one() -> None:
        for chain in range(20):
            module.zero_grad()
            found: Any = module(features[drawn[chain]])
            if outputs == 1:
                loss = (found[:, 0] - targets[drawn[chain]]).square().sum() / 2
            else:
                loss = torch.nn.functional.cross_entropy(found, targets[drawn[chain]], reduction="sum")
            loss.backward()

    ours, theirs = [], []
    for _ in range(ROUNDS + 1):
        ours.append(together(at_once, 50))
        theirs.append(together(one_by_one, 50))
    detail = f"{statistics.median(ours) * 1e3:.2f} ms against {statistics.median(theirs) * 1e3:.2f} ms"
    report(f"({name}) 20 chains at once / one by one", ratio(ours[1:], theirs[1:]), allowed, detail)


def small(_: Path) -> None:
    chains_at_once("b, 8-50-1, batch 100", (8, 50, 1), 100, "0.35")


def medium(_: Path) -> None:
    chains_at_once("c, 784-100-10, batch 64", (784, 100, 10), 64, "1")


if __name__ == "__main__":
    measure({"a": overhead, "b": small, "c": medium})
