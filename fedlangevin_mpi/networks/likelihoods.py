"""What a network's outputs say about a row's label or target."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


class Likelihood(Protocol):
    """The law of `y` given a module's outputs."""

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return every row's negative log likelihood, `(n,)`, up to a constant."""

    def predict(self, outputs: Tensor) -> Tensor:
        """Return what is predicted of every row."""

    def problem(self, shape: tuple[int, ...], rows: int) -> str:
        """Return what is wrong with the shape of the outputs of `rows` rows, or nothing."""


class Categorical:
    """`P(y = k | x) ∝ exp(outputs[k])`.

    Args:
        classes: that the labels need.
    """

    def __init__(self, classes: int) -> None:
        self._classes = classes

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the cross entropies."""
        return cross_entropy(outputs, y, reduction="none")

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the probabilities, `(n, classes)`."""
        return torch.softmax(outputs, -1)

    def problem(self, shape: tuple[int, ...], rows: int) -> str:
        """Return what is wrong with the outputs' shape: one column a class, at least."""
        if len(shape) == 2 and shape[0] == rows and shape[1] >= self._classes:
            return ""
        return f"({rows}, k), one column for each of the classes, k = {self._classes} or more"


class Gaussian:
    """`y ~ N(output, noise_scale^2)`."""

    def __init__(self, noise_scale: float) -> None:
        self._noise_scale = noise_scale

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the squared errors over `2 noise_scale^2`."""
        return ((outputs.reshape(y.shape) - y) / self._noise_scale).square() / 2

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the means, `(n,)`."""
        return outputs.reshape(len(outputs))

    def problem(self, shape: tuple[int, ...], rows: int) -> str:
        """Return what is wrong with the outputs' shape: one number a row."""
        return "" if shape in ((rows,), (rows, 1)) else f"({rows}, 1) or ({rows},), the mean of y"
