"""How good predictions are, and how well calibrated: metrics of the posterior mean predictive on held-out rows.

Probabilities are `(n, classes)` rows that sum to 1, labels `(n,)` integers from 0. Calibration follows Guo, Pleiss,
Sun, Weinberger: On calibration of modern neural networks, ICML 2017, with their 15 bins of equal width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

Array = np.ndarray[Any, np.dtype[Any]]

BINS = 15


class Predictive(NamedTuple):
    """A model's predictions of held-out rows.

    Attributes:
        predict: maps positions `(draws, dim)` and `x` to probabilities `(draws, n, classes)` or means `(draws, n)`.
        x: `(n, p)` features, as the clients' were prepared.
        y: `(n,)` labels or targets.
        noise_scale: of a regression, maps positions to the standard deviation of a target given its mean,
            `(draws, 1)`; None: `predict` classifies.
        most: positions to predict from at most, evenly spaced ones.
        smoothed: as `predict`, of a kernel density estimate around the positions; None: there is none.
        classes: that probabilities are of; 0 of a regression.
    """

    predict: Callable[[Array, Array], Array]
    x: Array
    y: Array
    noise_scale: Callable[[Array], Array] | None = None
    most: int = 10_000
    smoothed: Callable[[Array, Array], Array] | None = None
    classes: int = 0


class Reliability(NamedTuple):
    """What a reliability diagram shows; the confidence of a prediction is its largest probability.

    Attributes:
        edges: `(bins + 1,)` from 0 to 1; a bin holds its right edge.
        confidence: `(bins,)` mean confidence, NaN where a bin is empty.
        accuracy: `(bins,)` share of right predictions, NaN where a bin is empty.
        counts: `(bins,)` predictions in a bin.
    """

    edges: Array
    confidence: Array
    accuracy: Array
    counts: Array


def posterior_predictive(
    predict: Callable[[Array, Array], Array], positions: Array, x: Array, chunk: int = 64
) -> Array:
    """Return the mean over the draws of their predictive probabilities, `(n, classes)`, in float64.

    Args:
        predict: maps positions `(s, dim)` and `x` to probabilities `(s, n, classes)`.
        positions: `(draws, dim)`, or anything that slices to it.
        x: `(n, p)` features.
        chunk: positions predicted at a time; memory grows with it and not with the draws.

    Raises:
        ValueError: there is no draw.
    """
    draws = len(positions)
    if draws == 0:
        raise ValueError("there are no draws to predict from")
    starts = range(0, draws, chunk)
    total = sum(np.asarray(predict(positions[s : s + chunk], x)).sum(axis=0, dtype=float) for s in starts)
    return np.asarray(total) / draws


def metrics(probabilities: Array, y: Array) -> dict[str, float]:
    """Return `accuracy`, `ece`, `mce`, `brier` and `nll`; each is the function of that name.

    Raises:
        ValueError: shapes do not fit, a probability is not finite or negative, or a label is not a class.
    """
    return {
        "accuracy": accuracy(probabilities, y),
        "ece": ece(probabilities, y),
        "mce": mce(probabilities, y),
        "brier": brier(probabilities, y),
        "nll": nll(probabilities, y),
    }


def accuracy(probabilities: Array, y: Array) -> float:
    """Return the share of rows whose most probable class is the label."""
    probabilities, y = _checked(probabilities, y)
    return float((probabilities.argmax(axis=1) == y).mean())


def brier(probabilities: Array, y: Array) -> float:
    """Return the Brier score, the mean of `sum_c (p_c - [y = c])^2`: from 0 to 2."""
    probabilities, y = _checked(probabilities, y)
    return float(((probabilities - np.eye(probabilities.shape[1])[y]) ** 2).sum(axis=1).mean())


def nll(probabilities: Array, y: Array) -> float:
    """Return the mean negative log-likelihood of the labels, in nats.

    A probability below the resolution of its type counts as that resolution (2e-16 in float64, as in scikit-learn):
    a zero says that rounding lost the label's probability, not that the label was impossible.
    """
    floor = np.finfo(np.result_type(np.asarray(probabilities), np.float32)).eps
    probabilities, y = _checked(probabilities, y)
    return float(-np.log(np.maximum(probabilities[np.arange(len(y)), y], floor)).mean())


def ece(probabilities: Array, y: Array, bins: int = BINS) -> float:
    """Return the expected calibration error: the mean over rows of their bin's |accuracy - confidence|."""
    table = reliability(probabilities, y, bins)
    return float(np.nansum(table.counts * np.abs(table.accuracy - table.confidence)) / table.counts.sum())


def mce(probabilities: Array, y: Array, bins: int = BINS) -> float:
    """Return the maximum calibration error: the largest |accuracy - confidence| of a bin that is not empty."""
    table = reliability(probabilities, y, bins)
    return float(np.nanmax(np.abs(table.accuracy - table.confidence)))


def reliability(probabilities: Array, y: Array, bins: int = BINS) -> Reliability:
    """Return the table of a reliability diagram, in bins of equal width of the confidence."""
    probabilities, y = _checked(probabilities, y)
    edges = np.linspace(0, 1, bins + 1)
    confidence = probabilities.max(axis=1)
    where = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    right = probabilities.argmax(axis=1) == y
    counts = np.bincount(where, minlength=bins)

    def mean(values: Array) -> Array:
        with np.errstate(invalid="ignore"):  # 0 / 0 of an empty bin
            return np.asarray(np.bincount(where, weights=values, minlength=bins) / counts)

    return Reliability(edges, mean(confidence), mean(right), counts)


def agreement(p: Array, q: Array) -> float:
    """Return the share of rows to which two predictives `(n, classes)` give the same most probable class."""
    p, q = _paired(p, q)
    return float((p.argmax(axis=1) == q.argmax(axis=1)).mean())


def total_variation(p: Array, q: Array) -> float:
    """Return the mean over rows of the total variation distance of two predictives, `1/(2n) sum |p - q|`."""
    p, q = _paired(p, q)
    return float(np.abs(p - q).sum() / (2 * len(p)))


def regression_metrics(means: Array, y: Array, noise_scale: float | Array) -> dict[str, float]:
    """Return `rmse` of the mean over the draws and `nll` of their mixture of Gaussians.

    Args:
        means: `(draws, n)` predictive mean of every draw.
        y: `(n,)` targets.
        noise_scale: standard deviation of a target given its mean, one or `(draws, 1)`.

    Raises:
        ValueError: the shapes do not fit, there is nothing to average, or the noise scale is not positive.
    """
    means, y, noise_scale = (np.asarray(given, dtype=float) for given in (means, y, noise_scale))
    if not (noise_scale > 0).all():
        raise ValueError(f"noise_scale is {noise_scale.min():g}; allowed: above 0")
    if means.ndim != 2 or y.shape != means.shape[1:] or means.size == 0:
        raise ValueError(f"means have shape {means.shape} and targets {y.shape}; allowed: (draws, n) and (n,)")
    log_mixture = logsumexp(normal_log_densities(means, y, noise_scale), axis=0) - math.log(len(means))
    return mixture_metrics(means.mean(axis=0), log_mixture, y)


def normal_log_densities(means: Array, y: Array, noise_scale: float | Array) -> Array:
    """Return the log densities of targets `y (n,)` under Gaussians of `means (draws, n)`, in float64.

    Args:
        means: predictive mean of every draw.
        y: targets.
        noise_scale: standard deviation of a target given its mean, one or `(draws, 1)`.
    """
    means, y, noise_scale = (np.asarray(given, dtype=float) for given in (means, y, noise_scale))
    found: Array = -(((y - means) / noise_scale) ** 2) / 2 - np.log(noise_scale * math.sqrt(2 * math.pi))
    return found


def mixture_metrics(mean: Array, log_density: Array, y: Array) -> dict[str, float]:
    """Return `rmse` of a predictive's mean and `nll` of its log density at the targets, each `(n,)` as `y`.

    Raises:
        ValueError: the shapes do not fit, or there is no row.
    """
    if y.shape != mean.shape or y.shape != log_density.shape or y.size == 0:
        raise ValueError(
            f"means have shape {mean.shape}, log densities {log_density.shape} and targets {y.shape}; allowed: (n,)"
        )
    return {"rmse": float(np.sqrt(((mean - y) ** 2).mean())), "nll": float(-log_density.mean())}


def _checked(probabilities: Array, y: Array) -> tuple[Array, Array]:
    """Return probabilities in float64 and labels as integers."""
    probabilities, y = np.asarray(probabilities, dtype=float), np.asarray(y)
    if probabilities.ndim != 2 or y.shape != probabilities.shape[:1] or len(y) == 0:
        raise ValueError(
            f"probabilities have shape {probabilities.shape} and labels {y.shape}; allowed: (n, classes) and (n,)"
        )
    bad = ~np.isfinite(probabilities).all(axis=1) | (probabilities < 0).any(axis=1)
    bad |= np.abs(probabilities.sum(axis=1) - 1) > 1e-3
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(f"row {row} holds the probabilities {probabilities[row]}; allowed: none negative, with sum 1")
    classes = probabilities.shape[1]
    wrong = (y != np.floor(y)) | (y < 0) | (y >= classes)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"row {row} has label {y[row]:g}; allowed: 0 to {classes - 1}")
    return probabilities, y.astype(np.intp)


def _paired(p: Array, q: Array) -> tuple[Array, Array]:
    p, q = np.asarray(p, dtype=float), np.asarray(q, dtype=float)
    if p.ndim != 2 or p.shape != q.shape or len(p) == 0:
        raise ValueError(f"the predictives have shapes {p.shape} and {q.shape}; allowed: (n, classes), twice")
    return p, q
