"""A run that was stopped goes on from its last checkpoint, on as many ranks as there are now."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from fedlangevin_mpi.algorithms.serving import Serving
from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.config import RunConfig, dump_config, make_config, override
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.runtime import folder
from fedlangevin_mpi.runtime.checkpoint import Checkpoints
from fedlangevin_mpi.runtime.losses import drops, tell, without_lost
from fedlangevin_mpi.runtime.placement import placement_of
from fedlangevin_mpi.runtime.predictive import row_owners
from fedlangevin_mpi.runtime.prepare import Prepared
from fedlangevin_mpi.runtime.run import sample, summarise_run
from fedlangevin_mpi.runtime.signals import StopRequest
from fedlangevin_mpi.runtime.survivors import Loss, check_shrinking, outlive
from fedlangevin_mpi.store.layout import rank_files
from fedlangevin_mpi.store.metadata import CHECKPOINTS, SUMMARY_FILE, Resolved, read_run_file, read_statistics
from fedlangevin_mpi.store.segments import headers

log = logging.getLogger(__name__)

_FREE = (
    "iterations",
    "algorithm.global_iterations",
    "output.checkpoint_seconds",
    "output.max_seconds",
    "output.watchdog_seconds",
    "on_failure",
    "lost_clients",
)
"""Keys that a resume may change."""
_NO_CHECKPOINT = ": there is no checkpoint, so draws are made again"


def resume(
    directory: Path,
    overrides: Sequence[str] = (),
    *,
    comm: MPI.Intracomm | None = None,
    terminal: int | None = None,
    on_loss: Callable[[int], None] = lambda _: None,
) -> None:
    """Go on with a run, on all ranks of `comm` together, until its last iteration.

    Draws are bitwise those of a run that was never stopped; with averages on another number of ranks, up to rounding.

    Args:
        directory: the run's folder.
        overrides: `key=value`; `iterations` may grow, and when checkpoints are written and the run stops may change.
        comm: the ranks, COMM_WORLD by default; duplicated, not used.
        terminal: columns of the terminal on which rank 0 shows a bar; None: progress is logged, line by line.
        on_loss: called with the new number of this rank when others died (`on_failure: shrink`). A process that
            outlived others had better end by `os._exit`: MPI_Finalize may wait for the dead.

    Raises:
        ConfigError: another key was changed, or something that the run was begun with is not what it was.
        StoppedError: it was asked to stop, and did, with a checkpoint.
        FedLangevinError: the same on every rank; any other exception ends the job of several ranks.
    """
    start = time.perf_counter()

    def attempt(world: World, losses: Sequence[Loss]) -> None:
        if not losses:
            world.agree(world.check_launcher)
        world.from_root(lambda: lock.take(directory))
        go_on(world, directory, overrides, request, start, terminal, losses)

    with StopRequest() as request, folder.Lock() as lock:
        outlive(comm, attempt, on_loss)


def go_on(
    world: World,
    directory: Path,
    overrides: Sequence[str],
    request: StopRequest,
    start: float,
    terminal: int | None,
    losses: Sequence[Loss],
) -> None:
    """Go on from the last checkpoint, in a new process or in one that lost others. Collective.

    Args:
        world: the ranks.
        directory: the run's folder, locked.
        overrides, terminal: as in `resume`.
        request: notes signals.
        start: `time.perf_counter()` when the command began.
        losses: of ranks, since the command began.

    Raises:
        FedLangevinError: as from `resume`.
    """
    config, before = world.from_root(lambda: read_for_resume(directory, overrides))
    if not losses:
        world.agree(lambda: check_shrinking(world, config))
    world.survives = config.on_failure == "shrink"
    if world.from_root(lambda: is_done(directory, config)):
        world.from_root(lambda: _summary_is_there(directory))
        log.info("%s is complete: nothing to do; iterations=N with a larger N would go on", directory)
        return
    world.from_root(lambda: folder.sweep(directory))
    # Of this launch: those that `run.yaml` does not tell of yet. Losses before a resume had begun anything are none.
    new = [loss for loss in losses if loss.size <= before.ranks]
    wider, dropping = config, bool(new) and drops(world, config)
    if dropping:
        config = world.agree(lambda: without_lost(config, new))
    clients = world.agree(lambda: placement_of(config, world.size)).numbers(world.rank)
    owners = row_owners(config, clients, world.rank)
    found = Checkpoints(world, directory / CHECKPOINTS).load(clients, _draws_are_there(directory, config), owners)
    iteration = found.iteration if found else 0
    log.info("going on at iteration %d of %d%s", iteration, config.iterations, "" if found else _NO_CHECKPOINT)
    segment = world.from_root(lambda: _next_segment(directory))
    if dropping:
        began = max((loss.iteration for loss in before.losses if loss.dropped), default=0)
        config = config.model_copy(update={"warmup": iteration + config.warmup - began})
    told = tell(new, wider, dropping, before.hosts, iteration, segment)

    def describe(prepared: Prepared, launch: Mapping[str, Any]) -> list[str]:
        folder.check_same(before, prepared, dropping)
        folder.reopen(directory, prepared, before, launch, iteration, told)
        changed = folder.changed_versions(before)
        notes = [f"{change}: draws may not be those of an uninterrupted run to the bit" for change in changed]
        if dropping and config.draws == 0:
            needed = config.warmup + config.thin
            notes.append(
                f"no draw is left after warm-up; `fedlangevin resume` with iterations={needed} or more makes some"
            )
        return notes + [loss.text() for loss in told]

    sample(world, config, request, start, describe, found, segment, terminal)


def _summary_is_there(directory: Path) -> None:
    """Write the summary of a complete run where rank 0 was lost before it could."""
    if not (directory / SUMMARY_FILE).exists():
        summarise_run(directory)


def read_for_resume(directory: Path, overrides: Sequence[str] = ()) -> tuple[RunConfig, Resolved]:
    """Return the config of a run that is to go on, and what its ranks agreed on when it was begun.

    Raises:
        ConfigError: a key was changed that must not be.
        StoreError: the folder holds no run, or `run.yaml` cannot be read.
    """
    values, resolved = read_run_file(directory)
    origin = str(directory / "run.yaml")
    # The folder may have been moved, and ranks no longer say how many clients there are.
    values["output"]["directory"] = str(directory)
    values["clients"] = resolved.clients
    before = make_config(values, origin)
    changed = override(values, overrides)
    if isinstance(before.algorithm, Serving):  # an iteration of a server is a global one: either key may grow
        wanted = max(changed["iterations"], changed["algorithm"]["global_iterations"])
        changed["iterations"] = changed["algorithm"]["global_iterations"] = wanted
    config = make_config(changed, origin)
    for key, then, now in _changes(dump_config(before), dump_config(config)):
        if key not in _FREE:
            raise ConfigError(
                f"{key}: found {now!r}, but the run was begun with {then!r}; allowed in a resume: {', '.join(_FREE)}"
            )
    if rank_files(directory) and (sampler := headers(directory)[0].algorithm) != config.algorithm.name:
        raise ConfigError(f"{directory} holds draws by {sampler}; allowed in a resume: those of `fedlangevin run`")
    if config.iterations < before.iterations:
        raise ConfigError(
            f"iterations: found {config.iterations}; allowed: at least {before.iterations}, as the run was begun with"
        )
    _check_final(before, config)
    return config, resolved


def _check_final(before: RunConfig, config: RunConfig) -> None:
    """Refuse to go beyond the end of a run that keeps its end alone: the earlier end would stay as a draw."""
    final = config.algorithm.keeps == "final" and before.thin == max(1, before.iterations - before.warmup)
    if final and config.iterations > before.iterations:
        raise ConfigError(
            f"iterations: found {config.iterations}; allowed: {before.iterations}, since {config.algorithm.name} keeps "
            "its end alone; a new run can begin there by initial: {name: file}"
        )


def is_done(directory: Path, config: RunConfig) -> bool:
    """Return whether a run has come to its end."""
    statistics = read_statistics(directory)
    return statistics is not None and statistics.iterations >= config.iterations


def _changes(before: Any, after: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """Return the keys whose values differ, with both."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = dict.fromkeys([*before, *after])
        return [c for key in keys for c in _changes(before.get(key), after.get(key), f"{path}.{key}".lstrip("."))]
    return [] if before == after else [(path, before, after)]


def _draws_are_there(directory: Path, config: RunConfig) -> Callable[[int], str]:
    """Return what asks whether a checkpoint's draws are on disk: after a crash of the machine, some may not be."""

    def problem(iteration: int) -> str:
        from fedlangevin_mpi.store.reader import open_run

        wanted = max(0, iteration - config.warmup) // config.thin
        there = int(np.searchsorted(open_run(directory).iterations, iteration))
        lacking = f"{wanted} draws were made before its iteration {iteration}, {there} are on disk"
        return "" if there >= wanted else lacking

    return problem


def _next_segment(directory: Path) -> int:
    return max((segment + 1 for segment, _ in rank_files(directory)), default=0)
