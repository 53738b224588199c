"""Where chains start: a draw of the prior, zeros, the posterior mode, or a file; the same on all clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize

from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.config import FileStart, MapStart, PriorStart, RunConfig
from fedlangevin_mpi.errors import ConfigError, FedLangevinError
from fedlangevin_mpi.generic import Everything, gradient
from fedlangevin_mpi.keys import Purpose, generator

Array = np.ndarray[Any, np.dtype[Any]]


def initial_positions(world: World, config: RunConfig, data: Any, clients_here: int, dim: int) -> Array:
    """Return `(clients_here, chains, dim)`, every client at the same `(chains, dim)`.

    Raises:
        ConfigError: a file that cannot be read, or of another shape.
        FedLangevinError: the search for the mode failed.
    """
    start = _of_chains(world, config, data, dim)
    return np.ascontiguousarray(np.broadcast_to(start.astype(config.dtype), (clients_here, config.chains, dim)))


def _of_chains(world: World, config: RunConfig, data: Any, dim: int) -> Array:
    shape = (config.chains, dim)
    if isinstance(config.initial, PriorStart):
        draws = config.model.prior_draws(generator(config.seed, Purpose.INITIAL), *shape)
        return np.zeros(shape) if draws is None else draws
    if isinstance(config.initial, MapStart):
        return np.broadcast_to(posterior_mode(world, config, data, dim), shape)
    if isinstance(config.initial, FileStart):
        path = config.initial.path
        return world.from_root(lambda: _read(path, shape))
    return np.zeros(shape)


def _read(path: str, shape: tuple[int, int]) -> Array:
    try:
        with np.load(path, allow_pickle=False) as file:
            position: Array = file["position"]
    except (OSError, ValueError, KeyError) as e:
        raise ConfigError(f"initial.path: {path} gives no array 'position' ({e})") from None
    if position.shape != shape or not np.isfinite(position).all():
        raise ConfigError(f"initial.path: position in {path} has shape {position.shape}; allowed: {shape}, finite")
    return position


def posterior_mode(world: World, config: RunConfig, data: Any, dim: int) -> Array:
    """Return the minimum of `sum_i U_i`, `(dim,)`, by L-BFGS on rank 0; the others answer with sums.

    Raises:
        FedLangevinError: it did not converge.
    """

    def local(position: Array) -> Array:
        theta = np.ascontiguousarray(np.broadcast_to(position, (data_clients, 1, dim)).astype(config.dtype))
        slope = gradient(theta, data, Everything(data_clients), 0)
        return np.append(slope.sum(axis=(0, 1)), config.model.potential(theta, data).sum()).astype(np.float64)

    data_clients = len(data[0]) if not hasattr(data, "offsets") else len(data.offsets) - 1

    def everywhere(position: Array) -> Array:
        total = np.empty(dim + 1)
        world.comm.Reduce(local(position), total, root=0)
        return total

    found = _drive(world, everywhere, dim) if world.rank == 0 else _follow(world, everywhere, dim)
    mode: Array | None = world.comm.bcast(found, root=0)
    if mode is None:
        raise FedLangevinError("initial: map was asked for, but the search for the mode did not converge")
    return mode


def _drive(world: World, everywhere: Callable[[Array], Array], dim: int) -> Array | None:
    def objective(position: Array) -> tuple[float, Array]:
        world.comm.bcast(position, root=0)
        total = everywhere(position)
        return float(total[-1]), total[:-1]

    result = minimize(objective, np.zeros(dim), jac=True, method="L-BFGS-B", options={"maxiter": 10_000})
    world.comm.bcast(None, root=0)
    return result.x if np.isfinite(result.x).all() and np.isfinite(result.fun) else None


def _follow(world: World, everywhere: Callable[[Array], Array], dim: int) -> None:
    while (position := world.comm.bcast(None, root=0)) is not None:
        everywhere(position)
