"""Draws as a lazy array: positions of one client, or their average over clients, read when they are asked for."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fedlangevin_mpi.store import layout
from fedlangevin_mpi.store.segments import Segment

Array = np.ndarray[Any, np.dtype[Any]]

_READ_BYTES = 16 << 20
_LONG_PIECE = 1024  # bytes that lie together


class Draws:
    """Positions of a client or of an average over clients: behaves as an array `(draw, chain, dim)`.

    Indices are integers, slices, an ellipsis and tuples of them; only what they pick is read. `numpy.asarray` reads
    everything. Files are open during a read only. An average is summed in the order of the clients' numbers, in
    float64, hence bitwise the same however clients were placed on ranks.

    Attributes:
        shape: `(draw, chain, dim)`.
        dtype: of the run's positions.

    Raises:
        StoreError: from any read, where a file became unreadable.
    """

    ndim = 3

    def __init__(
        self, segments: Sequence[Segment], clients: Sequence[int], chains: int, dim: int, dtype: DTypeLike
    ) -> None:
        self._clients = len(clients)
        self._segments = [(segment.draws, _spans(segment, clients)) for segment in segments]
        self.shape = (sum(segment.draws for segment in segments), chains, dim)
        self.dtype: np.dtype[Any] = np.dtype(dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        """Read what the index picks, as an array (a scalar where it picks a single number)."""
        picks = [_axis(*pair) for pair in zip(_expand(index), self.shape, strict=True)]
        values = self._read(*(read for read, _ in picks))
        return values[tuple(take for _, take in picks)]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("draws lie on disk: an array of them is always a copy")
        values: Array = self[:]
        return values if dtype is None else values.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"Draws(shape={self.shape}, dtype={self.dtype})"

    def blocks(self, limit: int) -> Iterator[tuple[int, Array]]:
        """Read all draws in order, `(first, (draws, chain, dim))` at a time, each of at most `limit` bytes."""
        rows = max(1, limit // max(1, self.dtype.itemsize * self.shape[1] * self.shape[2]))
        for first in range(0, len(self), rows):
            yield first, self[first : first + rows]

    def _read(self, draws: range, chains: range, dims: range) -> Array:
        out = np.empty((len(draws), len(chains), len(dims)), self.dtype)
        # A cached chunk is read whole, which pays unless long pieces of it are wanted.
        cache = {"rdcc_nbytes": 0} if len(dims) * self.dtype.itemsize >= _LONG_PIECE else {}
        offset = 0
        for count, spans in self._segments:
            first, last = bisect_left(draws, offset), bisect_left(draws, offset + count)
            widest = max(rows.stop - rows.start for _, rows in spans)
            step = max(1, _READ_BYTES // max(1, widest * out[:1].nbytes))
            for k in range(first, last, step):
                part = draws[k : min(k + step, last)]
                local = slice(part.start - offset, part[-1] + 1 - offset, part.step)
                total = np.zeros((len(part), len(chains), len(dims)))
                for path, rows in spans:
                    with layout.reading(path, **cache) as file:
                        positions = file[layout.POSITION][local, rows, _slice(chains), _slice(dims)]
                    for row in range(positions.shape[1]):
                        total += positions[:, row]
                out[k : k + len(part)] = total / self._clients
            offset += count
        return out


def _spans(segment: Segment, clients: Sequence[int]) -> list[tuple[Path, slice]]:
    """Return where the clients lie, in order; neighbours in one file are read together."""
    spans: list[tuple[Path, slice]] = []
    for path, row in (segment.sources[client] for client in clients):
        if spans and spans[-1][0] == path and spans[-1][1].stop == row:
            spans[-1] = (path, slice(spans[-1][1].start, row + 1))
        else:
            spans.append((path, slice(row, row + 1)))
    return spans


def _expand(index: Any) -> tuple[Any, Any, Any]:
    """Return one index for each of the three axes."""
    given = list(index) if isinstance(index, tuple) else [index]
    named = [i for i in given if i is not Ellipsis]
    if len(named) > 3 or len(given) - len(named) > 1:
        raise IndexError(f"index {index!r} does not fit an array (draw, chain, dim)")
    at = next((k for k, i in enumerate(given) if i is Ellipsis), len(given))
    filled = named[:at] + [slice(None)] * (3 - len(named)) + named[at:]
    return filled[0], filled[1], filled[2]


def _axis(index: Any, length: int) -> tuple[range, int | slice]:
    """Return which places of an axis to read, in growing order, and what to take of them afterwards."""
    if isinstance(index, slice):
        places = range(length)[index]
        if not places:
            return range(0), slice(None)
        return (places, slice(None)) if places.step > 0 else (places[::-1], slice(None, None, -1))
    try:
        place = operator.index(index)
    except TypeError:
        raise TypeError(f"index {index!r}; allowed: integers, slices, an ellipsis and tuples of them") from None
    if not -length <= place < length:
        raise IndexError(f"index {place} is out of bounds for an axis of {length}")
    return range(place % length, place % length + 1), 0


def _slice(places: range) -> slice:
    return slice(places.start, places.stop, places.step)
