"""Peak memory of a rank that samples resnet20, beside what it may hold. Start it with python launch/bench/memory.py.

Allowed are the rows of its client, three positions a chain and a block of 64 MiB: the randomness of some iterations
(8 MiB, or an iteration's) and what torch takes for one pass, of which autograd keeps 24 MiB at most. Beside it stands
what a pass of the plain module on as many rows takes. Imports and compiled kernels are there before, and told apart: a
run of a small network comes first. The run's own summary predicts the held-out rows, on rank 0, when the clients' rows
are gone: it may take more.

With more chains the bound is exceeded, since a rank holds more than three positions of each (the state and its copy,
the gradient and its product with the step, a draw, the mean of an exchange): the block is 57 MiB with 2 chains, 61 with
4, 78 with 8 and some 140 with 20, of which 21 are an iteration's randomness.
"""

from __future__ import annotations

import resource
import tempfile
from multiprocessing import get_context
from pathlib import Path

import numpy as np

ROWS, HELD_OUT, BATCH, CHAINS = 2000, 1000, 64, 2
MIB = 2**20
BLOCK = 64
"""What a block may take, in MiB."""


def peak() -> float:
    """Return the most that this process ever held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def plain_pass(rows: int) -> float:
    """Return what a pass of the plain module on so many rows takes beside one of a single row. In a fresh process."""
    import torch

    from fedlangevin_mpi.networks.architectures import resnet20

    torch.set_num_threads(1)
    module = resnet20((3, 32, 32), 10)
    before = 0.0
    for count in (1, rows):
        outputs = module(torch.randn(count, 3, 32, 32))
        torch.autograd.grad(outputs.logsumexp(1).sum(), list(module.parameters()))
        del outputs
        before = before or peak()
    return peak() - before


def run_one(store: str, summary: bool) -> tuple[float, float, float, int]:
    """Return the peak before a run and after it, what rows and positions take, and the rows of a pass. As above."""
    from mpi4py import MPI

    from fedlangevin_mpi.config import make_config
    from fedlangevin_mpi.models.base import Facts
    from fedlangevin_mpi.runtime import run as runtime

    with tempfile.TemporaryDirectory() as name:
        folder, rng = Path(name), np.random.default_rng(0)
        for path, rows in (("data_batch_1.bin", ROWS), ("test_batch.bin", HELD_OUT)):
            records = rng.integers(256, size=(rows, 3073), dtype=np.uint8)
            records[:, 0] %= 10
            records.tofile(folder / path)
        values = {
            "clients": 1,
            "chains": CHAINS,
            "iterations": 8,
            "thin": 4,
            "initial": {"name": "module"},
            "algorithm": {"name": "sgld", "step_size": 1e-7, "batch_size": BATCH},
            "model": {"name": "network", "module": "resnet20"},
            "data": {"name": "cifar10", "path": str(folder)},
            "output": {"directory": str(folder / "run"), "store": store},
        }
        config = make_config(values)
        facts = Facts(3072, 10)
        network = config.model._network(facts)  # type: ignore[attr-defined]
        network.probe(rng.random((1, 3072), np.float32))  # torch's own rooms
        small = {
            "iterations": 20,
            "initial": {"name": "module"},
            "algorithm": values["algorithm"],
            "model": {"name": "network", "module": "mlp"},
            "data": {"name": "digits"},
            "output": {"directory": str(folder / "small"), "store": store},
        }
        runtime.run(make_config(small), comm=MPI.COMM_SELF)
        if not summary:
            runtime._finish = lambda *_: None
        before = peak()
        runtime.run(config, comm=MPI.COMM_SELF)
        held = ROWS * 3072 * 4 + 3 * CHAINS * network.dim * 4
        return before, peak(), held / MIB, min(BATCH, network._chunk(1))


def main() -> None:
    """Print a line for each kind of run."""
    for store, summary in (("draws", False), ("draws", True), ("predictive", True)):
        with get_context("spawn").Pool(1) as pool:
            before, after, held, rows = pool.apply(run_one, (store, summary))
        with get_context("spawn").Pool(1) as pool:
            a_pass = pool.apply(plain_pass, (rows,))
        run = f"{after - before:.0f} MiB beside {before:.0f} of imports"
        parts = f"{held:.0f} + a block of {after - before - held:.0f} (allowed {BLOCK}; a plain pass {a_pass:.0f})"
        print(f"store: {store}, {'with' if summary else 'without'} its summary: {run}: {parts}")


if __name__ == "__main__":
    main()
