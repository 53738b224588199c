"""What a network's outputs say about a row's label or target."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

LOG_NOISE = "log_noise_scale"


class Likelihood(Protocol):
    """The law of `y` given a module's outputs.

    Attributes:
        parameters: the shape of every parameter of its own, which lie behind the module's.
    """

    parameters: dict[str, tuple[int, ...]]

    def losses(self, outputs: Tensor, y: Tensor, own: Tensor) -> Tensor:
        """Return every row's negative log likelihood, `(n,)`, up to a constant, given its own parameters."""

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
        self.parameters: dict[str, tuple[int, ...]] = {}

    def losses(self, outputs: Tensor, y: Tensor, own: Tensor) -> Tensor:
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
    """`y ~ N(output, noise_scale^2)`.

    Args:
        noise_scale: None: its logarithm is a parameter.
    """

    def __init__(self, noise_scale: float | None) -> None:
        self._noise_scale = noise_scale
        self.parameters: dict[str, tuple[int, ...]] = {} if noise_scale is not None else {LOG_NOISE: ()}

    def losses(self, outputs: Tensor, y: Tensor, own: Tensor) -> Tensor:
        """Return the squared errors over `2 noise_scale^2`, and `log noise_scale` where that is a parameter."""
        errors = outputs.reshape(y.shape) - y
        if self._noise_scale is not None:
            return (errors / self._noise_scale).square() / 2
        return (errors * torch.exp(-own[0])).square() / 2 + own[0]

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the means, `(n,)`."""
        return outputs.reshape(len(outputs))

    def problem(self, shape: tuple[int, ...], rows: int) -> str:
        """Return what is wrong with the outputs' shape: one number a row."""
        return "" if shape in ((rows,), (rows, 1)) else f"({rows}, 1) or ({rows},), the mean of y"
