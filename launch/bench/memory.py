"""Peak memory of a rank that samples resnet20, beside what it may hold. Start it with python launch/bench/memory.py.

What imports and compiled kernels take is there before the run and told apart: a run of a small network comes first.
Expected are the shard, three positions a chain (the state, the gradient, the mean of an exchange), one block of
randomness, and what torch takes for a forward and backward pass of the plain module on as many rows as a pass here has.
The run's own summary, which predicts the held-out rows, counts in the second line.
"""

from __future__ import annotations

import resource
import tempfile
from multiprocessing import get_context
from pathlib import Path

import numpy as np

ROWS, HELD_OUT, BATCH, CHAINS = 2000, 1000, 32, 2
MIB = 2**20


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
    """Return the peak before a run and after it, what is expected without a pass, and a pass's rows. As above."""
    from mpi4py import MPI

    from fedlangevin_mpi.config import make_config
    from fedlangevin_mpi.models.base import Facts
    from fedlangevin_mpi.runtime import run as runtime
    from fedlangevin_mpi.runtime.streams import block_length

    with tempfile.TemporaryDirectory() as name:
        folder, rng = Path(name), np.random.default_rng(0)
        for path, rows in (("data_batch_1.bin", ROWS), ("test_batch.bin", HELD_OUT)):
            records = rng.integers(256, size=(rows, 3073), dtype=np.uint8)
            records[:, 0] %= 10
            records.tofile(folder / path)
        values = {
            "clients": 1,
            "chains": CHAINS,
            "iterations": 20,
            "thin": 10,
            "initial": {"name": "module"},
            "algorithm": {"name": "sgld", "step_size": 1e-7, "batch_size": BATCH},
            "model": {"name": "network", "module": "resnet20"},
            "data": {"name": "cifar10", "path": str(folder)},
            "output": {"directory": str(folder / "run"), "store": store},
        }
        config = make_config(values)
        facts = Facts(3072, 10)
        network = config.model._network(facts)  # type: ignore[attr-defined]
        dim = network.dim
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
        block = block_length(1, CHAINS, dim, BATCH, 4) * CHAINS * (4 * dim + 8 * BATCH)
        expected = ROWS * 3072 * 4 + 3 * CHAINS * dim * 4 + block
        return before, peak(), expected / MIB, min(BATCH, network._chunk(1))


def main() -> None:
    """Print a line for each kind of run."""
    for store, summary in (("draws", False), ("draws", True), ("predictive", True)):
        with get_context("spawn").Pool(1) as pool:
            before, after, expected, rows = pool.apply(run_one, (store, summary))
        with get_context("spawn").Pool(1) as pool:
            expected += pool.apply(plain_pass, (rows,))
        what = f"store: {store}, {'with' if summary else 'without'} its summary"
        print(f"{what:36} imports {before:5.0f} MiB, run {after - before:5.0f}, expected {expected:5.0f}")


if __name__ == "__main__":
    main()
