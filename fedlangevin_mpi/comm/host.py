"""Positions as MPI sees them: contiguous NumPy arrays in host memory, whatever a kernel works on."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def on_host(theta: Any, buffer: Array) -> Array:
    """Return `theta` as an array that shares its memory where it can: tensors may track gradients, or be strided.

    Raises:
        TypeError: its dtype is not the buffer's.
    """
    array: Array = theta if isinstance(theta, np.ndarray) else _tensor_on_host(theta, buffer)
    if array.dtype != buffer.dtype:
        raise TypeError(f"positions of {array.dtype} were given to a channel of {buffer.dtype}; allowed: the same")
    return array


def _tensor_on_host(theta: Any, buffer: Array) -> Array:
    expected = f"torch.{buffer.dtype}"
    if str(theta.dtype) != expected:
        raise TypeError(f"a tensor of {theta.dtype} was given to a channel of {expected}; allowed: the same")
    array: Array = theta.detach().cpu().numpy()
    return array


def put(theta: Any, values: Array, chains: Array | slice = slice(None)) -> None:
    """Set chains of `theta (clients_here, chains, dim)` to those of `values`, of the same shape or one for all clients.

    Args:
        theta: an array or a tensor, written in place.
        values: `(clients_here, chains, dim)` or `(chains, dim)`.
        chains: `(chains,)` bool, those that are set; by default all.
    """
    if isinstance(theta, np.ndarray):
        theta[:, chains] = values[..., chains, :]
    else:
        into = theta.detach()  # shares memory, so a leaf that requires gradients may be written
        into[:, chains] = into.new_tensor(values[..., chains, :])
