"""What the eigenvalues of W say: how fast a network mixes, and which step sizes it allows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class Spectrum(NamedTuple):
    """The eigenvalues of W that matter; W has the eigenvalue one in every connected component.

    Attributes:
        lambda_2: the second largest eigenvalue, with multiplicity: 1 for a disconnected graph; 0 for one node.
        lambda_n: the smallest eigenvalue; 1 for one node, so that its step-size bounds are those of SGLD.
        gbar: `max(|lambda_2|, |lambda_N|)`: one exchange shrinks the distance to consensus by this factor, at least; 0
            for one node.
        gap: the spectral gap `1 - gbar`.
    """

    lambda_2: float
    lambda_n: float
    gbar: float
    gap: float


class StepSizeBound(NamedTuple):
    """How large a step size `eta` may be: in units of `1 / L` for DE-SGLD, of `1 / sqrt(L)` for DE-SGHMC.

    Attributes:
        stability: below it the recursion is stable on quadratic potentials.
        theory: below it the paper's theorem holds, too.
    """

    stability: float
    theory: float


def spectrum(W: Array) -> Spectrum:
    """Return the spectrum of a symmetric doubly stochastic matrix `(N, N)`."""
    values = np.clip(np.linalg.eigvalsh(W), -1, 1)
    if len(values) == 1:
        return Spectrum(0.0, 1.0, 0.0, 1.0)
    gbar = float(max(abs(values[-2]), abs(values[0])))
    return Spectrum(float(values[-2]), float(values[0]), gbar, 1 - gbar)


def step_size_bound(W: Array, L: float, mu: float, friction: float | None = None) -> StepSizeBound:
    """Return the bounds of Gürbüzbalaban, Gao, Hu, Zhu (2021) on the step size `eta`, with `s = 1 + lambda_N(W)`.

    DE-SGLD: stable below `s / L`; the theorem wants `eta < min(s / L, 1 / (L + mu))`.
    DE-SGHMC: stable while `eta^2 L < s (2 - friction eta)` and `friction eta <= 1`; the theorem wants
    `eta^2 <= s / (2 (L + mu))`, and `1 - friction eta` tiny besides.

    Args:
        W: `(N, N)` mixing matrix.
        L: largest curvature of any one client's potential.
        mu: smallest curvature of any one client's potential.
        friction: of DE-SGHMC; None for DE-SGLD.
    """
    s = 1 + spectrum(W).lambda_n
    if friction is None:
        return StepSizeBound(stability=s / L, theory=min(s / L, 1 / (L + mu)))
    root = (math.sqrt((friction * s) ** 2 + 8 * L * s) - friction * s) / (2 * L)
    return StepSizeBound(stability=min(root, 1 / friction), theory=min(math.sqrt(s / (2 * (L + mu))), 1 / friction))
