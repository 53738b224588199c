"""The average channel of positions on a GPU whose memory MPI reads and writes itself (`messages: device`).

It needs an MPI that was built with CUDA, and Python starts it; the channel that goes through host memory is
`comm.average`. Whether MPI can do it is tried before the run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from fedlangevin_mpi.comm.average import sums_rightly
from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.generic import define, exchange

if TYPE_CHECKING:
    from torch import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


class DeviceAverage(NamedTuple):
    """What a kernel gets: `reduce()` sums `send` over all ranks into `receive`, tensors `(chains, dim)` on a GPU.

    `made (1,)` counts exchanges.
    """

    send: Tensor
    receive: Tensor
    made: Array
    reduce: Callable[[], None]


class DeviceAverageChannel:
    """The exchange of FALD and its kin by one Allreduce over GPU memory; the interface is `AverageChannel`'s.

    Args:
        world: the ranks; their communicator is duplicated.
        chains, dim: shape of a client's position.
        dtype: float32 or float64.
        device: as torch names it.

    Raises:
        ConfigError: this MPI was built without CUDA, or does not sum what is in GPU memory.
    """

    def __init__(self, world: World, chains: int, dim: int, dtype: np.dtype[Any], device: str) -> None:
        import torch

        self._world, self._device = world, torch.device(device)
        world.agree(lambda: _check_cuda(self._device.type))
        self._comm = world.derive(world.comm.Dup)
        self._send = torch.zeros((chains, dim), dtype=getattr(torch, dtype.name), device=device)
        self._receive = self._send if world.size == 1 else torch.zeros_like(self._send)
        self._made = np.zeros(1, np.int64)
        if world.size > 1:
            self._try()
        self.handle = DeviceAverage(self._send, self._receive, self._made, self._reduce)
        """What a kernel takes as its channel."""

    def _try(self) -> None:
        try:
            problem = "" if sums_rightly(self._world, self._send, self._receive, self._reduce) else "a sum is wrong"
        except (MPI.Exception, NotImplementedError, BufferError, TypeError) as error:
            problem = str(error) or type(error).__name__
        self._world.raise_together(_refused(problem) if problem else None)

    def _reduce(self) -> None:
        if self._world.size == 1:
            return
        if self._device.type == "cuda":  # MPI knows nothing of torch's stream
            import torch

            torch.cuda.current_stream(self._device).synchronize()
        self._comm.Allreduce(self._send, self._receive, op=MPI.SUM)

    @property
    def exchanges(self) -> int:
        """How many exchanges were made."""
        return int(self._made[0])

    @property
    def bytes_sent(self) -> int:
        """How many bytes this rank gave to MPI."""
        return 0 if self._world.size == 1 else self.exchanges * self._send.nbytes

    def raise_failure(self) -> None:
        """Do nothing: what fails here raised MPI's own error already."""

    def free(self) -> None:
        """Free the communicator; safe to call twice."""
        if self._comm != MPI.COMM_NULL:
            self._comm.Free()


def _check_cuda(kind: str) -> None:
    """Refuse an MPI that says it was built without CUDA: it would read GPU memory as its own, and crash."""
    if kind == "cuda" and built_with_cuda() is False:
        raise _refused("it was built without CUDA")


def built_with_cuda() -> bool | None:
    """Return what MPI says; None where it is none that can be asked, as those that are neither Open MPI nor MPICH."""
    library = ctypes.CDLL(MPI.__file__)  # (linked to MPI, so its symbols are found)
    try:
        return bool(library.MPIX_Query_cuda_support())
    except AttributeError:
        pass
    try:
        supported = ctypes.c_int(0)
        library.MPIX_GPU_query_support(0, ctypes.byref(supported))  # 0 is MPIX_GPU_SUPPORT_CUDA
        return bool(supported.value)
    except AttributeError:
        return None


def _refused(problem: str) -> ConfigError:
    name = MPI.Get_library_version().split(",")[0].split("\n")[0].strip("\0 ")
    return ConfigError(f"messages: found 'device', but of this MPI ({name}): {problem}; allowed: host")


def _average(theta: Tensor, channel: DeviceAverage, weights: Array, chains: Array) -> None:
    import torch

    weighted = torch.from_numpy(weights).to(theta.device)[:, None, None] * theta
    channel.send.copy_(weighted.sum(0))
    channel.reduce()
    channel.made[0] += 1
    taken = torch.from_numpy(chains).to(theta.device)
    theta[:, taken] = channel.receive[taken]


define(exchange, DeviceAverage, interpreted=_average)
