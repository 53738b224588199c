"""A run's folder: never overwritten by accident, described by `input.yaml` and `run.yaml`, finished by statistics."""

from __future__ import annotations

import datetime
import fcntl
import json
import logging
import os
import platform
import shutil
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from fedlangevin_mpi.config import RunConfig, dump_config, to_yaml
from fedlangevin_mpi.data.standardize import Standardization
from fedlangevin_mpi.errors import ConfigError, StoreError
from fedlangevin_mpi.models.base import Facts
from fedlangevin_mpi.runtime.placement import Placement
from fedlangevin_mpi.store.atomic import replacing
from fedlangevin_mpi.store.metadata import CHECKPOINTS, RUN_FILE, STATISTICS_FILE, SUMMARY_FILE, Resolved
from fedlangevin_mpi.topology.scheduled import Mixing

_PATIENCE_SECONDS = 3.0  # ranks of a job that was killed may take a moment to be gone
_PACKAGES = ("fedlangevin_mpi", "numpy", "numba", "h5py", "mpi4py", "pydantic")


class Described(Protocol):
    """What `run.yaml` tells of a run; see `runtime.prepare.Prepared`, of whose module this one is to start no MPI."""

    @property
    def config(self) -> RunConfig: ...  # noqa: D102
    @property
    def placement(self) -> Placement: ...  # noqa: D102
    @property
    def facts(self) -> Facts: ...  # noqa: D102
    @property
    def dim(self) -> int: ...  # noqa: D102
    @property
    def features(self) -> tuple[str, ...] | None: ...  # noqa: D102
    @property
    def standardization(self) -> Standardization | None: ...  # noqa: D102
    @property
    def mixing(self) -> Mixing | None: ...  # noqa: D102


class Lock:
    """Keeps two processes from writing to one folder; the system takes it back when its process ends, however it ends.

    A context manager. Where the file system has no locks, it locks nothing.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def take(self, directory: Path) -> None:
        """Lock a folder that is there, unless it is locked already.

        Raises:
            ConfigError: another process holds it, and went on to for some seconds.
            StoreError: it cannot be read.
        """
        if self._descriptor is not None or not directory.is_dir():
            return
        try:
            self._descriptor = os.open(directory, os.O_RDONLY)
        except OSError as e:
            raise StoreError(f"{directory}: cannot be read ({e})") from None
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ConfigError(f"{directory} is in use: a run is still writing to it") from None
                time.sleep(0.1)
            except OSError:
                return


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


def create(directory: Path, prepared: Described, source: str, facts: Mapping[str, Any]) -> None:
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
        _make_rooms(directory)
    except OSError as e:
        raise StoreError(f"{directory}: cannot be written ({e})") from None
    launch = _launch(0, facts)
    _write(directory / "input.yaml", source)
    _write_run_file(directory, prepared, dict(facts) | {"started": launch["started"], "launches": [launch]})


def reopen(directory: Path, prepared: Described, before: Resolved, facts: Mapping[str, Any], iteration: int) -> None:
    """Describe a run that goes on: `run.yaml` gets the config and the launch, what told of its end goes. Rank 0 only.

    Args:
        directory: of the run.
        prepared: what the run holds now.
        before: what `run.yaml` said.
        facts: of the launch.
        iteration: the next one.

    Raises:
        StoreError: it cannot be written.
    """
    launches = [launch.model_dump() for launch in before.launches]
    try:
        _make_rooms(directory)
        for name in (STATISTICS_FILE, SUMMARY_FILE):
            (directory / name).unlink(missing_ok=True)
    except OSError as e:
        raise StoreError(f"{directory}: cannot be written ({e})") from None
    more = {"started": before.started, "launches": [*launches, _launch(iteration, facts)]}
    _write_run_file(directory, prepared, dict(facts) | more)


def sweep(directory: Path) -> None:
    """Remove what a killed run had not finished writing. Rank 0 only, while no other process uses the folder."""
    for place in (directory, directory / CHECKPOINTS, *(directory / CHECKPOINTS).glob("*")):
        for partial in place.glob(".*.partial"):
            partial.unlink(missing_ok=True)


def check_same(before: Resolved, prepared: Described) -> None:
    """Refuse to go on with another model, other data or other mixing matrices than those that a run was begun with.

    Raises:
        ConfigError: naming what changed.
    """
    now = Resolved.model_validate(_resolved(prepared) | {"ranks": before.ranks})
    for name, key in (("model", "model: its code"), ("facts", "data"), ("parameters", "model: its parameters")):
        found, wanted = getattr(now, name), getattr(before, name)
        if found != wanted:
            raise ConfigError(f"{key}: found {found}; allowed: what the run was begun with, {wanted}")
    for found, wanted in zip(now.topologies, before.topologies, strict=True):
        if found.fingerprint != wanted.fingerprint:
            raise ConfigError(f"topology: {found.path} makes another W than the one that the run was begun with")


def changed_versions(before: Resolved) -> list[str]:
    """Return the packages that are of another version than when the run was begun."""
    now = _versions()
    changed = (name for name, old in before.versions.items() if now.get(name, old) != old)
    return [f"{name} {now[name]} instead of {before.versions[name]}" for name in changed]


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


def _make_rooms(directory: Path) -> None:
    for name in ("log", CHECKPOINTS):
        (directory / name).mkdir(parents=True, exist_ok=True)


def _write_run_file(directory: Path, prepared: Described, facts: Mapping[str, Any]) -> None:
    values = dump_config(prepared.config) | {"resolved": _resolved(prepared) | dict(facts)}
    _write(directory / RUN_FILE, to_yaml(json.loads(json.dumps(values))))


def _launch(iteration: int, facts: Mapping[str, Any]) -> dict[str, Any]:
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"iteration": iteration, "ranks": facts["ranks"], "hosts": facts["hosts"], "started": started}


def _resolved(prepared: Described) -> dict[str, Any]:
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
        "model": config.model.fingerprint(),
        "versions": _versions(),
        "processor": platform.machine(),
    }


def _versions() -> dict[str, str]:
    return {name: version(name) for name in _PACKAGES} | {"python": platform.python_version()}


def log_file(directory: Path, rank: int) -> Path:
    """Return the path of a rank's log."""
    return directory / "log" / f"rank-{rank:05d}.log"


def start_logging(directory: Path, rank: int) -> logging.Handler:
    """Send this rank's log to `log/rank-RRRRR.log` and return the handler, for the caller to remove."""
    handler = logging.FileHandler(log_file(directory, rank), encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger("fedlangevin_mpi").addHandler(handler)
    return handler
