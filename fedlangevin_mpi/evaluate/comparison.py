"""How far a run is from the posterior: from another run that stands for it, or by the posterior's gradient alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.errors import ConfigError, StoreError
from fedlangevin_mpi.evaluate.distances import empirical_w2, sliced_w2
from fedlangevin_mpi.evaluate.held_out import readable_predictive
from fedlangevin_mpi.evaluate.predictive import agreement, total_variation
from fedlangevin_mpi.evaluate.stein_discrepancy import squared_stein_discrepancy
from fedlangevin_mpi.evaluate.summary import columns, mean_probabilities, posterior_draws, spaced_positions
from fedlangevin_mpi.evaluate.target import target_of
from fedlangevin_mpi.store.reader import no_draws

if TYPE_CHECKING:
    from fedlangevin_mpi.store.draws import Draws
    from fedlangevin_mpi.store.reader import Run

Array = np.ndarray[Any, np.dtype[Any]]

_W2_POINTS = 1000
_SLICED_POINTS = 10_000
_STEIN_POINTS = 2000
_NUMBERS = 1 << 25
_DISTANCES = ("w2", "w2_floor", "sliced_w2", "max_mean_difference", "min_sd_ratio", "max_sd_ratio")


def compare(run: Run, reference: Run, client: int | None = None) -> dict[str, Any]:
    """Return how far a run is from another one, as `summary.json` holds it under `reference`.

    Args:
        run: the average over its clients, one of them, or its particles.
        reference: stands for the posterior: a long run, or one of `fedlangevin reference`.
        client: of the run; None: the average.

    Returns:
        `directory` of the reference; `w2` of at most 1,000 positions of each, evenly spaced, and `w2_floor`, the same
        of the two halves of the reference, so what the distance of equal laws is; `sliced_w2` of at most 10,000;
        `max_mean_difference` over parameters, in standard deviations of the reference; `min_sd_ratio` and
        `max_sd_ratio`, of the run over the reference; where both predict the same held-out rows, `agreement` and
        `total_variation` of their mean predictives. None where it is not known: runs that
        averaged their predictives and stored no draws have these two alone.

    Raises:
        ConfigError: the runs have other parameters, or there is no such client.
        StoreError: a file cannot be read, or one of the runs has neither draws nor a predictive to compare.
    """
    _check(run, reference)
    predictives = _predictives(run, client, reference)
    distances: dict[str, float | None] = dict.fromkeys(_DISTANCES)
    if run.draws and reference.draws:
        distances = _distances(posterior_draws(run, client), posterior_draws(reference))
    elif not predictives:
        raise StoreError(no_draws(reference if run.draws else run))
    return {"directory": str(reference.directory), **distances, **predictives}


def _distances(draws: Draws | Array, target: Draws | Array) -> dict[str, float | None]:
    dim = draws.shape[2]
    few, many = (min(points, max(1, _NUMBERS // dim)) for points in (_W2_POINTS, _SLICED_POINTS))
    halves = spaced_positions(target, 2 * few)
    middle = len(halves) // 2
    mean, sd = _moments(draws)
    target_mean, target_sd = _moments(target)
    with np.errstate(invalid="ignore", divide="ignore"):  # a parameter that is constant, or a single draw
        off, ratio = np.abs(mean - target_mean) / target_sd, sd / target_sd
    found = (
        empirical_w2(spaced_positions(draws, few), spaced_positions(target, few)),
        empirical_w2(halves[:middle], halves[middle:]) if middle else None,
        sliced_w2(spaced_positions(draws, many), spaced_positions(target, many)),
        _finite(off.max()),
        _finite(ratio.min()),
        _finite(ratio.max()),
    )
    return dict(zip(_DISTANCES, found, strict=True))


def stein_discrepancy(run: Run, client: int | None = None) -> float:
    """Return the kernel Stein discrepancy of at most 2,000 positions of a run, evenly spaced, or of its particles.

    The root of the V-statistic with the inverse multiquadric kernel `(1 + |x - y|^2)^-1/2`. The posterior is that of
    the run's temperature. Reads the shards of all clients into this process.

    Raises:
        ConfigError: there is no such client, or the config in the run's folder is of another version.
        ShardError: a shard cannot be read any more.
        StoreError: a file cannot be read, or the run has no draws.
    """
    if not run.draws:
        raise StoreError(no_draws(run))
    config = make_config(run.config, str(run.directory / "run.yaml")).model_copy(update={"clients": run.clients})
    x = spaced_positions(posterior_draws(run, client), min(_STEIN_POINTS, max(1, _NUMBERS // run.dim))).astype(float)
    scores = target_of(config).score(x)
    return float(np.sqrt(squared_stein_discrepancy(x, scores)))


def _check(run: Run, reference: Run) -> None:
    if run.resolved.parameters != reference.resolved.parameters:
        shapes = [", ".join(f"{n} {s}" for n, s in r.resolved.parameters.items()) for r in (reference, run)]
        found = f"found {shapes[0]} in {reference.directory}"
        raise ConfigError(f"reference: {found}; allowed: the parameters of {run.directory}, {shapes[1]}")


def _moments(draws: Draws | Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of every parameter, `(dim,)`; NaN of a single position."""
    few = draws.shape[0] * draws.shape[1] < 2
    parts = [
        (series.mean((0, 1)), series.std((0, 1), ddof=1) if not few else np.full(series.shape[2], np.nan))
        for _, series in columns(draws)
    ]
    means, sds = zip(*parts, strict=True)
    return np.concatenate(means), np.concatenate(sds)


def _predictives(run: Run, client: int | None, reference: Run) -> dict[str, float]:
    found = []
    for one, of in ((run, client), (reference, None)):
        predictive = readable_predictive(one)
        probabilities = None if predictive is None else mean_probabilities(one, predictive, of)
        if predictive is None or probabilities is None:
            return {}
        found.append((probabilities, predictive.y))
    (p, y), (q, z) = found
    if p.shape != q.shape or not np.array_equal(y, z):
        return {}
    return {"agreement": agreement(p, q), "total_variation": total_variation(p, q)}


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
