"""Where a run computes the gradients of networks: its processor, or one GPU of its node.

On a GPU, positions move there, too (`resident`); data, draws and checkpoints stay in host memory, and so do messages
unless `messages: device` gives MPI the GPU's memory (`comm.device_average`). Algorithms with a server keep their
particles in host memory, of which a position goes to the GPU with a minibatch, and its gradient comes back.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from fedlangevin_mpi.errors import ConfigError

_taken = "cpu"


def current() -> str:
    """Return torch's name of the device: `cpu` outside of a run."""
    return _taken


@contextlib.contextmanager
def taken(name: str) -> Iterator[None]:
    """Compute on a device, which `device_of` named; a run on a GPU leaves torch's settings as it found them."""
    global _taken
    with contextlib.nullcontext() if name == "cpu" else _repeatable():
        _taken = name
        try:
            yield
        finally:
            _taken = "cpu"


def device_of(kind: str, rank_on_node: int) -> str:
    """Return the device of this process; ranks of one node take its GPUs in turn.

    Args:
        kind: `cpu` or `cuda`.
        rank_on_node: among the ranks of this node.

    Raises:
        ConfigError: there is no GPU that torch can use.
    """
    if kind == "cpu":
        return "cpu"
    try:
        import torch
    except ImportError:
        raise ConfigError("device: found 'cuda', without torch: pip install 'fedlangevin_mpi[torch]'") from None
    if not torch.cuda.is_available():
        raise ConfigError(f"device: found 'cuda', but torch {torch.__version__} finds no GPU here; allowed: cpu")
    return f"cuda:{rank_on_node % torch.cuda.device_count()}"


@contextlib.contextmanager
def _repeatable() -> Iterator[None]:
    """Have torch take float32 in full precision, and operations that repeat to the bit; it warns of others."""
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it once, and asks for it
    strict = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    switches: list[tuple[Any, str]] = [
        (torch.backends.cudnn, "benchmark"),
        (torch.backends.cudnn, "allow_tf32"),
        (torch.backends.cuda.matmul, "allow_tf32"),
    ]
    before = [getattr(owner, name) for owner, name in switches]
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        for owner, name in switches:
            setattr(owner, name, False)
        yield
    finally:
        for (owner, name), value in zip(switches, before, strict=True):
            setattr(owner, name, value)
        torch.use_deterministic_algorithms(strict[0], warn_only=strict[1])
