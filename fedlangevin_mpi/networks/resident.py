"""Kernels whose positions are on a GPU: they go there when a kernel is called, and come back when it returns.

The loop around a kernel, its checkpoints and its draws keep to arrays in host memory. Between two of its returns, some
iterations, positions and states are tensors; a minibatch and the noise of an iteration go to the GPU when they are
taken, and a kept position comes from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


def resident(kernel: Callable[..., None], device: str) -> Callable[..., None]:
    """Return what calls a kernel with tensors on a device in place of its arrays, which take the result.

    Args:
        kernel: as algorithms have it: `(theta, state, draws, data, batch, channel, trace, slot, start, stop)`; or its
            beginning, `(theta, state, draws, data, channel)`.
        device: as torch names it.
    """

    def called(theta: Array, state: Any, draws: Any, *others: Any) -> None:
        arrays = (theta, *state)
        there = [torch.from_numpy(array).to(device, copy=True) for array in arrays]
        noise = (_OnDemand(field, device) if _like(field, theta) else field for field in draws)
        rest = (_Kept(other) if _like(other, theta) else other for other in others)
        kernel(there[0], type(state)(*there[1:]), type(draws)(*noise), *rest)
        for array, tensor in zip(arrays, there, strict=True):
            _copy(tensor, array)

    return called


def _like(value: Any, theta: Array) -> bool:
    """Return whether it holds something of the shape of positions, many times."""
    return isinstance(value, np.ndarray) and value.shape[1:] == theta.shape


def _copy(tensor: Tensor, array: Array) -> None:
    torch.from_numpy(array).copy_(tensor)


class _OnDemand:
    """Draws of a block, of which an iteration's are on the device when they are asked for."""

    def __init__(self, draws: Array, device: str) -> None:
        self._draws, self._device = draws, device

    def __getitem__(self, k: int) -> Tensor:
        return torch.from_numpy(self._draws[k]).to(self._device)


class _Kept:
    """The draw buffer, as a kernel writes to it."""

    def __init__(self, buffer: Array) -> None:
        self._buffer = buffer

    def __setitem__(self, slot: int, theta: Tensor) -> None:
        _copy(theta, self._buffer[slot])
