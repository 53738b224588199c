"""A torch module as a function of one flat parameter vector, and the gradients of its losses.

The module's parameters are views of one vector of `dim` numbers, into which a position is copied: called with them as
its author calls it, the module is a twentieth faster than by `functional_call` (LeNet-5, 64 rows). Where many positions
take one pass, they are a batch of such vectors.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedlangevin_mpi.data.augmentation import augmented
from fedlangevin_mpi.generic import AugmentedRows
from fedlangevin_mpi.networks.likelihoods import Likelihood

Array = np.ndarray[Any, np.dtype[Any]]

_TOGETHER = 4
"""Positions from which on one vectorised pass is faster than a pass each (2 cores, float32: 8-50-1 with 100 rows, 1.2
against 6.6 ms for 20 positions, even for 2; 784-100-10 with 8 rows even for 4)."""

_CONVOLVED_ROWS = 8
"""Rows a position up to which that holds for convolutions (LeNet-5, 20 positions, 8 rows: 29 against 35 ms; 32 rows:
110 against 90 ms)."""

_FEW_NUMBERS = 10**5
"""Numbers in all positions up to which autograd outside of vmap is faster than inside (20 positions of 8-50-1: 0.9
against 1.1 ms; of 784-100-10: 13.1 against 10.5 ms)."""

_CHUNK_BYTES = 24 << 20
"""What autograd may keep of a chunk of rows, and of many positions in one pass (resnet20: 11 rows, as fast as 64)."""

_LARGEST_CHUNK = 4096


class FlatNetwork:
    """A module with its parameters in one vector.

    Args:
        module: whose forward takes rows `(n, *row_shape)`; copied.
        likelihood: of `y`, given what it returns.
        row_shape: that a row of `x` is given.
        dtype: of positions and rows.
        device: where the module computes.

    Attributes:
        shapes: of every parameter that is sampled, by name, in the order of a position: the module's, then the
            likelihood's own.
        dim: how many numbers they hold.
    """

    def __init__(
        self, module: nn.Module, likelihood: Likelihood, row_shape: tuple[int, ...], dtype: Any, device: str = "cpu"
    ) -> None:
        self._device = torch.device(device)
        self._module = copy.deepcopy(module).to(self._device, torch.from_numpy(np.empty(0, dtype)).dtype)
        self._likelihood, self._row_shape = likelihood, row_shape
        trained = {name: p for name, p in self._module.named_parameters() if p.requires_grad}
        self._of_module = {name: tuple(p.shape) for name, p in trained.items()}
        self.shapes = self._of_module | likelihood.parameters
        self._sizes = [math.prod(shape) for shape in self.shapes.values()]
        self.dim = sum(self._sizes)
        self._of_likelihood = sum(map(math.prod, self._of_module.values()))
        self.own_position = self.position_of(self._module)
        self._position = self.own_position.clone()
        self._own = self._position[self._of_likelihood :].requires_grad_()
        self._leaves = [*self._bind(trained), self._own]
        self._convolves = any(isinstance(m, nn.modules.conv._ConvNd) for m in self._module.modules())
        self._vectorises = True
        self._row_bytes: int | None = None

    def _bind(self, trained: Mapping[str, nn.Parameter]) -> Iterator[nn.Parameter]:
        """Make the module's parameters views of `_position`."""
        for parameter, (_, view) in zip(trained.values(), self._views(self._position), strict=True):
            parameter.data = view
            yield parameter

    def _views(self, position: Tensor) -> Iterator[tuple[str, Tensor]]:
        parts = zip(self._of_module.items(), position.split_with_sizes(self._sizes), strict=False)
        return ((name, part.view(shape)) for (name, shape), part in parts)

    def outputs(self, x: Tensor) -> Tensor:
        """Return what the module makes of rows `x (n, *row_shape)` where it was last moved, or made."""
        return self._module(x)  # type: ignore[no-any-return]

    def _outputs_at(self, position: Tensor, x: Tensor) -> Tensor:
        """Return that at a position, which may be one of many under `vmap`."""
        return functional_call(self._module, dict(self._views(position)), (x,))  # type: ignore[no-any-return]

    def position_of(self, module: nn.Module) -> Tensor:
        """Return the position of a module of this kind, `(dim,)`; the likelihood's own parameters are 0."""
        trained = [p.detach().reshape(-1) for p in module.parameters() if p.requires_grad]
        return torch.cat([*trained, trained[0].new_zeros(self.dim - sum(map(len, trained)))])

    def buffers(self) -> list[Tensor]:
        """Return the module's buffers, which are constants."""
        return list(self._module.buffers())

    def parameters(self) -> list[Tensor]:
        """Return the module's parameters where it was last moved."""
        return [p.detach() for p in self._module.parameters()]

    def rows(self, x: Array) -> Tensor:
        """Return a copy of rows `(..., p)` as the module takes them."""
        return self._there(x).reshape(*x.shape[:-1], *self._row_shape)

    def _there(self, array: Array) -> Tensor:
        """Return a copy where the module computes, on a processor at an address that torch chose (`_aligned`)."""
        return torch.from_numpy(array).to(self._device, copy=True)

    def _positions(self, theta: Array | Tensor) -> Tensor:
        """Return positions where the module computes; they share memory with `theta` where it is there."""
        given = torch.from_numpy(theta) if isinstance(theta, np.ndarray) else theta.detach()
        return given.to(self._device)

    def move(self, position: Array | Tensor) -> None:
        """Give the module the parameters of a position.

        Raises:
            TypeError: it has another type than the network.
        """
        given = torch.as_tensor(position)
        if given.dtype != self._position.dtype:
            raise TypeError(f"a position of {given.dtype} for a network of {self._position.dtype}")
        self._position.copy_(given)

    def _loss(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Return `sum_j weight_j U_j`, of rows `(n, *row_shape)`, where the module was last moved."""
        return (weight * self._likelihood.losses(self.outputs(x), y, self._own)).sum()

    def _loss_at(self, position: Tensor, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Return that at a position, which may be one of many under `vmap`."""
        own = position[self._of_likelihood :]
        return (weight * self._likelihood.losses(self._outputs_at(position, x), y, own)).sum()

    def probe(self, x: Array) -> None:
        """Learn from a row of `x (n, p)` how much memory one takes, and whether the module can be vectorised.

        It can where many positions at once have the outputs of one by one: not where vmap does not know an operation,
        or the module has its parameters from somewhere that `functional_call` does not see.
        """
        rows = self.rows(x[:1].repeat(2, axis=0))
        self.move(self.own_position)
        self._row_bytes = self._kept(rows) - self._kept(rows[:1])
        positions = torch.stack([self.own_position, self.beside(self.own_position)])
        with torch.no_grad():
            try:
                together = vmap(self._outputs_at)(positions, rows[:, None])
            except Exception:
                self._vectorises = False
                return
            for position, row, found in zip(positions, rows, together, strict=True):
                self.move(position)
                alone = self.outputs(row[None])
                self._vectorises &= torch.allclose(found, alone, rtol=1e-3, atol=1e-3 * float(alone.abs().max()))

    @staticmethod
    def beside(position: Tensor) -> Tensor:
        """Return a position that differs from another in every coordinate."""
        return 1.1 * position + 0.01

    def _kept(self, rows: Tensor) -> int:
        """Return how many bytes autograd keeps of a forward pass."""
        sizes: list[int] = []

        def keep(tensor: Tensor) -> Tensor:
            sizes.append(tensor.nbytes)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            self.outputs(rows)
        return sum(sizes)

    def gradient_of_rows(self, theta: Array | Tensor, data: Any, batch: Any, k: int) -> Array | Tensor:
        """Return `gradient` for `Rows` and `AugmentedRows`, of the kind of `theta`; `data` is a `NetworkData`."""
        positions = self._positions(theta)
        out = self._likelihood_of_rows(positions, data, batch, k)
        _add_prior(out, positions, data)
        return _as_given(out, theta)

    def _likelihood_of_rows(self, theta: Tensor, data: Any, batch: Any, k: int) -> Tensor:
        clients, chains, dim = theta.shape
        n = batch.row.shape[3]
        if self._at_once(clients * chains, n):
            weight = self._there(batch.weight)[:, None].expand(clients, chains, n).reshape(-1, n)
            x, y = (rows.flatten(0, 1) for rows in self._minibatch(data, batch, k, ...))
            return self._slopes(theta.reshape(-1, dim), 0, x, y, weight).reshape(theta.shape)
        out = torch.zeros_like(theta)
        for c, j in np.ndindex(clients, chains):
            for part in _even_parts(batch.drawn[c], self._chunk(1)):
                x, y = self._minibatch(data, batch, k, (c, j, part))
                out[c, j] += self._slope(theta[c, j], x, y, self._there(batch.weight[c, part]))
        return out

    def _minibatch(self, data: Any, batch: Any, k: int, place: Any) -> tuple[Tensor, Tensor]:
        """Return the rows of iteration `k` at a place of `(clients_here, chains, n)`, as the module takes them."""
        index = batch.row[k][place]
        y = self._there(data.y[index])
        if not isinstance(batch, AugmentedRows):
            # A fifth of the time of `x[index]`.
            x = torch.from_numpy(data.x).index_select(0, torch.from_numpy(index.reshape(-1)))
            return x.to(self._device).reshape(*index.shape, *self._row_shape), y
        images = data.x[index].reshape(*index.shape, *self._row_shape)
        return self._there(augmented(images, batch.shift[k][place], batch.flip[k][place], batch.padding)), y

    def gradient_of_all(self, theta: Array | Tensor, data: Any) -> Array | Tensor:
        """Return `gradient` for `Everything`, of the kind of `theta`, in chunks of bounded memory."""
        positions = self._positions(theta)
        out = torch.zeros_like(positions)
        clients, chains, _ = positions.shape
        for c in range(clients):
            for x, y, weight in self._chunks(data, c, chains):
                if self._at_once(chains, len(y)):
                    out[c] += self._slopes(positions[c], None, x, y, weight)
                    continue
                for j in range(chains):
                    out[c, j] += self._slope(positions[c, j], x, y, weight)
        _add_prior(out, positions, data)
        return _as_given(out, theta)

    def losses(self, theta: Array, data: Any) -> Array:
        """Return the likelihood's part of the potentials, `(clients_here, chains)`."""
        out = np.zeros(theta.shape[:2], theta.dtype)
        with torch.no_grad():
            for c, j in np.ndindex(out.shape):
                self.move(theta[c, j])
                out[c, j] = sum(float(self._loss(*chunk)) for chunk in self._chunks(data, c, 1))
        return out

    def predict(self, positions: Array, x: Array) -> Array:
        """Return the likelihood's predictions at `positions (draws, dim)` of rows `x (n, p)`."""
        if self._row_bytes is None:
            self.probe(x)
        chunk = self._chunk(1)
        starts = range(0, len(x), chunk)
        with torch.no_grad():
            every = []
            for position in positions:
                self.move(position)
                parts = [self._likelihood.predict(self.outputs(self.rows(x[s : s + chunk]))) for s in starts]
                every.append(torch.cat(parts))
        found: Array = torch.stack(every).numpy(force=True)
        return found

    def _slopes(self, theta: Tensor, rows_axis: int | None, *rows: Tensor) -> Tensor:
        """Return the slopes at `theta (m, dim)` in one pass; `rows_axis` is None where all have the same rows."""
        axes, positions = (0, rows_axis, rows_axis, rows_axis), _aligned(theta)
        if theta.numel() <= _FEW_NUMBERS:
            leaf = positions.detach().requires_grad_()
            (slopes,) = torch.autograd.grad(vmap(self._loss_at, axes)(leaf, *rows).sum(), leaf)
            return slopes
        return vmap(grad(self._loss_at), axes)(positions, *rows).detach()  # type: ignore[no-any-return]

    def _slope(self, position: Tensor, *rows: Tensor) -> Tensor:
        """Return the slope at `position (dim,)`."""
        self.move(position)
        slopes = torch.autograd.grad(self._loss(*rows), self._leaves, materialize_grads=True)
        return torch.cat([slope.reshape(-1) for slope in slopes])

    def _at_once(self, positions: int, rows: int) -> bool:
        """Return whether many positions take one vectorised pass, a function of the network and these numbers."""
        faster = positions >= _TOGETHER and (not self._convolves or rows <= _CONVOLVED_ROWS)
        return self._vectorises and faster and positions * rows * (self._row_bytes or 0) <= _CHUNK_BYTES

    def _chunk(self, chains: int) -> int:
        together = chains if self._vectorises and not self._convolves else 1
        return max(1, min(_LARGEST_CHUNK, _CHUNK_BYTES // max(1, (self._row_bytes or 0) * together)))

    def _chunks(self, data: Any, c: int, chains: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        first, end = data.offsets[c], data.offsets[c + 1]
        chunk = self._chunk(chains)
        for start in range(first, end, chunk):
            x, y = (array[start : min(start + chunk, end)] for array in (data.x, data.y))
            yield self.rows(x), self._there(y), self.own_position.new_ones(len(y))


def _even_parts(count: int, most: int) -> Iterator[slice]:
    """Yield as few parts of so many rows as there can be, of `most` rows or fewer, and of about the same length."""
    parts = math.ceil(count / most)
    return (slice(count * part // parts, count * (part + 1) // parts) for part in range(parts))


def _as_given(out: Tensor, theta: Array | Tensor) -> Array | Tensor:
    """Return gradients as the positions were given: in an array, or where the module computes."""
    if isinstance(theta, np.ndarray):
        array: Array = out.numpy(force=True)
        return array
    return out


def _add_prior(out: Tensor, theta: Tensor, data: Any) -> None:
    """Add the prior's gradient, in one pass over memory."""
    for total, position, precision in zip(out, theta, data.prior_precision, strict=True):
        total.add_(position, alpha=float(precision))


def _aligned(tensor: Tensor) -> Tensor:
    """Return it at a multiple of 64, a copy at an address that torch chose unless it is there.

    Matrix products of the same numbers differ in their last digits with the address (of float32 weights, by 4e-5 in a
    gradient), and NumPy's is a multiple of 16 only: a resumed run would not be the uninterrupted one to the bit.
    """
    return tensor if tensor.data_ptr() % 64 == 0 else tensor.clone()
