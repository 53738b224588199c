"""How fast runs with a server are, as ratios. Start it with launch/bench/bench.sh server; it takes three ranks.

(a) A step of SVGD, 200 particles in 55 dimensions, one CPU thread, Gaussian target: Pyro's SVGD with the same kernel
    and target against ours.
(b) DSVGD, two agents on two cores, some 20 ms of work a global iteration, half of it distillation: distillation beside
    the next agent's work against distillation before the upload. Wants two cores that are free.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from measure import COMM, ROUNDS, measure, report, seconds_an_iteration
from mpi4py import MPI

import fedlangevin_mpi
from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.config import make_config

PARTICLES, DIM, STEPS = 200, 55, 100

DSVGD: dict[str, Any] = {
    "clients": 2,
    "model": {"name": "gaussian_mixture"},
    "data": {"name": "toy_mixture_2d"},
    "algorithm": {
        "name": "dsvgd",
        "particles": 150,
        "global_iterations": 60,
        "local_iterations": 20,
        "step_size": 0.05,
    },
}


def svgd(folder: Path) -> None:
    with World(COMM) as world:
        if world.rank == 0:  # the others sleep
            _svgd(folder)
        world.wait()


def _svgd(folder: Path) -> None:
    np.savez(folder / "client-0.npz", mean=np.zeros(DIM), covariance=np.diag(np.arange(1.0, DIM + 1)))
    np.savez(folder / "start.npz", position=np.random.default_rng(0).normal(size=(PARTICLES, DIM)))
    values = {
        "clients": 1,
        "model": {"name": "gaussian"},
        "data": {"name": "files", "path": str(folder / "client-{client}.npz")},
        "initial": {"name": "file", "path": str(folder / "start.npz")},
        "algorithm": {"name": "svgd", "particles": PARTICLES, "global_iterations": 10, "step_size": 0.05},
    }
    values["algorithm"] |= {"local_iterations": STEPS}  # type: ignore[operator]
    config = make_config(values | {"output": {"directory": str(folder / "svgd")}})
    ours, theirs = [], []
    for _ in range(ROUNDS + 1):
        run = fedlangevin_mpi.run(config, comm=MPI.COMM_SELF, force=True)
        assert run.statistics is not None
        ours.append(1 / run.statistics.iterations_per_second / STEPS)
        theirs.append(_pyro_step())
    ratios = [peer / mine for peer, mine in zip(theirs[1:], ours[1:], strict=True)]
    detail = f"{statistics.median(theirs[1:]) * 1e3:.2f} ms against {statistics.median(ours[1:]) * 1e3:.2f} ms"
    report("(a) Pyro's SVGD / SVGD, a step", ratios, "2 or more", detail)


def _pyro_step(steps: int = 20) -> float:
    import pyro
    import torch
    from pyro.infer import SVGD, RBFSteinKernel

    torch.set_num_threads(1)
    scale = torch.arange(1.0, DIM + 1, dtype=torch.float64).sqrt()

    def model() -> None:
        pyro.sample("x", pyro.distributions.Normal(torch.zeros(DIM, dtype=torch.float64), scale).to_event(1))

    pyro.clear_param_store()
    optimizer = pyro.optim.Adagrad({"lr": 0.05})
    method = SVGD(model, RBFSteinKernel(), optimizer, num_particles=PARTICLES, max_plate_nesting=0)
    method.step()
    started = time.perf_counter()
    for _ in range(steps):
        method.step()
    return (time.perf_counter() - started) / steps


def overlap(folder: Path) -> None:
    on, off = [], []
    for _ in range(ROUNDS + 1):
        on.append(seconds_an_iteration(folder, DSVGD))
        off.append(seconds_an_iteration(folder, DSVGD | {"algorithm": DSVGD["algorithm"] | {"overlap": False}}))
    detail = f"best {min(on[1:]) * 1e3:.1f} ms against {min(off[1:]) * 1e3:.1f} ms a global iteration"
    report("(b) distillation after / before the upload", [min(on[1:]) / min(off[1:])], "0.65 or less", detail)


if __name__ == "__main__":
    measure({"a": svgd, "b": overlap})
