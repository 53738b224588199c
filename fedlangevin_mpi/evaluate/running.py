"""The predictive of held-out rows, averaged over positions as they come, so that none of them need be kept.

A classifier's is the mean of its probabilities. A regression's is a mixture of Gaussians, of which mean, variance and
the logarithm of its density at the targets are kept; densities are added as logarithms, whatever their size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from fedlangevin_mpi.evaluate.predictive import Predictive, metrics, mixture_metrics, normal_log_densities

Array = np.ndarray[Any, np.dtype[Any]]


class Mixture(NamedTuple):
    """The predictive of a regression, a mixture of Gaussians.

    Attributes:
        mean: `(n,)` its mean.
        variance: `(n,)` its variance: that of the means over positions, and the noise's.
        log_density: `(n,)` of the targets.
    """

    mean: Array
    variance: Array
    log_density: Array


class Averaged(NamedTuple):
    """The predictive of held-out rows, averaged over positions: one of the two kinds is None.

    Attributes:
        positions: over how many, draws times chains.
        iteration: of the run, before which these positions were kept.
        probabilities: `(n, classes)` of a classifier.
        mixture: of a regression.
        smoothed: as `probabilities`, of a kernel density estimate around particles; None: there is none.
    """

    positions: int
    iteration: int
    probabilities: Array | None
    mixture: Mixture | None
    smoothed: Array | None

    def metrics(self, y: Array) -> dict[str, float]:
        """Return the metrics for labels or targets `y (n,)`, as `evaluate.predictive` names them.

        Raises:
            ValueError: the shapes do not fit, or a label is not a class.
        """
        if self.mixture is not None:
            return mixture_metrics(self.mixture.mean, self.mixture.log_density, y)
        assert self.probabilities is not None
        found = metrics(self.probabilities, y)
        if self.smoothed is not None:
            found |= {f"kde_{name}": value for name, value in metrics(self.smoothed, y).items()}
        return found


_POSITIONS = "positions"
_TOTAL = "total"
_SMOOTHED = "smoothed_total"
_MEAN = "mean"
_SQUARES = "squares"
_NOISE = "noise"
_LOG_TOTAL = "log_total"


class Running:
    """Sums over positions, and nothing else to remember: the same positions in the same order give the same bits.

    Attributes:
        positions: added so far.
        arrays: by name, the rows are the first axis of each.
    """

    def __init__(self, predictive: Predictive) -> None:
        self._predictive = predictive
        self.positions = 0
        self.arrays: dict[str, Array] = {}
        rows = len(predictive.y)
        if predictive.noise_scale is not None:
            self.arrays = {name: np.zeros(rows) for name in (_MEAN, _SQUARES, _NOISE)}
            self.arrays[_LOG_TOTAL] = np.full(rows, -np.inf)
            return
        names = [_TOTAL] if predictive.smoothed is None else [_TOTAL, _SMOOTHED]
        self.arrays = {name: np.zeros((rows, predictive.classes)) for name in names}

    def add(self, positions: Array) -> None:
        """Add the predictions at `positions (s, dim)`."""
        if len(self._predictive.y) == 0:
            pass
        elif self._predictive.noise_scale is None:
            self._add_probabilities(positions)
        else:
            self._add_densities(positions, self._predictive.noise_scale(positions))
        self.positions += len(positions)

    def _add_probabilities(self, positions: Array) -> None:
        predictive = self._predictive
        for name, predict in ((_TOTAL, predictive.predict), (_SMOOTHED, predictive.smoothed)):
            if predict is not None:
                self.arrays[name] += predict(positions, predictive.x).sum(axis=0, dtype=float)

    def _add_densities(self, positions: Array, noise_scale: Array) -> None:
        """Add means as Chan, Golub and LeVeque (1983) do: a variance small beside its mean keeps its digits."""
        means = np.asarray(self._predictive.predict(positions, self._predictive.x), dtype=float)
        arrays, before, here = self.arrays, self.positions, len(means)
        off = means.mean(axis=0) - arrays[_MEAN]
        arrays[_SQUARES] += np.square(means - means.mean(axis=0)).sum(axis=0)
        arrays[_SQUARES] += np.square(off) * (before * here / (before + here))
        arrays[_MEAN] += off * (here / (before + here))
        arrays[_NOISE] += np.square(noise_scale, dtype=float).sum()
        densities = logsumexp(normal_log_densities(means, self._predictive.y, noise_scale), axis=0)
        np.logaddexp(arrays[_LOG_TOTAL], densities, out=arrays[_LOG_TOTAL])


def padded(running: Running, bounds: Sequence[int], rows: int) -> dict[str, Array]:
    """Return the sums by owner, as a checkpoint keeps them: every array `(owners, rows, ...)`, zeros at the end.

    Args:
        running: of the rows of some owners, one behind the other.
        bounds: `(owners + 1,)` where they lie.
        rows: at least as many as any owner has.
    """
    owners = len(bounds) - 1
    found = {"rows": np.diff(bounds), _POSITIONS: np.full(owners, running.positions)}
    for name, array in running.arrays.items():
        found[name] = np.zeros((owners, rows, *array.shape[1:]))
        for owner, (first, end) in enumerate(pairwise(bounds)):
            found[name][owner, : end - first] = array[first:end]
    return found


def unpadded(arrays: Mapping[str, Array]) -> tuple[int, dict[str, Array]]:
    """Return how many positions were added, and the sums with the owners' rows one behind the other."""
    rows = arrays["rows"]
    sums = {
        name: np.concatenate([own[:count] for own, count in zip(array, rows, strict=True)])
        for name, array in arrays.items()
        if name not in ("rows", _POSITIONS)
    }
    return int(arrays[_POSITIONS][0]), sums


def averaged(arrays: Mapping[str, Array], iteration: int) -> Averaged | None:
    """Return what the sums of all owners mean; None before the first position."""
    positions, sums = unpadded(arrays)
    if not positions:
        return None
    if _TOTAL in sums:
        smoothed = sums[_SMOOTHED] / positions if _SMOOTHED in sums else None
        return Averaged(positions, iteration, sums[_TOTAL] / positions, None, smoothed)
    variance = (sums[_SQUARES] + sums[_NOISE]) / positions
    mixture = Mixture(sums[_MEAN], variance, sums[_LOG_TOTAL] - math.log(positions))
    return Averaged(positions, iteration, None, mixture, None)
