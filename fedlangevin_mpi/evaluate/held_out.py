"""The held-out rows of a run and its model's predictions of them, rebuilt from the run's folder."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlangevin_mpi.config import RunConfig, make_config
from fedlangevin_mpi.data.shard import TestSet
from fedlangevin_mpi.errors import ConfigError, FedLangevinError
from fedlangevin_mpi.evaluate.predictive import Predictive
from fedlangevin_mpi.evaluate.summary import measured, summarise, write_summary
from fedlangevin_mpi.models.base import Facts

if TYPE_CHECKING:
    from fedlangevin_mpi.store.reader import Run

Array = np.ndarray[Any, np.dtype[Any]]

log = logging.getLogger(__name__)


def summary_of(run: Run, client: int | None = None, most: int | None = None) -> dict[str, Any]:
    """Return a run's summary with predictive metrics, where it has held-out rows; see `summarise`.

    Held-out rows that cannot be read any more cost only the metrics: the log says so.

    Raises:
        ConfigError: no such client.
        StoreError: a draw file cannot be read.
    """
    return summarise(run, client, readable_predictive(run), most)


def write_summary_of(run: Run) -> None:
    """Write a run's `summary.json`, with predictive metrics as in `summary_of`.

    Raises:
        StoreError: it cannot be written, or a draw file not be read.
    """
    write_summary(run.directory, measured(run, predictive=readable_predictive(run)))


def readable_predictive(run: Run) -> Predictive | None:
    """Return `predictive_of` a run; None, and a warning in the log, where its held-out rows cannot be read any more."""
    try:
        return predictive_of(run)
    except FedLangevinError as e:
        log.warning("no predictive metrics: %s", e)
        return None


def predictive_of(run: Run) -> Predictive | None:
    """Return the predictions of a run's held-out rows; None where there are none, or the model predicts nothing.

    Raises:
        ConfigError: the config in the run's folder is of another version, or a row has a label unknown to the model.
        ShardError: the held-out rows cannot be read.
    """
    config = make_config(run.config, str(run.directory / "run.yaml"))
    test = config.data.test_set(run.resolved.clients, config.seed)
    if test is None:
        return None
    x = config.data.design_matrix(test.x, run.resolved.standardization)
    return predictive_for(config, Facts(**run.resolved.facts), run.dim, TestSet(x, test.y), run.particles)


def predictive_for(config: RunConfig, facts: Facts, dim: int, test: TestSet, particles: bool) -> Predictive | None:
    """Return the predictions that a config's model makes of held-out rows; None where it predicts nothing.

    Args:
        config: of the run.
        facts: of its shards.
        dim: of a position.
        test: the rows, as a model takes them.
        particles: whether the algorithm's chains are particles, so that they may have a kernel density estimate.

    Raises:
        ConfigError: a row has a label that the model does not know.
    """
    x, start = np.zeros((1, facts.features)), np.zeros((1, dim), config.dtype)
    sample = config.model.predict(start, x, facts)
    regression = sample is not None and sample.ndim == 2
    if sample is None or (regression and config.model.predictive_noise(start) is None):
        return None  # predictive means without a noise scale have no likelihood
    if not regression and test.y.max(initial=0) >= sample.shape[2]:
        raise ConfigError(
            f"data: a held-out row has label {test.y.max():g}; allowed: 0 to {sample.shape[2] - 1}, the labels of the "
            "clients' rows (or model.classes)"
        )

    def predict(positions: Array, rows: Array) -> Array:
        predicted = config.model.predict(positions, rows, facts)
        assert predicted is not None
        return predicted

    def noise_scale(positions: Array) -> Array:
        found = config.model.predictive_noise(positions)
        assert found is not None
        return found

    most = config.model.predictive_positions(dim, max(1, len(test.y)))
    found = Predictive(predict, test.x, test.y, most=most, classes=0 if regression else sample.shape[2])
    if regression:
        return found._replace(noise_scale=noise_scale)
    bandwidth: float | None = getattr(config.algorithm, "kde_bandwidth", None) if particles else None
    if bandwidth is None or config.model.predict_kde(start, x, facts, bandwidth) is None:
        return found

    def smoothed(positions: Array, rows: Array) -> Array:
        predicted = config.model.predict_kde(positions, rows, facts, bandwidth)
        assert predicted is not None
        return predicted

    return found._replace(smoothed=smoothed)
