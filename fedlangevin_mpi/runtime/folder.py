"""A run's folder: never overwritten by accident, described by `input.yaml` and `run.yaml`, finished by statistics."""

from __future__ import annotations

import datetime
import json
import logging
import platform
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedlangevin_mpi.config import dump_config, to_yaml
from fedlangevin_mpi.errors import ConfigError, StoreError
from fedlangevin_mpi.runtime.prepare import Prepared
from fedlangevin_mpi.store.atomic import replacing
from fedlangevin_mpi.store.metadata import RUN_FILE, STATISTICS_FILE

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
    if not (directory / RUN_FILE).exists():
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
    except OSError as e:
        raise StoreError(f"{directory}: cannot be written ({e})") from None
    values = dump_config(prepared.config) | {"resolved": _resolved(prepared) | dict(facts)}
    _write(directory / "input.yaml", source)
    _write(directory / RUN_FILE, to_yaml(json.loads(json.dumps(values))))


def write_statistics(directory: Path, statistics: Mapping[str, Any]) -> None:
    """Write `statistics.json`, the mark of a run that came to its end.

    Raises:
        StoreError: it cannot be written.
    """
    _write(directory / STATISTICS_FILE, json.dumps(statistics, indent=2) + "\n")


def _write(path: Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


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


def start_logging(directory: Path, rank: int) -> logging.Handler:
    """Send this rank's log to `log/rank-RRRRR.log` and return the handler, for the caller to remove."""
    handler = logging.FileHandler(directory / "log" / f"rank-{rank:05d}.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger("fedlangevin_mpi").addHandler(handler)
    return handler
