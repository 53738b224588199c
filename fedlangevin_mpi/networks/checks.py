"""What makes a module no likelihood of single rows: refused before a run, with words for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedlangevin_mpi.networks.flat import FlatNetwork
from fedlangevin_mpi.networks.likelihoods import Likelihood

Array = np.ndarray[Any, np.dtype[Any]]


def problem_of_module(module: object) -> str:
    """Return what is wrong with a module as it stands, or nothing."""
    if not isinstance(module, nn.Module):
        return f"it returned {type(module).__name__}; allowed: a torch.nn.Module"
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not trained:
        return "it has no parameters to sample (none that requires a gradient)"
    for name, parameter in trained.items():
        if is_lazy(parameter):
            return f"parameter {name} has no shape yet; allowed: modules that know their shapes when made"
        if not parameter.is_floating_point():
            return f"parameter {name} holds {parameter.dtype}; allowed: floating-point numbers"
    for name, part in module.named_modules():
        kind = f"{name or 'it'} is {type(part).__name__}"
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            return f"{kind}, whose batch statistics tie rows together; allowed: nn.GroupNorm or nn.LayerNorm"
        dropout = part.p if isinstance(part, nn.modules.dropout._DropoutNd) else getattr(part, "dropout", 0)
        if isinstance(dropout, float) and dropout > 0:
            return f"{kind} that drops out with probability {dropout:g}; allowed: 0, since its likelihood is random"
    return ""


def problem_of_outputs(network: FlatNetwork, likelihood: Likelihood, x: Array) -> str:
    """Return what is wrong with what a module makes of some rows at its own position and beside it, or nothing.

    Its outputs must have the likelihood's shape and be finite, the same twice, and those of a row must not depend on
    the other rows; its buffers and parameters, and the rows, must stay as they are.

    Raises:
        Exception: the module's own.
    """
    rows = network.rows(x)
    network.move(network.own_position)

    def outputs(of: Tensor) -> Tensor:
        with torch.no_grad():
            return network.outputs(of)

    kept = _Kept(network, rows)
    found = outputs(rows)
    if not isinstance(found, Tensor):
        return f"forward returned {type(found).__name__}; allowed: a tensor"
    allowed = likelihood.problem(tuple(found.shape), len(x))
    if allowed:
        return f"forward of rows of shape {tuple(rows.shape)} returned shape {tuple(found.shape)}; allowed: {allowed}"
    if not found.isfinite().all():
        return "forward returned numbers that are not finite, with the parameters that the module was made with"
    if problem := kept.problem():
        return problem
    if not torch.equal(found, outputs(rows)):
        return "forward returned other numbers for the same rows the second time; allowed: nothing random (dropout)"
    alone = torch.cat([outputs(row[None]) for row in rows])
    tolerance = 1e-3 * float(found.abs().max())
    if not torch.allclose(found, alone, rtol=0, atol=tolerance):
        return "forward gave a row other numbers beside other rows; allowed: none that depend on the minibatch"
    network.move(network.beside(network.own_position))  # what multiplies by parameters made as 1 does nothing there
    kept = _Kept(network, rows)
    outputs(rows)
    return kept.problem()


class _Kept:
    """What a forward must leave as it is.

    Args:
        network: whose module has one.
        rows: that it is given.
    """

    def __init__(self, network: FlatNetwork, rows: Tensor) -> None:
        self._network, self._rows = network, rows
        self._before = {what: [tensor.clone() for tensor in tensors] for what, tensors in self._now().items()}

    def problem(self) -> str:
        """Return what has been changed, or nothing."""
        for what, tensors in self._now().items():
            if not all(map(torch.equal, self._before[what], tensors)):
                return f"forward changed {what}; allowed: {what} as they are"
        return ""

    def _now(self) -> dict[str, list[Tensor]]:
        network = self._network
        return {"its buffers": network.buffers(), "its parameters": network.parameters(), "the rows": [self._rows]}
