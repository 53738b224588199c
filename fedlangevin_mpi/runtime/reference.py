"""`fedlangevin reference`: draws of a config's posterior by a well-kept sampler, as a run's folder.

The sampler is the No-U-Turn sampler (NUTS; Hoffman, Gelman 2014) of nutpie, which asks for nothing but the model's own
potential and gradient. One process holds the shards of all clients: it is what federated samplers are measured
against, not one of them. Starts no MPI.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedlangevin_mpi.algorithms.serving import Serving
from fedlangevin_mpi.config import RunConfig
from fedlangevin_mpi.data.standardize import Standardization
from fedlangevin_mpi.errors import ConfigError, FedLangevinError
from fedlangevin_mpi.evaluate.held_out import write_summary_of
from fedlangevin_mpi.evaluate.target import Target, target_of
from fedlangevin_mpi.models.base import Facts
from fedlangevin_mpi.runtime import folder
from fedlangevin_mpi.runtime.placement import Placement, place
from fedlangevin_mpi.store.layout import SERVER
from fedlangevin_mpi.store.reader import open_run
from fedlangevin_mpi.store.writer import DrawWriter

log = logging.getLogger(__name__)

Array = np.ndarray[Any, np.dtype[Any]]

ALGORITHM = "nuts"


class Length(NamedTuple):
    """How long to sample.

    Attributes:
        draws: kept, of every chain.
        tune: before them, to adapt step size and mass matrix.
        chains: independent ones.
    """

    draws: int = 1000
    tune: int = 1000
    chains: int = 4


@dataclass(frozen=True)
class _Described:
    """What `run.yaml` tells of a reference."""

    config: RunConfig
    placement: Placement
    facts: Facts
    dim: int
    features: tuple[str, ...] | None
    standardization: Standardization | None
    mixing: None = None


class _Sampled(NamedTuple):
    positions: Array  # (draws, chains, dim)
    evaluations: int
    divergent: int


def reference(config: RunConfig, directory: Path, source: str, length: Length, force: bool = False) -> Path:
    """Sample the law that a config's algorithm is after, and return the folder of the draws.

    The folder opens like that of any run. Its config is the one given, with the reference's own length; its draw file
    names the algorithm `nuts` and has no client's draws, but those of the posterior (`/clients` is [-1]).

    Args:
        config: model, data, seed and the algorithm's temperature count; clients absent means 1.
        directory: of the draws.
        source: the config as it was given.
        length: how long.
        force: whether a run that the folder holds is replaced.

    Raises:
        ConfigError: nutpie is not installed, the folder is taken, or the model has no potential.
        ShardError: a shard is unreadable or does not fit the model.
        FedLangevinError: the sampler found no start, or its draws are not finite.
        StoreError: the folder cannot be written.
    """
    started = time.perf_counter()
    nutpie = _nutpie()
    folder.claim(directory, force)
    everyone = config.clients or 1
    taking_part = len(config.taking_part(everyone))
    placement = place(taking_part, 1)._replace(dropped=config.dropped_clients)
    config = _of_reference(config, everyone, directory, length)
    target = target_of(config)
    if not np.isfinite(_start(config, target)(config.seed)).all():
        raise FedLangevinError("reference: the starts of the chains are not finite")
    set_up = time.perf_counter()
    found = _sample(nutpie, config, target, length)
    done = time.perf_counter()
    clients = target.clients
    described = _Described(config, placement, clients.facts, target.dim, clients.features, clients.standardization)
    launch = {"ranks": 1, "hosts": [], "chains": length.chains, "engine": f"nutpie {nutpie.__version__}"}
    folder.create(directory, described, source, launch)
    _write(directory, config, found.positions, length.tune)
    iterations = length.tune + length.draws
    statistics = {
        "iterations": iterations,
        "wall_seconds": time.perf_counter() - started,
        "setup_seconds": set_up - started,
        "compile_seconds": 0.0,
        "iterations_per_second": iterations / (done - set_up),
        "gradient_evaluations": found.evaluations * placement.total,
        "communication": {"rounds": 0, "messages": 0, "bytes": 0, "mpi_bytes": 0},
    }
    folder.write_statistics(directory, statistics)
    write_summary_of(open_run(directory))
    if found.divergent:
        total = length.draws * length.chains
        log.warning(
            "%d of %d transitions diverged: the reference may miss parts of the posterior", found.divergent, total
        )
    return directory


def _of_reference(config: RunConfig, clients: int, directory: Path, length: Length) -> RunConfig:
    """Return the config of the reference's folder."""
    output = config.output.model_copy(update={"directory": str(directory)})
    update: dict[str, Any] = {"clients": clients, "output": output}
    if not isinstance(config.algorithm, Serving):  # whose lengths are the algorithm's own
        iterations = length.tune + length.draws
        update |= {"iterations": iterations, "warmup": length.tune, "thin": 1, "chains": length.chains}
    return config.model_copy(update=update)


def _nutpie() -> Any:
    try:
        import nutpie
        import nutpie.compiled_pyfunc
    except ImportError as error:
        raise ConfigError(f"reference needs nutpie ({error}): pip install 'fedlangevin_mpi[reference]'") from None
    return nutpie


def _start(config: RunConfig, target: Target) -> Callable[[int], Array]:
    """Return the function that draws a chain's start for a seed: of the prior, or near zero where it is flat."""

    def start(seed: int) -> Array:
        generator = np.random.default_rng(seed)
        draws = config.model.prior_draws(generator, 1, target.dim)
        return generator.standard_normal(target.dim) if draws is None else draws[0]

    return start


def _sample(nutpie: Any, config: RunConfig, target: Target, length: Length) -> _Sampled:
    def make_density() -> Callable[[Array], tuple[float, Array]]:
        def density(x: Array) -> tuple[float, Array]:
            at = x[None]
            with np.errstate(all="ignore"):  # far out, where a transition diverges
                return float(target.log_density(at)[0]), target.score(at)[0]

        return density

    def make_expand(*_: Any) -> Callable[[Array], dict[str, Array]]:
        return lambda x: {"x": np.array(x)}

    start = _start(config, target)
    make_density()(start(config.seed))  # what is wrong with the model is said here, by its own error
    model = nutpie.compiled_pyfunc.from_pyfunc(
        target.dim,
        make_density,
        make_expand,
        [np.dtype(np.float64)],
        [(target.dim,)],
        ["x"],
        make_initial_point_fn=start,
    )
    size = {"draws": length.draws, "tune": length.tune, "chains": length.chains, "seed": config.seed % 2**63}
    try:
        # One chain at a time: the model's Python holds the interpreter's lock, and its BLAS has the cores.
        trace = nutpie.sample(model, **size, cores=1, progress_bar=False)
    except RuntimeError as error:
        raise FedLangevinError(f"reference: nutpie failed: {_first_lines(str(error))}") from None
    statistics = trace.sample_stats
    tuning = trace.warmup_sample_stats.n_steps.values.sum() if "warmup_sample_stats" in trace.groups() else 0
    positions = np.moveaxis(trace.posterior["x"].values, 0, 1)
    if not np.isfinite(positions).all():
        raise FedLangevinError("reference: a draw is not finite")
    evaluations = int(statistics.n_steps.values.sum() + tuning)
    return _Sampled(positions, evaluations, int(statistics.diverging.values.sum()))


def _first_lines(text: str) -> str:
    """Return what a Rust error says before its backtrace, in one line."""
    return " ".join(text.partition("Stack backtrace")[0].split())


def _write(directory: Path, config: RunConfig, positions: Array, tune: int) -> None:
    draws, chains, dim = positions.shape
    with DrawWriter(
        directory,
        rank=0,
        ranks=1,
        clients=[SERVER],
        chains=chains,
        dim=dim,
        dtype=np.float64,
        capacity_per_block=draws,
        algorithm=ALGORITHM,
        seed=config.seed,
        coins="per_chain",  # independent, and no particles
    ) as writer:
        writer.buffer[:draws, 0] = positions
        writer.commit(draws, np.arange(tune, tune + draws))
