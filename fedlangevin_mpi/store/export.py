"""Draws for ArviZ: in memory, and as a NetCDF file that ArviZ 0.x and 1.x open.

Groups and attributes follow ArviZ's InferenceData schema (https://python.arviz.org/en/stable/schema/schema.html):
`posterior` holds every parameter as `(chain, draw, *shape)`, `sample_stats` the iteration of every draw.
`observed_data` holds no row, for none leaves its client: it says what the data were.
"""

from __future__ import annotations

import json
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5netcdf
import h5py
import numpy as np

import fedlangevin_mpi
from fedlangevin_mpi.errors import StoreError
from fedlangevin_mpi.store.atomic import replacing
from fedlangevin_mpi.store.reader import no_draws

if TYPE_CHECKING:
    from fedlangevin_mpi.store.reader import Run

Array = np.ndarray[Any, np.dtype[Any]]

_BLOCK_BYTES = 16 << 20


def to_arviz(run: Run, client: int | None = None) -> Any:
    """Return a run's draws as ArviZ has them, in memory.

    Args:
        run: where they are.
        client: None: the average over clients.

    Returns:
        An `arviz.InferenceData` in ArviZ 0.x, an `xarray.DataTree` from 1.0 on.

    Raises:
        ConfigError: no such client.
        StoreError: the run averaged its predictive over its draws and stored none.
    """
    if run.kept and not run.draws:
        raise StoreError(no_draws(run))
    with warnings.catch_warnings():  # ArviZ 0.23 announces 1.0, which this serves too
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    import xarray

    attributes = _attributes(run, client)
    coordinates = {"chain": np.arange(run.chains), "draw": np.arange(run.draws)}
    posterior = {name: (_dims(run, name), values) for name, values in run.named(client).items()}
    iteration = np.tile(run.iterations, (run.chains, 1))
    groups = {
        "posterior": xarray.Dataset(posterior, coordinates | _coordinates(run), attributes["posterior"]),
        "sample_stats": xarray.Dataset(
            {"iteration": (("chain", "draw"), iteration)}, coordinates, attributes["sample_stats"]
        ),
        "observed_data": xarray.Dataset(run.resolved.facts, attrs=attributes["observed_data"]),
    }
    if arviz.__version__.startswith("0."):  # 1.x still has the name, but not the class
        return arviz.InferenceData(**groups)
    return xarray.DataTree.from_dict(groups)


def export(run: Run, path: str | Path, client: int | None = None) -> None:
    """Write a run's draws to a NetCDF-4 file, a few MiB at a time: they need not fit in memory.

    Args:
        run: where they are.
        path: of the file; one that is there is replaced, at the end.
        client: None: the average over clients.

    Raises:
        ConfigError: no such client.
        StoreError: the run has no draws, or the file cannot be written.
    """
    if not run.draws:
        raise StoreError(no_draws(run))
    draws = run.view(client)
    room = run.draws * run.chains * (run.dim * draws.dtype.itemsize + 8)
    # No lock: some file systems have none, and nobody else knows the file yet.
    with replacing(Path(path), room) as partial, h5netcdf.File(partial, "w", locking=False) as file:
        groups = _create_groups(file, run, _attributes(run, client))
        for name in run.resolved.parameters:
            groups["posterior"].create_variable(name, _dims(run, name), draws.dtype)
        for first, block in draws.blocks(_BLOCK_BYTES):
            for name, values in run.resolved.named(block).items():
                groups["posterior"][name][:, first : first + len(block)] = values
        iteration = groups["sample_stats"].create_variable("iteration", ("chain", "draw"), np.int64)
        iterations = run.iterations
        for chain in range(run.chains):
            iteration[chain] = iterations
        for name, value in run.resolved.facts.items():
            groups["observed_data"].create_variable(name, (), data=np.int64(value))


def _create_groups(file: Any, run: Run, attributes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Create the groups with their attributes and coordinates."""
    groups = {}
    for name, values in attributes.items():
        groups[name] = file.create_group(name)
        groups[name].attrs.update(values)
    for name in ("posterior", "sample_stats"):
        _coordinate(groups[name], "chain", np.arange(run.chains))
        _coordinate(groups[name], "draw", np.arange(run.draws))
    for name, labels in _coordinates(run).items():
        _coordinate(groups["posterior"], name, labels)
    return groups


def _dims(run: Run, parameter: str) -> tuple[str, ...]:
    shape = run.resolved.parameters[parameter]
    return ("chain", "draw", *(f"{parameter}_dim_{k}" for k in range(len(shape))))


def _coordinates(run: Run) -> dict[str, Array]:
    """Return the labels along every axis of every parameter, by the name of its dimension."""
    return {
        f"{name}_dim_{k}": np.asarray(labels)
        for name in run.resolved.parameters
        for k, labels in enumerate(run.resolved.axes(name))
    }


def _coordinate(group: Any, name: str, values: Array) -> None:
    group.dimensions[name] = len(values)
    if values.dtype.kind == "U":
        group.create_variable(name, (name,), h5py.string_dtype(), data=values.astype(object))
    else:
        group.create_variable(name, (name,), values.dtype, data=values)


def _attributes(run: Run, client: int | None) -> dict[str, dict[str, Any]]:
    """Return the attributes of every group; what NetCDF has no type for as JSON."""
    origin = {
        "created_at": datetime.now(UTC).isoformat(),
        "inference_library": fedlangevin_mpi.__name__,
        "inference_library_version": fedlangevin_mpi.__version__,
    }
    sampler = {
        "algorithm": run.algorithm,
        "position_of": "average over clients" if client is None else f"client {client}",
        "clients": run.clients,
        "coins": run.coins,
        "seed": run.seed,
        "config": json.dumps(run.config, default=str),
    }
    observed = {"data": json.dumps(run.config.get("data")), "model": json.dumps(run.config.get("model"))}
    if run.resolved.standardization is not None:
        observed["standardization"] = run.resolved.standardization.model_dump_json()
    return {"posterior": origin | sampler, "sample_stats": origin, "observed_data": origin | observed}
