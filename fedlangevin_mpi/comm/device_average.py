"""The average channel of positions on a GPU whose memory MPI reads and writes itself (`messages: device`).

It needs an MPI that was built with CUDA, and Python starts it; the channel that goes through host memory is
`comm.average`. Whether MPI can do it is tried before a run writes anything.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from fedlangevin_mpi.comm.average import Counted, sums_rightly
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


class DeviceAverageChannel(Counted):
    """The exchange of FALD and its kin by one Allreduce over GPU memory; the interface is `AverageChannel`'s.

    Args:
        world: the ranks; their communicator is duplicated.
        chains, dim: shape of a client's position.
        dtype: float32 or float64.
        device: as torch names it.

    Raises:
        ConfigError: this MPI says that it cannot, or does not sum what is in GPU memory.
    """

    def __init__(self, world: World, chains: int, dim: int, dtype: np.dtype[Any], device: str) -> None:
        import torch

        self._world, self._device = world, torch.device(device)
        self._comm = world.derive(world.comm.Dup)
        self._send = torch.zeros((chains, dim), dtype=getattr(torch, dtype.name), device=device)
        self._receive = self._send if world.size == 1 else torch.zeros_like(self._send)
        self._made = np.zeros(1, np.int64)
        if world.size > 1:
            world.agree(self._check)
            right = sums_rightly(world, self._send, self._receive, self._reduce)
            world.raise_together(None if right else _refused("a sum came out wrong"))
        self.handle: Any = DeviceAverage(self._send, self._receive, self._made, self._reduce)
        """What a kernel takes as its channel."""

    def _check(self) -> None:
        """Refuse an MPI that says it knows no CUDA, which would take a GPU's addresses for its own, and crash."""
        if self._device.type == "cuda" and built_with_cuda() is False:
            raise _refused("MPIX_Query_cuda_support() says no (was it built with CUDA, and does it find a GPU?)")
        try:
            MPI.Get_address(self._send)
        except (TypeError, BufferError, ValueError) as error:
            raise _refused(f"mpi4py finds no address in a tensor: {error}") from error

    def _reduce(self) -> None:
        if self._world.size == 1:
            return
        if self._device.type == "cpu":
            self._comm.Allreduce(self._send, self._receive, op=MPI.SUM)
            return
        import torch

        with torch.cuda.device(self._device):  # of which CUDA-aware libraries think, whatever they are given
            torch.cuda.current_stream().synchronize()  # MPI knows nothing of torch's streams
            self._comm.Allreduce(self._send, self._receive, op=MPI.SUM)

    def raise_failure(self) -> None:
        """Do nothing: what fails here raised MPI's own error already."""

    def free(self) -> None:
        """Free the communicator, and let go of the handle; safe to call twice."""
        self.handle = None  # whose `reduce` holds this channel
        if self._comm != MPI.COMM_NULL:
            self._comm.Free()


def try_device_messages(world: World, device: str) -> None:
    """Refuse, on all ranks, an MPI that cannot average in a device's memory. Collective.

    Raises:
        ConfigError: as `DeviceAverageChannel`.
    """
    DeviceAverageChannel(world, 1, 1, np.dtype(np.float32), device).free()


def built_with_cuda() -> bool | None:
    """Return what MPI says; None where it cannot be asked, as one that is neither Open MPI nor MPICH."""
    library = ctypes.CDLL(MPI.__file__)  # linked to MPI, so its symbols are found
    try:
        return bool(library.MPIX_Query_cuda_support())
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
    taken = torch.from_numpy(chains).to(theta.device)[:, None]
    theta[:] = torch.where(taken, channel.receive, theta)


define(exchange, DeviceAverage, interpreted=_average)
