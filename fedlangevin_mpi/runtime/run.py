"""A run from its config to its summary: set up together, loop over blocks, stop together."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpi4py import MPI
from threadpoolctl import threadpool_limits

from fedlangevin_mpi.algorithms.serving import Serving
from fedlangevin_mpi.comm.device_average import try_device_messages
from fedlangevin_mpi.comm.world import World, place_on_this_node
from fedlangevin_mpi.config import RunConfig, dump_config, to_yaml
from fedlangevin_mpi.errors import FedLangevinError
from fedlangevin_mpi.networks.device import device_of, taken
from fedlangevin_mpi.networks.memory import return_freed_memory
from fedlangevin_mpi.runtime import folder
from fedlangevin_mpi.runtime.checkpoint import Checkpoints, Snapshot
from fedlangevin_mpi.runtime.engine import Engine, wants_compiled
from fedlangevin_mpi.runtime.loop import BlockLoop
from fedlangevin_mpi.runtime.pace import Pace
from fedlangevin_mpi.runtime.predictive import drawn_predictive
from fedlangevin_mpi.runtime.prepare import Prepared, prepare
from fedlangevin_mpi.runtime.server_loop import ServerLoop
from fedlangevin_mpi.runtime.signals import StopRequest
from fedlangevin_mpi.runtime.space import check_space, checkpoint_bytes, natural_bytes
from fedlangevin_mpi.runtime.step_note import step_size_notes
from fedlangevin_mpi.runtime.survivors import Loss, check_shrinking, outlive
from fedlangevin_mpi.runtime.watchdog import Watchdog
from fedlangevin_mpi.store.layout import SERVER
from fedlangevin_mpi.store.metadata import CHECKPOINTS
from fedlangevin_mpi.store.writer import DrawWriter

log = logging.getLogger(__name__)


def run(
    config: RunConfig,
    *,
    comm: MPI.Intracomm | None = None,
    source: str | None = None,
    force: bool = False,
    terminal: int | None = None,
    on_loss: Callable[[int], None] = lambda _: None,
) -> Path:
    """Sample, on all ranks of `comm` together, and return the run's folder.

    Args:
        config: the same on every rank.
        comm: the ranks, COMM_WORLD by default; duplicated, not used.
        source: the text of the config as it was given, for `input.yaml`.
        force: whether a run that the folder holds is replaced.
        terminal: columns of the terminal on which rank 0 shows a bar; None: progress is logged, line by line.
        on_loss: called with the new number of this rank when others died (`on_failure: shrink`). A process that
            outlived others had better end by `os._exit`: MPI_Finalize may wait for the dead.

    Raises:
        StoppedError: it was asked to stop, and did, with a checkpoint.
        FedLangevinError: the same on every rank; any other exception ends the job of several ranks.
    """
    from fedlangevin_mpi.runtime.resume import go_on  # (which goes on by `sample`)

    start = time.perf_counter()
    directory = Path(config.output.directory)
    older: tuple[int, ...] | None = None

    def create(prepared: Prepared, launch: Mapping[str, Any]) -> list[str]:
        folder.create(directory, prepared, source or to_yaml(dump_config(config)), launch)
        lock.take(directory)
        return []

    def attempt(world: World, losses: Sequence[Loss]) -> None:
        nonlocal older
        if not losses:
            world.agree(world.check_launcher)
            world.agree(lambda: check_shrinking(world, config))
        world.survives = config.on_failure == "shrink"
        world.from_root(lambda: lock.take(directory))
        # A loss before all ranks know what the folder held is one before anything was written.
        claimed = not world.any(older is None)
        if claimed and older != world.from_root(lambda: folder.identity(directory)):
            return go_on(world, directory, [], request, start, terminal, losses)
        world.from_root(lambda: folder.claim(directory, force or claimed))
        older = world.from_root(lambda: folder.identity(directory))
        sample(world, config, request, start, create, terminal=terminal)

    with StopRequest() as request, folder.Lock() as lock:
        outlive(comm, attempt, on_loss)
    return directory


def sample(
    world: World,
    config: RunConfig,
    request: StopRequest,
    start: float,
    describe: Callable[[Prepared, Mapping[str, Any]], Sequence[str]],
    found: Snapshot | None = None,
    segment: int = 0,
    terminal: int | None = None,
) -> None:
    """Run to the last iteration, from the beginning or from a checkpoint. Collective.

    Args:
        world: the ranks.
        config: of the run.
        request: notes signals.
        start: `time.perf_counter()` when the command began, whose `max_seconds` this may be the rest of.
        describe: writes what rank 0 says of the run before the first iteration, given facts of the launch, and returns
            what else the log should warn of.
        found: the checkpoint.
        segment: of draws, the one that is begun.
        terminal: as in `run`.
    """
    rank_on_node, _ = place_on_this_node(world.comm)
    device = world.agree(lambda: device_of(config.device, rank_on_node))
    if config.messages == "device":
        try_device_messages(world, device)
    with _threads(world) as threads, taken(device):
        statistics = _draw(world, config, request, start, describe, found, segment, terminal, threads)
        # The loop goes, and with it shards and randomness: the summary takes their memory.
        world.where = lambda: "after its last iteration"
        return_freed_memory()
        directory = Path(config.output.directory)
        with _logging(directory, world):
            world.from_root(lambda: _finish(directory, statistics))


def _draw(
    world: World,
    config: RunConfig,
    request: StopRequest,
    start: float,
    describe: Callable[[Prepared, Mapping[str, Any]], Sequence[str]],
    found: Snapshot | None,
    segment: int,
    terminal: int | None,
    threads: str,
) -> dict[str, Any]:
    """Do what `sample` does up to the last draw, and return what the run took."""
    directory, now = Path(config.output.directory), time.perf_counter()
    prepared = prepare(world, config, found)
    _limit_torch(threads)
    serving = isinstance(config.algorithm, Serving)
    owners = 1 if serving else prepared.placement.total
    begun = None if segment == 0 else found.iteration if found else 0
    predictive = drawn_predictive(world, prepared)
    checkpoint = world.sum(checkpoint_bytes(prepared, predictive))
    beside = natural_bytes(prepared)
    world.from_root(lambda: check_space(config, owners, prepared.dim, directory, begun, checkpoint, beside))
    minibatch = config.algorithm.batch_size is not None
    example = prepared.example.likelihood if serving else prepared.example
    compiled = world.agree(lambda: wants_compiled(config.engine, example, minibatch))
    engine = Engine(world, compiled, config.model.fingerprint())
    launch = _launch_facts(world, engine)
    warnings = world.from_root(lambda: describe(prepared, launch))
    loop_of = ServerLoop if serving else BlockLoop
    with _logging(directory, world), loop_of(world, prepared, engine, now, predictive) as loop:
        world.where = loop.where
        log.debug("rank %d of %d, threads: %s, engine: %s", world.rank, world.size, threads, engine.name)
        if config.draws == 0:
            log.warning("warmup and thin leave no draw to store")
        for note in [*warnings, *prepared.notes(), *step_size_notes(world, prepared)]:
            log.warning("%s", note)
        if found is not None:
            loop.restore(found)
        checkpoints = Checkpoints(world, directory / CHECKPOINTS)
        watchdog = Watchdog(world, config.output.watchdog_seconds, folder.log_file(directory, world.rank))
        with (
            world.agree(lambda: _writer(world, prepared, directory, loop, segment)) as writer,
            watchdog,
        ):
            pace = Pace(config.output, request, world.rank == 0, start, watchdog)
            return loop.run(writer, pace, checkpoints, terminal if world.rank == 0 else None)


def _finish(directory: Path, statistics: dict[str, Any]) -> None:
    folder.write_statistics(directory, statistics)
    summarise_run(directory)


def summarise_run(directory: Path) -> None:
    """Write `summary.json` of a run that is complete.

    Raises:
        StoreError: it cannot be written, or a draw file not be read.
    """
    from fedlangevin_mpi.evaluate.held_out import write_summary_of
    from fedlangevin_mpi.store.reader import open_run

    write_summary_of(open_run(directory))


def _writer(world: World, prepared: Prepared, directory: Path, loop: BlockLoop | ServerLoop, segment: int) -> Any:
    """Return this rank's writer; with a server it is the server's, and the others have none."""
    config = prepared.config
    serving = isinstance(config.algorithm, Serving)
    if serving and world.rank != 0:
        return contextlib.nullcontext()
    return DrawWriter(
        directory,
        rank=world.rank,
        ranks=world.size,
        clients=[SERVER] if serving else prepared.numbers,
        chains=config.chains,
        dim=prepared.dim,
        dtype=config.dtype,
        capacity_per_block=loop.largest_draws,
        algorithm=config.algorithm.name,
        seed=config.seed,
        coins=_coins(config),
        segment=segment,
        natural=loop.natural_shape if isinstance(loop, ServerLoop) else None,
        positions=config.output.store != "predictive",
    )


def _coins(config: RunConfig) -> str:
    if isinstance(config.algorithm, Serving):
        return config.algorithm.coins
    return "none" if config.algorithm.communicates == "never" else config.coins


def _launch_facts(world: World, engine: Engine) -> dict[str, Any]:
    return {
        "ranks": world.size,
        "hosts": world.comm.allgather(MPI.Get_processor_name()),
        "engine": engine.name,
        "mpi": re.split(r"[,\n\0]", MPI.Get_library_version())[0].strip(),
    }


@contextlib.contextmanager
def _threads(world: World) -> Iterator[str]:
    """Give every rank its share of the node's cores: two ranks of two threads on two cores were three times slower."""
    import scipy.linalg  # noqa: F401  (the BLAS that compiled code calls must be loaded to be limited)

    _, ranks = place_on_this_node(world.comm)
    share = max(1, len(os.sched_getaffinity(0)) // ranks)
    with threadpool_limits(None if "OMP_NUM_THREADS" in os.environ else share):
        yield os.environ.get("OMP_NUM_THREADS", str(share))


def _limit_torch(threads: str) -> None:
    """Give torch, where a model imported it, the same share; it reads OMP_NUM_THREADS itself."""
    if "torch" in sys.modules and "OMP_NUM_THREADS" not in os.environ:
        sys.modules["torch"].set_num_threads(int(threads))


@contextlib.contextmanager
def _logging(directory: Path, world: World) -> Iterator[None]:
    handler = world.agree(lambda: folder.start_logging(directory, world.rank))
    try:
        yield
    except FedLangevinError as error:  # for who looks at the folder later; the terminal is told by who catches it
        handler.handle(log.makeRecord(log.name, logging.ERROR, __file__, 0, "%s", (error,), None))
        raise
    finally:
        logging.getLogger("fedlangevin_mpi").removeHandler(handler)
        handler.close()
