"""How much a run's draws will take on disk: said where it is much, and refused where there is no room."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from fedlangevin_mpi.config import RunConfig
from fedlangevin_mpi.errors import ConfigError

log = logging.getLogger(__name__)

_MUCH = 10**9


def check_space(config: RunConfig, clients: int, dim: int, directory: Path, begun: int = 0) -> None:
    """Compare the size of the draws that are to come with the free space of the folder's file system.

    Args:
        config: of the run.
        clients: who have draws: all of them, or with a server it alone.
        dim: parameters.
        directory: the run's folder, which need not be there.
        begun: iterations that were done before; their draws have their room already.

    Raises:
        ConfigError: there is less room than the draws take.
    """
    number = 4 if config.dtype == "float32" else 8
    draws = config.draws - max(0, begun - config.warmup) // config.thin
    size = draws * clients * config.chains * dim * number
    there = next(folder for folder in (directory.absolute(), *directory.absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    shape = f"{draws:,} draws of {clients} clients, {config.chains} chains, {dim:,} parameters"
    if size > free:
        raise ConfigError(
            f"thin: found {config.thin}: {shape} take {size / 1e9:.3g} GB, but {there} has {free / 1e9:.3g} GB free; "
            "allowed: a larger thin or warmup, fewer chains, or another output.directory"
        )
    if size > _MUCH:
        log.info("%s will take %.3g GB of the %.3g GB that are free", shape, size / 1e9, free / 1e9)
