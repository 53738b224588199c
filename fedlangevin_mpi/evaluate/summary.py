"""`summary.json`: what a run says about the posterior, what it cost, and how well it predicts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlangevin_mpi.evaluate import diagnostics
from fedlangevin_mpi.evaluate.predictive import Predictive, metrics, posterior_predictive, regression_metrics
from fedlangevin_mpi.store.atomic import replacing
from fedlangevin_mpi.store.metadata import SUMMARY_FILE, Statistics

if TYPE_CHECKING:
    from fedlangevin_mpi.evaluate.running import Averaged
    from fedlangevin_mpi.store.draws import Draws
    from fedlangevin_mpi.store.reader import Run

Array = np.ndarray[Any, np.dtype[Any]]

DIAGNOSED = 1000
"""Of how many parameters the diagnostics are computed, at some 10 ms each; those of a network have many more."""

CONSENSUS_DRAWS = 100
"""Of how many draws the consensus distance is computed, which reads the positions of all clients."""

_SERIES_BYTES = 32 << 20  # fewer columns of many draws would be read from whole chunks, again and again
_PREDICTIVE_NUMBERS = 1 << 25


def summarise(
    run: Run, client: int | None = None, predictive: Predictive | None = None, most: int | None = None
) -> dict[str, Any]:
    """Return what `summary.json` holds: plain numbers, lists and None, in the order of the file.

    Parameters are read and worked on some columns at a time, 32 MiB of them or one. Of more than `DIAGNOSED`
    parameters, evenly spaced ones get `mcse_mean`, `ess_bulk`, `ess_tail` and `r_hat`; the others None. Metrics are of
    the predictive averaged over at most `predictive.most` positions, evenly spaced; or over all, where the run averaged
    it itself (`output.store`), and then there is a key `averaged_draws`, how many it had. A run that stored no draw has
    None for what needs them.

    Of particles the last draw alone counts, the other draws are its history: moments and predictions are theirs, the
    diagnostics None, and there is a key `particles`, how many.

    Args:
        run: to summarise.
        client: None: the average over clients.
        predictive: None: there are no metrics.
        most: how many parameters, evenly spaced, get any number; None: all.

    Returns:
        The keys of the Contract; None where a number is not known (yet) or not finite. Of a run that gossips, also
        `consensus: {iteration, distance}`, the distance of clients from their average over time; of one without
        some clients `dropped_clients`, of one that outlived ranks `losses`, each with its `text`.

    Raises:
        ConfigError: no such client.
        StoreError: a file cannot be read.
    """
    found = measured(run, client, predictive, most)
    plain = {k: v if isinstance(v, list) else _plain(v) for k, v in found["parameters"].items()}
    return found | {"parameters": plain}


def measured(
    run: Run, client: int | None = None, predictive: Predictive | None = None, most: int | None = None
) -> dict[str, Any]:
    """Return what `summarise` does, but of every statistic of the parameters an array, NaN where that has None.

    It takes a quarter of the memory of the lists. `write_summary` writes the same file of either.

    Raises:
        ConfigError, StoreError: as `summarise`.
    """
    draws = posterior_draws(run, client)
    particles = {"particles": run.chains} if run.particles else {}
    streamed = run.predictive() if client is None else None
    # In turn: a pass of a network, the series, and names of all its weights take some 30 MiB each.
    scores = {} if predictive is None else _metrics(draws, predictive, streamed)
    numbers = _parameters(draws, run.coins == "shared", most)
    return {
        "algorithm": run.algorithm,
        "clients": run.clients,
        "ranks": run.resolved.ranks,
        "chains": run.chains,
        "dim": run.dim,
        "draws": run.draws,
        **({} if streamed is None else {"averaged_draws": streamed.positions // run.chains}),
        **_statistics(run.statistics),
        **_consensus(run),
        **particles,
        **_losses(run),
        "parameters": {"name": run.resolved.labels()} | numbers,
        "metrics": scores,
    }


def posterior_draws(run: Run, client: int | None = None) -> Draws | Array:
    """Return the draws that approximate the posterior, `(draw, chain, dim)`: all, or of particles the last one.

    Raises:
        ConfigError: no such client.
    """
    draws = run.view(client)
    last: Array = draws[-1:]
    return last if run.particles else draws


def spaced_positions(draws: Draws | Array, most: int) -> Array:
    """Return at most `most` positions, `(n, dim)`, evenly spaced over draws and, where those are too many, chains."""
    step = max(1, math.ceil(draws.shape[0] * draws.shape[1] / most))
    positions: Array = draws[::step].reshape(-1, draws.shape[2])
    return positions[:: max(1, math.ceil(len(positions) / most))]


def columns(draws: Draws | Array, which: range | None = None) -> Iterator[tuple[range, Array]]:
    """Yield some parameters at a time and their series `(chain, draw, parameters)`, float64, 32 MiB of them or one.

    Args:
        draws: `(draw, chain, dim)`.
        which: parameters, growing; None: all.
    """
    count, chains, dim = draws.shape
    width = max(1, _SERIES_BYTES // max(1, 8 * count * chains))
    which = range(dim) if which is None else which
    for part in (which[k : k + width] for k in range(0, len(which), width)):
        yield part, np.moveaxis(draws[:, :, part.start : part.stop : part.step], 1, 0).astype(np.float64)


def _consensus(run: Run) -> dict[str, dict[str, list[Any]]]:
    """Return, of a run that gossips, how far clients were from their average at evenly spaced draws and the last."""
    if not run.resolved.topologies or not run.draws:
        return {}
    step = math.ceil(run.draws / CONSENSUS_DRAWS)
    draws = range((run.draws - 1) % step, run.draws, step)
    iterations = run.iterations[draws.start :: step]
    distances = _plain(run.consensus_distance(draws))
    return {"consensus": {"iteration": iterations.tolist(), "distance": distances}}


def _losses(run: Run) -> dict[str, Any]:
    """Return whom the run lost or is without, where it is."""
    dropped = {"dropped_clients": run.dropped} if run.dropped else {}
    losses = [loss.model_dump() | {"text": loss.text()} for loss in run.resolved.losses]
    return dropped | ({"losses": losses} if losses else {})


def write_summary(directory: Path, summary: Mapping[str, Any]) -> None:
    """Write `summary.json`, whole or not at all.

    Args:
        directory: of the run.
        summary: what `summarise` or `measured` found.

    Raises:
        StoreError: it cannot be written.
    """
    with replacing(directory / SUMMARY_FILE) as partial, partial.open("w", encoding="utf-8") as file:
        # Piece by piece: a network's is long.
        json.dump(summary, file, indent=2, allow_nan=False, default=_plain_array)
        file.write("\n")


def _statistics(statistics: Statistics | None) -> dict[str, Any]:
    if statistics is not None:
        return statistics.model_dump()
    unknown: dict[str, Any] = dict.fromkeys(Statistics.model_fields)
    return unknown


def _parameters(draws: Draws | Array, coins_shared: bool, most: int | None) -> dict[str, Array]:
    dim = draws.shape[2]
    diagnosed = _evenly(dim, min(DIAGNOSED, most or DIAGNOSED))
    found: dict[str, Array] = {}
    for part, series in columns(draws, _evenly(dim, most or dim)):
        here = np.array([k for k, column in enumerate(part) if column in diagnosed], np.intp)
        for name, values in (_moments(series) | _diagnostics(series, here, coins_shared)).items():
            found.setdefault(name, np.full(dim, np.nan))[part.start : part.stop : part.step] = values
    return found


def _evenly(dim: int, most: int) -> range:
    """Return at most `most` evenly spaced columns of `dim`."""
    return range(0, dim, math.ceil(dim / most))


def _moments(series: Array) -> dict[str, Array]:
    """Return mean, standard deviation and 94 % highest density interval of every column, over draws and chains."""
    interval = diagnostics.hdi(series)
    count = series.shape[0] * series.shape[1]
    with np.errstate(invalid="ignore", divide="ignore"):  # no draw, or a single one: NaN
        mean = series.sum((0, 1)) / count
        sd = np.sqrt(np.square(series - mean).sum((0, 1)) / (count - 1 if count > 1 else np.nan))
    return {"mean": mean, "sd": sd, "hdi_low": interval[:, 0], "hdi_high": interval[:, 1]}


def _diagnostics(series: Array, columns: Array, coins_shared: bool) -> dict[str, Array]:
    picked = series[:, :, columns]
    found = {
        "mcse_mean": diagnostics.mcse_mean(picked, coins_shared),
        "ess_bulk": diagnostics.ess_bulk(picked, coins_shared),
        "ess_tail": diagnostics.ess_tail(picked, coins_shared),
        "r_hat": diagnostics.r_hat(picked),
    }
    result = {}
    for name, values in found.items():
        result[name] = np.full(series.shape[2], np.nan)
        result[name][columns] = values
    return result


def predictive_positions(draws: Draws | Array, predictive: Predictive) -> Array:
    """Return the positions `(n, dim)` over which predictions are averaged: as many as time and memory are for."""
    numbers = draws.shape[2] if predictive.noise_scale is None else max(draws.shape[2], len(predictive.y))
    return spaced_positions(draws, max(1, min(predictive.most, _PREDICTIVE_NUMBERS // numbers)))


def mean_probabilities(run: Run, predictive: Predictive, client: int | None = None) -> Array | None:
    """Return the posterior predictive of a run that classifies, `(n, classes)`: as it averaged it, or of its draws.

    Returns:
        None: it does not classify, or there is no draw.

    Raises:
        ConfigError: no such client.
        StoreError: a file cannot be read.
    """
    if predictive.noise_scale is not None:
        return None
    streamed = run.predictive() if client is None else None
    if streamed is not None:
        return streamed.probabilities
    draws = posterior_draws(run, client)
    if not len(draws):
        return None
    return posterior_predictive(predictive.predict, predictive_positions(draws, predictive), predictive.x)


def _metrics(draws: Draws | Array, predictive: Predictive, streamed: Averaged | None) -> dict[str, float | None]:
    if streamed is None and not len(draws):
        return {}
    found = streamed.metrics(predictive.y) if streamed is not None else _metrics_of_draws(draws, predictive)
    return dict(zip(found, _plain(np.array(list(found.values()))), strict=True))


def _metrics_of_draws(draws: Draws | Array, predictive: Predictive) -> dict[str, float]:
    positions = predictive_positions(draws, predictive)
    if predictive.noise_scale is None:
        found = metrics(posterior_predictive(predictive.predict, positions, predictive.x), predictive.y)
        if predictive.smoothed is not None:
            smooth = metrics(posterior_predictive(predictive.smoothed, positions, predictive.x), predictive.y)
            found |= {f"kde_{name}": value for name, value in smooth.items()}
    else:
        means = predictive.predict(positions, predictive.x)
        found = regression_metrics(means, predictive.y, predictive.noise_scale(positions))
    return found


def _plain_array(value: Any) -> list[float | None]:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a summary holds {value!r} of {type(value)}; allowed: what JSON has, and arrays")
    return _plain(value)


def _plain(values: Array) -> list[float | None]:
    """Return numbers that JSON has; it has no NaN and no infinity."""
    return [value if math.isfinite(value) else None for value in values.tolist()]
