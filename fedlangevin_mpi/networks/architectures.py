"""The modules that a config can name without code of its own: `mlp`, `lenet5`, `resnet20`."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh}


def mlp(shape: tuple[int, ...], outputs: int, hidden: Sequence[int] = (50,), activation: str = "relu") -> nn.Module:
    """Return a fully connected network.

    Args:
        shape: of a row, flattened.
        outputs: of the last layer.
        hidden: units of every hidden layer; none: a linear model.
        activation: behind every hidden layer, one of `ACTIVATIONS`.

    Raises:
        ValueError: an unknown activation, or a layer without units.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation: found {activation!r}; allowed: {', '.join(ACTIVATIONS)}")
    if any(not isinstance(units, int) or units < 1 for units in hidden):
        raise ValueError(f"hidden: found {list(hidden)}; allowed: a list of positive integers")
    sizes = [math.prod(shape), *hidden]
    layers: dict[str, nn.Module] = {"flatten": nn.Flatten()}
    for number, (inputs, units) in enumerate(pairwise(sizes)):
        layers[f"hidden{number}"] = nn.Linear(inputs, units)
        layers[f"activation{number}"] = ACTIVATIONS[activation]()
    return nn.Sequential(OrderedDict(layers, output=nn.Linear(sizes[-1], outputs)))


def lenet5(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Return LeNet-5 with rectifiers and max-pooling (LeCun, Bottou, Bengio, Haffner 1998): 61,706 parameters on MNIST.

    Args:
        shape: `(channels, side, side)`; images of less than 32 pixels are padded by 2, as MNIST's 28 are.
        outputs: of the last layer.

    Raises:
        ValueError: images of less than 12 pixels.
    """
    channels, side = _image(shape, "lenet5", smallest=12)
    padding = 2 if side < 32 else 0
    left = ((side + 2 * padding - 4) // 2 - 4) // 2
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(channels, 6, 5, padding=padding),
        "relu1": nn.ReLU(),
        "pool1": nn.MaxPool2d(2),
        "conv2": nn.Conv2d(6, 16, 5),
        "relu2": nn.ReLU(),
        "pool2": nn.MaxPool2d(2),
        "flatten": nn.Flatten(),
        "linear1": nn.Linear(16 * left**2, 120),
        "relu3": nn.ReLU(),
        "linear2": nn.Linear(120, 84),
        "relu4": nn.ReLU(),
        "output": nn.Linear(84, outputs),
    }
    return nn.Sequential(OrderedDict(layers))


def resnet20(shape: tuple[int, ...], outputs: int, groups: int = 8) -> nn.Module:
    """Return CIFAR's ResNet-20 (He, Zhang, Ren, Sun 2016, section 4.2; shortcuts without parameters).

    Group normalisation (Wu, He 2018) stands in for batch normalisation, whose statistics make a row's likelihood
    depend on the other rows of its minibatch. 269,722 parameters on CIFAR-10.

    Args:
        shape: `(channels, side, side)`.
        outputs: of the last layer.
        groups: of the normalisation; a divisor of 16.

    Raises:
        ValueError: images of less than 8 pixels, or `groups` does not divide 16.
    """
    channels, _ = _image(shape, "resnet20", smallest=8)
    if groups not in (1, 2, 4, 8, 16):
        raise ValueError(f"groups: found {groups!r}; allowed: 1, 2, 4, 8, 16")
    blocks: list[nn.Module] = []
    width = 16
    for units in (16, 32, 64):
        for _ in range(3):
            blocks.append(_Residual(width, units, groups))
            width = units
    layers: dict[str, nn.Module] = {
        "conv": nn.Conv2d(channels, 16, 3, padding=1, bias=False),
        "norm": nn.GroupNorm(groups, 16),
        "relu": nn.ReLU(),
        "blocks": nn.Sequential(*blocks),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "output": nn.Linear(64, outputs),
    }
    return nn.Sequential(OrderedDict(layers))


class _Residual(nn.Module):
    """Two convolutions and a shortcut; where the width doubles, every second pixel and channels of zeros."""

    def __init__(self, inputs: int, units: int, groups: int) -> None:
        super().__init__()
        self._stride, self._new = (1, 0) if inputs == units else (2, units - inputs)
        self.body = nn.Sequential(
            nn.Conv2d(inputs, units, 3, stride=self._stride, padding=1, bias=False),
            nn.GroupNorm(groups, units),
            nn.ReLU(),
            nn.Conv2d(units, units, 3, padding=1, bias=False),
            nn.GroupNorm(groups, units),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return `relu(body(x) + shortcut(x))`."""
        shortcut = x[:, :, :: self._stride, :: self._stride]
        half = self._new // 2
        return nn.functional.relu(self.body(x) + nn.functional.pad(shortcut, (0, 0, 0, 0, half, self._new - half)))


def _image(shape: tuple[int, ...], name: str, smallest: int) -> tuple[int, int]:
    if len(shape) != 3 or shape[1] != shape[2] or shape[1] < smallest:
        raise ValueError(f"{name} of rows of shape {shape}; allowed: (channels, side, side), side {smallest} or more")
    return shape[0], shape[1]


ARCHITECTURES: dict[str, Callable[..., nn.Module]] = {"lenet5": lenet5, "mlp": mlp, "resnet20": resnet20}
