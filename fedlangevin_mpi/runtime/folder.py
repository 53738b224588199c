"""A run's folder: never overwritten by accident, described by `input.yaml` and `run.yaml`, finished by statistics."""

from __future__ import annotations

import datetime
import json
import logging
import os
import platform
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedlangevin_mpi.config import dump_config, to_yaml
from fedlangevin_mpi.errors import ConfigError, StoreError
from fedlangevin_mpi.runtime.prepare import Prepared

_PACKAGES = ("fedlangevin_mpi", "numpy", "numba", "h5py", "mpi4py", "pydantic")


def claim(directory: Path, force: bool) -> None:
    """Check that a run may write to `directory`; nothing is changed.

    Raises:
        ConfigError: it holds a run and `force` is not given, or it holds something that is not a run.
    """
    if not directory.exists():
        return
    if not directory.is_dir():
        raise ConfigError(f"output.directory: {directory} is a file; allowed: a folder, made if it is not there")
    if not any(directory.iterdir()):
        return
    if not (directory / "run.yaml").exists():
        raise ConfigError(f"output.directory: {directory} holds files that are no run; allowed: a new or empty folder")
    if not force:
        raise ConfigError(
            f"output.directory: {directory} already holds a run; allowed: another folder (--output DIR), "
            "or --force to replace it"
        )


def create(directory: Path, prepared: Prepared, source: str, facts: Mapping[str, Any]) -> None:
    """Make the folder, in place of an older run, with `input.yaml` and `run.yaml`. Rank 0 only.

    Args:
        directory: claimed before.
        prepared: what the run holds.
        source: the config as it was given.
        facts: of the launch: ranks, hosts, engine, MPI library.

    Raises:
        StoreError: it cannot be written.
    """
    try:
        if directory.exists():
            _clear(directory)
        (directory / "log").mkdir(parents=True, exist_ok=True)
        (directory / "input.yaml").write_text(source, encoding="utf-8")
        resolved = _resolved(prepared) | dict(facts)
        values = dump_config(prepared.config) | {"resolved": resolved}
        (directory / "run.yaml").write_text(to_yaml(json.loads(json.dumps(values))), encoding="utf-8")
    except OSError as e:
        raise StoreError(f"{directory}: cannot be written ({e})") from None


def _clear(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _resolved(prepared: Prepared) -> dict[str, Any]:
    config = prepared.config
    shapes = config.model.parameters(prepared.facts)
    return {
        "clients": prepared.placement.total,
        "chains": config.chains,
        "dim": prepared.dim,
        "dtype": config.dtype,
        "parameters": {name: list(shape) for name, shape in shapes.items()},
        "coordinates": config.model.coordinates(prepared.facts, prepared.features),
        "facts": prepared.facts._asdict(),
        "standardization": prepared.standardization and prepared.standardization.model_dump(),
        "topologies": prepared.mixing.topologies if prepared.mixing else [],
        "versions": {name: version(name) for name in _PACKAGES} | {"python": platform.python_version()},
        "processor": platform.machine(),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON file that is whole or not there.

    Raises:
        StoreError: it cannot be written.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        aside.replace(path)
    except OSError as e:
        aside.unlink(missing_ok=True)
        raise StoreError(f"{path}: cannot be written ({e})") from None


def start_logging(directory: Path, rank: int) -> logging.Handler:
    """Send this rank's log to `log/rank-RRRRR.log` and return the handler, for the caller to remove."""
    handler = logging.FileHandler(directory / "log" / f"rank-{rank:05d}.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger("fedlangevin_mpi").addHandler(handler)
    return handler
