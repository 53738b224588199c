"""Which draw files a run's folder holds, and how many draws of them count."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from fedlangevin_mpi.errors import StoreError
from fedlangevin_mpi.store import layout

Array = np.ndarray[Any, np.dtype[Any]]


class Header(NamedTuple):
    """What a draw file says of itself; the names are those of the file's attributes and data sets.

    `positions` is whether it has the draws' positions, or only the iterations after which they were made.
    """

    path: Path
    segment: int
    rank: int
    ranks: int
    algorithm: str
    seed: int
    coins: str
    clients: tuple[int, ...]
    committed: int
    chains: int
    dim: int
    dtype: np.dtype[Any]
    positions: bool


class Source(NamedTuple):
    """Where a client's draws lie: `/draws/position[:, row]` of the file at `path`."""

    path: Path
    row: int


class Segment(NamedTuple):
    """The part of a run between two resumes.

    Attributes:
        draws: how many of its draws count: on every rank, and before the next segment begins. Stored or not.
        sources: by client.
    """

    draws: int
    sources: Mapping[int, Source]

    def read(self, name: str) -> Array:
        """Return a data set of the draws that count, of the first source's file.

        Raises:
            StoreError: the file has none of that name, or cannot be read.
        """
        path = next(iter(self.sources.values())).path
        with layout.reading(path) as file:
            if name not in file:
                raise StoreError(f"{path}: holds no {name}, as the algorithm of the run has none")
            values: Array = file[name][: self.draws]
        return values

    def iterations(self) -> Array:
        """Return `(draws,)`: the 0-based iteration after which each draw was kept."""
        return iterations(next(iter(self.sources.values())).path, self.draws)


def headers(directory: Path, first_segment: int = 0) -> list[Header]:
    """Return what the draw files of a folder say, by segment and rank.

    Args:
        directory: of the run.
        first_segment: those before are left out.

    Raises:
        StoreError: there is none, one cannot be read, or one belongs to another run.
    """
    files = layout.rank_files(directory)
    found = [_header(path, *key) for key, path in files.items() if key[0] >= first_segment]
    if not found:
        raise StoreError(f"{layout.rank_file(directory, 0)}: is missing; the folder holds no draws")
    first = found[0]
    for header in found:
        for name in ("algorithm", "seed", "coins", "chains", "dim", "dtype", "positions"):
            value, expected = getattr(header, name), getattr(first, name)
            if value != expected:
                problem = f"belongs to another run: {name} {value}, but {first.path.name} has {expected}"
                raise StoreError(f"{header.path}: {problem}")
    return found


def segments(found: Sequence[Header], clients: Iterable[int], first_segment: int = 0) -> list[Segment]:
    """Return the segments of a run, in order.

    A start that was stopped before every rank had its file, and so before the first draw, left no segment.

    Args:
        found: the headers of the folder.
        clients: who must have draws in each segment.
        first_segment: the one that they begin with.

    Raises:
        StoreError: a file is missing.
    """
    groups: dict[int, list[Header]] = {}
    for header in found:
        groups.setdefault(header.segment, []).append(header)
    result: list[Segment] = []
    for number in range(first_segment, max(groups) + 1):
        if number not in groups:
            raise StoreError(f"{layout.rank_file(found[0].path.parent, 0, number)}: is missing")
        group = groups[number]
        sources = {client: Source(h.path, row) for h in group for row, client in enumerate(h.clients)}
        missing = [client for client in clients if client not in sources]
        last = number == max(groups) and not result
        if missing and (last or any(header.committed for header in group)):
            raise StoreError(f"{_absent(group)}: is missing; it holds the draws of client {missing[0]}")
        if not missing:
            result.append(Segment(min(header.committed for header in group), sources))
    return _cut(result)


def _cut(whole: Sequence[Segment]) -> list[Segment]:
    """Drop what a segment's end shares with the next one: a resume goes on from a checkpoint before the last draws."""
    result: list[Segment] = []
    begins: int | None = None
    for segment in reversed(whole):
        kept = segment.iterations() if len(whole) > 1 else np.empty(0, np.int64)
        if begins is not None:
            segment = segment._replace(draws=int(np.searchsorted(kept, begins)))
        if segment.draws and len(kept):
            begins = int(kept[0])
        result.append(segment)
    return result[::-1]


def _absent(group: Sequence[Header]) -> Path:
    ranks = sorted(set(range(group[0].ranks)) - {header.rank for header in group})
    return layout.rank_file(group[0].path.parent, ranks[0] if ranks else group[0].rank, group[0].segment)


def iterations(path: Path, draws: int) -> Array:
    """Return the iterations of the first draws of a file."""
    with layout.reading(path) as file:
        values: Array = file[layout.ITERATION][:draws]
    return values


def _header(path: Path, segment: int, rank: int) -> Header:
    with layout.reading(path) as file:
        attributes = file.attrs
        if attributes.get("format") != layout.FORMAT:
            raise StoreError(f"{path}: is not a draw file: its attribute 'format' is {attributes.get('format')!r}")
        if attributes["format_version"] > layout.FORMAT_VERSION:
            problem = f"has format version {attributes['format_version']}; allowed: up to {layout.FORMAT_VERSION}"
            raise StoreError(f"{path}: {problem}")
        position = file[layout.POSITION]
        positions = position.maxshape[0] is None
        committed = _committed(path, file, positions)
        return Header(
            path,
            segment,
            rank,
            int(attributes["ranks"]),
            str(attributes["algorithm"]),
            int(attributes["seed"]),
            str(attributes["coins"]),
            tuple(map(int, file[layout.CLIENTS][:])),
            committed,
            int(position.shape[2]),
            int(position.shape[3]),
            position.dtype,
            positions,
        )


def _committed(path: Path, file: h5py.File, positions: bool) -> int:
    """Return how many draws are whole.

    Raises:
        StoreError: the file is shorter than they are, as after a copy that stopped: HDF5 would read zeros.
    """
    count = file[layout.COMMITTED]
    committed = int(count[()])
    # What is asked for after the count was read is as new as it, or newer.
    size = path.stat().st_size
    ends = [count.id.get_offset() + count.nbytes]
    names = (layout.POSITION, layout.ITERATION) if positions else (layout.ITERATION,)
    growing = [file[name] for name in names] if committed else []
    rows = [math.prod(dataset.shape[1:]) * dataset.dtype.itemsize for dataset in growing]
    ends.append(committed * sum(rows))
    if size >= max(ends):  # else the index of the chunks may be cut off too, and HDF5 wait for it
        for dataset, row in zip(growing, rows, strict=True):
            last = dataset.id.get_chunk_info_by_coord((committed - 1, *(0 for _ in dataset.shape[1:])))
            ends.append(last.byte_offset + ((committed - 1) % dataset.chunks[0] + 1) * row)
    if size < max(ends):
        raise StoreError(f"{path}: was cut: {size} bytes are left of {max(ends)} or more")
    return committed
