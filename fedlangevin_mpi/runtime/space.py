"""How much a run will take on disk: said where it is much, and refused where there is no room."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from fedlangevin_mpi.algorithms.base import Algorithm
from fedlangevin_mpi.algorithms.serving import Serving
from fedlangevin_mpi.config import RunConfig
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.runtime.predictive import DrawnPredictive
from fedlangevin_mpi.runtime.prepare import Prepared

log = logging.getLogger(__name__)

_MUCH = 10**9


def checkpoint_bytes(prepared: Prepared, predictive: DrawnPredictive | None) -> int:
    """Return what one checkpoint takes of this rank: positions, the algorithm's arrays, the averaged predictive.

    What agents of a server remember is not known before they do, but for the factors of PVI.
    """
    arrays = [prepared.theta]
    if isinstance(prepared.config.algorithm, Algorithm):
        arrays += [*prepared.config.algorithm.state(prepared.theta[:1])] * len(prepared.theta)
    factors = natural_bytes(prepared) * (1 + len(prepared.clients))
    return sum(array.nbytes for array in arrays) + factors + (0 if predictive is None else predictive.nbytes)


def natural_bytes(prepared: Prepared) -> int:
    """Return what the natural parameters take that are stored beside a draw; 0 where there are none."""
    algorithm = prepared.config.algorithm
    if not isinstance(algorithm, Serving) or not algorithm.natural:
        return 0
    return algorithm.served(prepared.theta[0], prepared.example).nbytes


def check_space(
    config: RunConfig,
    clients: int,
    dim: int,
    directory: Path,
    begun: int | None = None,
    checkpoint: int = 0,
    beside: int = 0,
) -> None:
    """Compare the size of what is to be written with the free space of the folder's file system.

    Args:
        config: of the run.
        clients: who have draws: all of them, or with a server it alone.
        dim: parameters.
        directory: the run's folder, which need not be there.
        begun: iterations that were done before, whose draws have their room already; None: the folder is emptied of an
            older run first.
        checkpoint: bytes of one, of all ranks; two are kept while the next is written.
        beside: bytes that are stored with the positions of a draw.

    Raises:
        ConfigError: there is less room than that.
    """
    number = 4 if config.dtype == "float32" else 8
    draws = config.draws - max(0, (begun or 0) - config.warmup) // config.thin
    each = 0 if config.output.store == "predictive" else clients * config.chains * dim * number + beside
    size = draws * each + 3 * checkpoint
    there = next(folder for folder in (directory.absolute(), *directory.absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free + (_held(directory) if begun is None else 0)
    shape = f"{draws:,} draws of {clients} clients, {config.chains} chains, {dim:,} parameters"
    shape = f"{shape} and checkpoints" if each else "checkpoints"
    if size > free:
        raise ConfigError(
            f"thin: found {config.thin}: {shape} take {size / 1e9:.3g} GB, but {there} has {free / 1e9:.3g} GB free; "
            "allowed: a larger thin or warmup, fewer chains, output.store: predictive, or another output.directory"
        )
    if size > _MUCH:
        log.info("%s will take %.3g GB of the %.3g GB that are free", shape, size / 1e9, free / 1e9)


def _held(directory: Path) -> int:
    """Return how many bytes of disk the files in a folder take."""
    try:
        return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*") if not path.is_dir())
    except OSError:  # no reason to refuse a run
        return 0
