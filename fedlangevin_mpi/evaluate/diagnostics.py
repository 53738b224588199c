"""Convergence diagnostics of draws `(chain, draw, *shape)`: one value a parameter, `(*shape)`.

The estimators are ArviZ's (Vehtari, Gelman, Simpson, Carpenter, Bürkner: Rank-normalization, folding, and
localization: an improved R-hat, Bayesian Analysis 2021). With fewer than four draws, or where a draw is not finite,
they are NaN; of a parameter that never changes every draw counts as effective and R-hat is NaN, as in ArviZ.

Chains that share their communication and reference coins are dependent, and counting them as independent overstates
what is known. With `coins_shared` the average over the chains is therefore one series `zbar(t)`: its own effective
size `n` gives `Var(mean) = var(zbar) / n`, and the effective size of all draws is the number of independent ones that
would know the mean as well, `var(z) n / var(zbar)`. For independent chains that is their usual, summed effective size.
The usual estimate is kept where it is the worse one: only it sees chains that disagree. `r_hat` compares chains and
cannot see what is common to all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from arviz_stats.base import array_stats
from scipy.special import ndtri
from scipy.stats import rankdata

Array = np.ndarray[Any, np.dtype[Any]]

TAIL = (0.05, 0.95)
"""The quantiles that `ess_tail` is about."""

_BLOCK = 2**20  # numbers worked on at a time: 8 MB


def r_hat(draws: Array) -> Array:
    """Return the rank-normalised split R-hat; NaN for a single chain."""

    def statistic(block: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):  # chains that do not move: no variance within
            return np.asarray(array_stats.rhat(block))

    return _per_parameter(statistic, draws, constant=np.nan, chains=2)


def ess_bulk(draws: Array, coins_shared: bool = False) -> Array:
    """Return the effective sample size of the rank-normalised draws."""

    def statistic(block: Array) -> Array:
        ess = np.asarray(array_stats.ess(block, method="bulk"))
        return np.fmin(ess, _common_ess(_rank_normalised(block))) if coins_shared else ess

    return _per_parameter(statistic, draws, constant=math.prod(np.shape(draws)[:2]))


def ess_tail(draws: Array, coins_shared: bool = False) -> Array:
    """Return the smaller of the effective sample sizes of the 5 % and the 95 % quantile."""

    def statistic(block: Array) -> Array:
        ess = np.asarray(array_stats.ess(block, method="tail", prob=TAIL))
        if coins_shared:
            for quantile in np.quantile(block, TAIL, axis=(1, 2), keepdims=True):
                ess = np.fmin(ess, _common_ess((block <= quantile).astype(float)))
        return ess

    return _per_parameter(statistic, draws, constant=math.prod(np.shape(draws)[:2]))


def mcse_mean(draws: Array, coins_shared: bool = False) -> Array:
    """Return the Monte Carlo standard error of the mean, in the parameter's units."""

    def statistic(block: Array) -> Array:
        error = np.asarray(array_stats.mcse(block, method="mean"))
        return np.fmax(error, _common_mcse(block)) if coins_shared else error

    return _per_parameter(statistic, draws, constant=0.0)


def hdi(draws: Array, prob: float = 0.94) -> Array:
    """Return the narrowest interval that holds `prob` of the draws, `(*shape, 2)`: low, high."""
    draws = np.asarray(draws, dtype=float)
    if draws.size == 0:
        return np.full((*draws.shape[2:], 2), np.nan)
    interval = np.asarray(array_stats.hdi(draws, prob=prob, axis=(0, 1)))
    return np.where(np.isfinite(draws).all(axis=(0, 1))[..., None], interval, np.nan)


def standard_error(series: Array, batches: int = 50) -> Array:
    """Return the standard error of the mean over time of a series `(draw, *shape)`, by batch means.

    For chains that share coins, give the average over the chains. A batch should be much longer than the series'
    autocorrelation time: at 20 times, the error comes out some 3 % too small. The error itself is known to about
    `1 / sqrt(2 batches)` of its size. Where the draws do not fill the batches, the first are left out.

    Raises:
        ValueError: fewer than two batches, or more batches than draws.
    """
    series = np.asarray(series, dtype=float)
    if not 2 <= batches <= len(series):
        raise ValueError(f"{batches} batches of {len(series)} draws; allowed: 2 to the number of draws")
    length = len(series) // batches
    means = series[len(series) - batches * length :].reshape(batches, length, *series.shape[1:]).mean(axis=1)
    error: Array = means.std(axis=0, ddof=1) / np.sqrt(batches)
    return error


def _per_parameter(statistic: Callable[[Array], Array], draws: Array, constant: float, chains: int = 1) -> Array:
    """Return `statistic(block)`, which maps `(parameters, chain, draw)` to `(parameters,)`, where it is defined.

    ArviZ takes a millisecond a parameter and warns about too few draws: it sees only what it can estimate.
    """
    draws = np.asarray(draws)
    flat = draws.reshape(*draws.shape[:2], math.prod(draws.shape[2:]))
    result = np.full(flat.shape[2], np.nan)
    if flat.shape[0] >= chains and flat.shape[1] >= 4:
        width = max(1, _BLOCK // (flat.shape[0] * flat.shape[1]))
        for start in range(0, len(result), width):
            block = np.ascontiguousarray(np.moveaxis(flat[:, :, start : start + width], 2, 0), dtype=float)
            finite = np.isfinite(block).all(axis=(1, 2))
            moves = finite & (block != block[:, :1, :1]).any(axis=(1, 2))
            values = np.where(finite, float(constant), np.nan)
            if moves.any():
                values[moves] = statistic(block[moves])
            result[start : start + width] = values
    return result.reshape(draws.shape[2:])


def _rank_normalised(block: Array) -> Array:
    """Return the normal scores of the ranks over all chains (Blom's offset, as in ArviZ)."""
    ranks = rankdata(block.reshape(len(block), -1), axis=1).reshape(block.shape)
    scores: Array = ndtri((ranks - 3 / 8) / (block[0].size + 1 / 4))
    return scores


def _common_mcse(block: Array) -> Array:
    """Return the standard error of the mean of the chain-averaged series."""
    return np.asarray(array_stats.mcse(block.mean(axis=1, keepdims=True), method="mean"))


def _common_ess(z: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):  # a constant average: fmin keeps the usual estimate
        ess: Array = z.var(axis=(1, 2), ddof=1) / _common_mcse(z) ** 2
    return ess
