"""Breiman's artificial classification problems, whose Bayes errors are known.

Breiman, Friedman, Olshen, Stone: Classification and regression trees, 1984 (waveform); Breiman: Bias, variance, and
arcing classifiers, technical report 460, Berkeley 1996 (twonorm, ringnorm). Classes are equally probable.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedlangevin_mpi.data.shard import Array
from fedlangevin_mpi.data.synthetic import GeneratedRows

_NORM_DIM = 20
_TRIANGLE = np.maximum(6 - np.abs(np.arange(1, 22) - np.array([[11], [15], [7]])), 0)  # the three waves, (3, 21)
_PAIRS = np.array([[0, 1], [0, 2], [1, 2]])  # the two waves of each class


class Norms(GeneratedRows):
    """Two normal classes in 20 dimensions, `a = 2 / sqrt(20)`.

    `twonorm`: class 0 is `N(a 1, I)`, class 1 `N(-a 1, I)`; Bayes error 2.3 %, by a plane. `ringnorm`: class 0 is
    `N(0, 4 I)`, class 1 `N(a 1, I)`; Bayes error 1.2 %, by a sphere (some versions have `a = 1 / sqrt(20)`: 1.5 %).
    """

    summary: ClassVar[str] = "Breiman's twonorm and ringnorm: two normal classes in 20 dimensions"

    name: Literal["twonorm", "ringnorm"]

    def names(self) -> list[str]:
        """Return x0 to x19."""
        return [f"x{column}" for column in range(_NORM_DIM)]

    def draw(self, rows: int, seed: int, own: np.random.Generator) -> tuple[Array, Array]:
        """Return rows of both classes, mixed."""
        y = own.integers(0, 2, rows)
        x, a = own.standard_normal((rows, _NORM_DIM)), 2 / np.sqrt(_NORM_DIM)
        first, second = (x + a, x - a) if self.name == "twonorm" else (2 * x, x + a)
        return np.where(y[:, None] == 0, first, second), y


class Waveform(GeneratedRows):
    """Three classes of 21 features: `u h_a + (1 - u) h_b + N(0, I)`, `u` uniform on [0, 1], Bayes error 14 %.

    The waves are triangles, `h_1(i) = max(6 - |i - 11|, 0)` for `i = 1, ..., 21`, `h_2` four to the right, `h_3` four
    to the left of it; class 0 mixes `h_1` and `h_2`, class 1 `h_1` and `h_3`, class 2 `h_2` and `h_3`.
    """

    summary: ClassVar[str] = "Breiman's waveform: three classes of noisy mixed waves, 21 features"

    name: Literal["waveform"] = "waveform"
    binary: bool = Field(
        default=False, description="whether classes 0 and 1 are one, 0, and class 2 is 1 (one third of the rows)"
    )

    def names(self) -> list[str]:
        """Return x0 to x20."""
        return [f"x{column}" for column in range(_TRIANGLE.shape[1])]

    def draw(self, rows: int, seed: int, own: np.random.Generator) -> tuple[Array, Array]:
        """Return rows of all classes, mixed."""
        y = own.integers(0, len(_PAIRS), rows)
        u = own.random((rows, 1))
        first, second = _TRIANGLE[_PAIRS[y]].swapaxes(0, 1)
        x = u * first + (1 - u) * second + own.standard_normal((rows, _TRIANGLE.shape[1]))
        return x, (y == 2).astype(np.int64) if self.binary else y
