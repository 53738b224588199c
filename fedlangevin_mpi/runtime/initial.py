"""Where chains start: a draw of the prior, zeros, the posterior mode, a module's own or a file, which alone can tell
clients apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize

from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.config import FileStart, MapStart, ModuleStart, PriorStart, RunConfig
from fedlangevin_mpi.errors import ConfigError, FedLangevinError
from fedlangevin_mpi.generic import Everything, gradient
from fedlangevin_mpi.keys import Purpose, generator
from fedlangevin_mpi.models.base import Facts

Array = np.ndarray[Any, np.dtype[Any]]


def initial_positions(world: World, config: RunConfig, data: Any, facts: Facts, clients_here: int, dim: int) -> Array:
    """Return `(clients_here, chains, dim)`, every client at the same `(chains, dim)` unless a file tells them apart.

    Raises:
        ConfigError: a file that cannot be read, or of another shape.
        FedLangevinError: the search for the mode failed.
    """
    if isinstance(config.initial, FileStart):
        start = _of_clients(world, config.initial.path, clients_here, (config.chains, dim))
    else:
        start = _of_chains(world, config, data, facts, clients_here, dim)
    return aligned(np.broadcast_to(start, (clients_here, config.chains, dim)), config.dtype)


def aligned(array: Array, dtype: Any) -> Array:
    """Return a copy at a multiple of 64 bytes: where torch wants it, so that a network need not copy it again."""
    size = array.size * np.dtype(dtype).itemsize
    room = np.empty(size + 63, np.uint8)
    first = -room.ctypes.data % 64
    copy: Array = room[first : first + size].view(dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _of_chains(world: World, config: RunConfig, data: Any, facts: Facts, clients_here: int, dim: int) -> Array:
    shape = (config.chains, dim)
    if isinstance(config.initial, PriorStart):
        draws = config.model.prior_draws(generator(config.seed, Purpose.INITIAL), *shape)
        return np.zeros(shape) if draws is None else draws
    if isinstance(config.initial, MapStart):
        return np.broadcast_to(posterior_mode(world, config, data, clients_here, dim), shape)
    if isinstance(config.initial, ModuleStart):
        return world.from_root(lambda: _own(config, facts))
    return np.zeros(shape)


def _own(config: RunConfig, facts: Facts) -> Array:
    start = config.model.own_draws(generator(config.seed, Purpose.INITIAL), config.chains, facts)
    if start is None:
        raise ConfigError(f"initial.name: found 'module'; allowed: for model network, found {config.model.name}")
    return start


def _of_clients(world: World, path: str, clients_here: int, shape: tuple[int, int]) -> Array:
    counts = world.comm.allgather(clients_here)
    position = world.from_root(lambda: _read(path, shape, sum(counts)))
    first = sum(counts[: world.rank])
    return position[first : first + clients_here] if position.ndim == 3 else position


def _read(path: str, shape: tuple[int, int], clients: int) -> Array:
    try:
        with np.load(path, allow_pickle=False) as file:
            position: Array = file["position"]
    except (OSError, ValueError, KeyError) as e:
        raise ConfigError(f"initial.path: {path} gives no array 'position' ({e})") from None
    if position.shape not in (shape, (clients, *shape)) or not np.isfinite(position).all():
        raise ConfigError(
            f"initial.path: position in {path} has shape {position.shape}; allowed: {shape}, or {(clients, *shape)} "
            "for starts of the clients' own, finite"
        )
    return position


def posterior_mode(world: World, config: RunConfig, data: Any, clients_here: int, dim: int) -> Array:
    """Return the minimum of `sum_i U_i`, `(dim,)`, by L-BFGS on rank 0; the others answer with sums.

    Raises:
        FedLangevinError: it did not converge.
    """

    def everywhere(position: Array) -> Array:
        """Return gradient and potential, summed over all clients, on rank 0."""
        theta = np.broadcast_to(position, (clients_here, 1, dim)).astype(config.dtype)
        slope = gradient(theta, data, Everything(clients_here), 0)
        here = np.append(slope.sum(axis=(0, 1)), config.model.potential(theta, data).sum()).astype(np.float64)
        total = np.empty(dim + 1)
        world.comm.Reduce(here, total, root=0)
        return total

    if world.rank == 0:
        mode = _drive(world, everywhere, dim)
    else:
        mode = None
        while (position := world.comm.bcast(None, root=0)) is not None:
            everywhere(position)
    found: Array | None = world.comm.bcast(mode, root=0)
    if found is None:
        raise FedLangevinError("initial: map was asked for, but the search for the mode did not converge")
    return found


def _drive(world: World, everywhere: Callable[[Array], Array], dim: int) -> Array | None:
    def objective(position: Array) -> tuple[float, Array]:
        world.comm.bcast(position, root=0)
        total = everywhere(position)
        return float(total[-1]), total[:-1]

    result = minimize(objective, np.zeros(dim), jac=True, method="L-BFGS-B", options={"maxiter": 10_000})
    world.comm.bcast(None, root=0)
    return result.x if np.isfinite(result.x).all() and np.isfinite(result.fun) else None
