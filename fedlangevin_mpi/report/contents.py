"""What a page shows of one run: numbers and pictures, gathered from its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedlangevin_mpi.config import RunConfig, make_config
from fedlangevin_mpi.errors import FedLangevinError
from fedlangevin_mpi.evaluate import exact
from fedlangevin_mpi.evaluate.exact_report import exact_report, quadratic_potentials
from fedlangevin_mpi.evaluate.held_out import predictive_of, summary_of
from fedlangevin_mpi.evaluate.recursion import Law
from fedlangevin_mpi.evaluate.summary import mean_probabilities
from fedlangevin_mpi.models.base import Model
from fedlangevin_mpi.store.metadata import SUMMARY_FILE
from fedlangevin_mpi.topology.scheduled import mixing_of

if TYPE_CHECKING:
    from fedlangevin_mpi.store.reader import Run

Array = np.ndarray[Any, np.dtype[Any]]

MOST = 200
"""How many parameters a page summarises itself, where the run left no summary."""

_LAW_SIZE = 64  # clients times dim: exact laws of more take longer than a page should
_READ_DRAWS = 2000
_CLIENT_READS = 20_000
_READ_WHOLE = 1000  # parameters that are read together, whichever are wanted


class Answers(NamedTuple):
    """Predictions of held-out rows: `probabilities (n, classes)` of the posterior predictive and labels `y (n,)`."""

    probabilities: Array
    y: Array


def summary_on_disk(run: Run) -> dict[str, Any]:
    """Return a run's summary: the one it left at its end, or one of what it has so far."""
    path = run.directory / SUMMARY_FILE
    if run.statistics is not None and path.exists():
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return found
        except (OSError, ValueError):
            pass  # made again
    return summary_of(run, most=MOST)


def worst(parameters: Mapping[str, Sequence[Any]], count: int) -> list[int]:
    """Return which parameters to look at first: the largest R-hat, then the fewest effective draws; in their order."""

    def badness(k: int) -> tuple[float, float]:
        r_hat, ess = parameters["r_hat"][k], parameters["ess_bulk"][k]
        return (-1.0 if r_hat is None else r_hat, -np.inf if ess is None else -ess)

    return sorted(sorted(range(len(parameters["name"])), key=badness, reverse=True)[:count])


def series(run: Run, columns: Sequence[int], client: int | None = None, most: int = _READ_DRAWS) -> tuple[Array, Array]:
    """Return `(draw,)` iterations and `(draw, chain, parameter)` values of some parameters, of evenly spaced draws."""
    step = max(1, -(-run.draws // most))
    draws = run.view(client)
    if run.dim <= _READ_WHOLE:
        return run.iterations[::step], draws[::step].astype(np.float64)[:, :, list(columns)]
    values = [draws[::step, :, column].astype(np.float64) for column in columns]
    return run.iterations[::step], np.stack(values, axis=-1)


def client_offsets(run: Run, columns: Sequence[int], centre: Array, sd: Array) -> Array:
    """Return, for each client, how far its mean is from `centre`: root mean square over parameters, in their `sd`."""
    most = max(10, _CLIENT_READS // (run.clients * (1 if run.dim <= _READ_WHOLE else len(columns))))
    means = np.array([series(run, columns, client, most)[1].mean((0, 1)) for client in range(run.clients)])
    offsets: Array = np.sqrt(np.mean(((means - centre) / np.where(sd > 0, sd, 1)) ** 2, axis=1))
    return offsets


def answers(run: Run) -> Answers | None:
    """Return the predictions of held-out rows; None where there are none, or the model predicts no classes."""
    try:
        predictive = predictive_of(run)
    except FedLangevinError:
        return None
    if predictive is None:
        return None
    found = mean_probabilities(run, predictive)
    return None if found is None else Answers(found, np.asarray(predictive.y))


def exact_posterior(run: Run) -> Law | None:
    """Return the exact posterior; None where it is not Gaussian, or the clients' data are not on this machine."""
    config = _quadratic_config(run)
    if config is None:
        return None
    try:
        means, precisions = quadratic_potentials(config)
        return exact.posterior(means, precisions, getattr(config.algorithm, "temperature", 1.0))
    except FedLangevinError:
        return None


def exact_average(run: Run) -> dict[str, Any] | None:
    """Return the exact law of the sampler's average over clients, `mean`, `covariance`, `w2`, ...

    None where no law is known, the data are not on this machine, or the law takes more than seconds.
    """
    config = _quadratic_config(run)
    if config is None or run.algorithm != config.algorithm.name or run.clients * run.dim > _LAW_SIZE:
        return None
    try:
        mixing = [W.toarray() for W in mixing_of(config, run.clients).matrices] if config.topologies else []
        found: dict[str, Any] = exact_report(config, mixing)["average"]
        return found
    except FedLangevinError:
        return None


def _quadratic_config(run: Run) -> RunConfig | None:
    """Return the config of a run whose potentials are quadratic; None of others, and of another version's."""
    try:
        config = make_config(run.config, str(run.directory / "run.yaml"))
    except FedLangevinError:
        return None
    known = type(config.model).quadratic is not Model.quadratic
    return config.model_copy(update={"clients": run.clients}) if known else None
