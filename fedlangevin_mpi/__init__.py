"""Federated and decentralised Bayesian sampling over MPI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mpi4py import MPI

    from fedlangevin_mpi.config import RunConfig
    from fedlangevin_mpi.models.custom import CustomModel as CustomModel
    from fedlangevin_mpi.store.reader import Run

__version__ = "0.1.0"
__all__ = ["CustomModel", "RunConfig", "open_run", "resume", "run"]


def run(config: RunConfig, *, comm: MPI.Intracomm | None = None, force: bool = False) -> Run:
    """Sample, on all ranks together, and return the finished run on each of them.

    Args:
        config: the same on every rank.
        comm: the ranks; COMM_WORLD by default.
        force: replace a run that the output folder holds.

    Raises:
        FedLangevinError: the same on every rank; any other exception ends the job where there are several ranks.
    """
    from fedlangevin_mpi.comm.world import World
    from fedlangevin_mpi.runtime.run import run as run_on

    directory = run_on(config, comm=comm, force=force)
    with World(comm) as world:  # until all have opened it, none may go on to replace it
        return world.agree(lambda: open_run(directory))


def resume(directory: Any, overrides: Sequence[str] = (), *, comm: MPI.Intracomm | None = None) -> Run:
    """Go on with a run that was stopped, on all ranks together, and return the finished run on each of them.

    Args:
        directory: the run's folder.
        overrides: `key=value`; `iterations` may grow.
        comm: the ranks; COMM_WORLD by default.

    Raises:
        FedLangevinError: as `run`.
    """
    from pathlib import Path

    from fedlangevin_mpi.comm.world import World
    from fedlangevin_mpi.runtime.resume import resume as go_on

    go_on(Path(directory), overrides, comm=comm)
    with World(comm) as world:
        return world.agree(lambda: open_run(directory))


def open_run(directory: Any) -> Run:
    """Open a run's folder, finished, killed or still going; needs no MPI.

    Raises:
        StoreError: a file of it is missing, unreadable, or belongs to another run.
    """
    from fedlangevin_mpi.store.reader import open_run as opened

    return opened(directory)


def __getattr__(name: str) -> Any:
    # Importing the package is quick, and starts neither MPI nor Numba: what needs them is imported when it is used.
    if name == "RunConfig":
        from fedlangevin_mpi.config import RunConfig

        return RunConfig
    if name == "CustomModel":
        from fedlangevin_mpi.models.custom import CustomModel

        return CustomModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
