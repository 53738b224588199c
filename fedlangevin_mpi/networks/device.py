"""Where this process computes the gradients of networks: its processor, or one GPU of its node.

Positions, draws and messages stay in host memory: a position goes to the GPU with a minibatch, its gradient comes back,
and MPI need not know of GPUs.
"""

from __future__ import annotations

import os

from fedlangevin_mpi.errors import ConfigError

_taken = "cpu"


def current() -> str:
    """Return torch's name of the device."""
    return _taken


def take(device: str, rank_on_node: int) -> None:
    """Choose the device of this process from now on; ranks of one node take its GPUs in turn.

    On a GPU, torch is told to compute the same numbers every time, and float32 in full precision.

    Args:
        device: `cpu` or `cuda`.
        rank_on_node: among the ranks of this node.

    Raises:
        ConfigError: there is no GPU that torch can use.
    """
    global _taken
    if device == "cpu":
        _taken = "cpu"
        return
    import torch

    if not torch.cuda.is_available():
        raise ConfigError(f"device: found 'cuda', but torch {torch.__version__} finds no GPU here; allowed: cpu")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, cuBLAS may choose anew every time
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    _taken = f"cuda:{rank_on_node % torch.cuda.device_count()}"
