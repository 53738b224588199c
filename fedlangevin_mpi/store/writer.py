"""Draws to disk: one HDF5 file a rank, readable while it is written, whole up to its last commit after a kill.

The kernel writes draws into `DrawWriter.buffer`; nothing is copied until the buffer goes to the file. What a reader may
rely on is `/draws/committed`, written last (the counter as commit is emcee's idea, `emcee/backends/hdf.py`).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np
from numpy.typing import DTypeLike

from fedlangevin_mpi.errors import StoreError
from fedlangevin_mpi.store import layout
from fedlangevin_mpi.store.atomic import replacing

Array = np.ndarray[Any, np.dtype[Any]]

_CHUNK_BYTES = 1 << 20
_CHUNK_DRAWS = 8192  # the most: a short run stays a small file
_WRITE_BYTES = 4 << 20  # a write costs about 0.1 ms, whatever its size
_WRITE_SECONDS = 1.0


_ABANDONED: list[h5py.File] = []


class DrawWriter:
    """The draws of one rank in one segment of a run.

    A block of iterations writes its draws to `buffer[filled], buffer[filled + 1], ...` (room for `capacity_per_block`
    of them is always there) and then calls `commit`. Draws reach the file when 4 MiB of them wait, when the last
    write is a second old, on `flush` and on `close`.

    Attributes:
        path: of the file.
        buffer: `(rows, clients_here, chains, dim)`, C-contiguous, of the run's dtype.
        natural: `(rows, *natural)` float64, beside `buffer`; None where none are kept.
        filled: how many draws wait in `buffer`; the next goes to this slot.
        committed: how many draws the file holds.

    Args:
        directory: the run's folder, which must be there.
        rank: of this process.
        ranks: of the run.
        clients: global numbers of the clients here; `[layout.SERVER]` for the particles of a server.
        chains: or particles.
        dim: of a position.
        dtype: of a position.
        capacity_per_block: the most draws between two commits.
        algorithm: its name in the config.
        seed: of the run.
        coins: `shared` or `per_chain`, or `none` where chains share no randomness.
        segment: 0, and one more at each resume.
        natural: shape of the natural parameters that are kept beside every draw; None: there are none.
        positions: whether draws are stored; else only the iterations after which they were made.
        clock: seconds.

    Raises:
        StoreError: the file is there already or cannot be created; from every other method, it cannot be written.
    """

    def __init__(
        self,
        directory: Path,
        *,
        rank: int,
        ranks: int,
        clients: Sequence[int],
        chains: int,
        dim: int,
        dtype: DTypeLike,
        capacity_per_block: int,
        algorithm: str,
        seed: int,
        coins: str,
        segment: int = 0,
        natural: tuple[int, ...] | None = None,
        positions: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = layout.rank_file(directory, rank, segment)
        row = (len(clients), chains, dim)
        row_bytes = np.dtype(dtype).itemsize * math.prod(row) + (8 * math.prod(natural) if natural else 0)
        self._rows_per_write = max(1, _WRITE_BYTES // row_bytes)
        rows = self._rows_per_write + capacity_per_block
        self.buffer: Array = np.empty((rows, *row), dtype)
        self.natural: Array | None = None if natural is None else np.empty((rows, *natural))
        self._iterations = np.empty(rows, np.int64)
        self.filled = 0
        self.committed = 0
        self._clock = clock
        self._written_at = clock()
        self._open = False
        attributes: dict[str, str | int] = {
            "format": layout.FORMAT,
            "format_version": layout.FORMAT_VERSION,
            "algorithm": algorithm,
            "seed": seed,
            "rank": rank,
            "ranks": ranks,
            "coins": coins,
            "chains": chains,
        }
        if self.path.exists():
            raise StoreError(f"{self.path}: is there already, and a run is never overwritten")
        # The file gets its name when it is laid out: no reader, not even of a killed run, meets half of it.
        with replacing(self.path) as partial, self._failing_as("created"):
            # Without a chunk cache, HDF5 writes exactly the rows it is given, at once and straight from the buffer;
            # with one it would copy them and write a partial chunk whole again at every flush.
            self._file = layout.open_file(partial, "w", rdcc_nbytes=0)
            self._open = True
            self._lay_out(clients, attributes, positions)

    def _lay_out(self, clients: Sequence[int], attributes: dict[str, str | int], positions: bool) -> None:
        self._file.attrs.update(attributes)
        self._file[layout.CLIENTS] = np.asarray(clients, np.int64)
        kept = {layout.POSITION: self.buffer, layout.ITERATION: self._iterations}
        if self.natural is not None:
            kept[layout.NATURAL] = self.natural
        if not positions:  # a data set that cannot grow says so, and of what shape a draw was
            self._file.create_dataset(layout.POSITION, (0, *self.buffer.shape[1:]), self.buffer.dtype)
            kept = {layout.ITERATION: self._iterations}
        self._datasets = [(self._growing(name, rows), rows) for name, rows in kept.items()]
        # Given a value at once: it gets its place in the file with the first, and must not while readers watch, who
        # would call the file corrupt (HDF5 issue 5251).
        self._committed = self._file.create_dataset(layout.COMMITTED, data=np.int64(0))
        self._file.swmr_mode = True  # from here on readers may come, and no data set can be added

    def _growing(self, name: str, like: Array) -> h5py.Dataset:
        row = like.shape[1:]
        chunks = (min(max(1, _CHUNK_BYTES // like[0].nbytes), _CHUNK_DRAWS), *row)
        return self._file.create_dataset(name, (0, *row), like.dtype, chunks=chunks, maxshape=(None, *row))

    def commit(self, count: int, iterations: Sequence[int] | Array) -> None:
        """Take the next `count` draws of `buffer` as whole, and write if it is time to.

        With `count = 0`, only look at the clock.

        Args:
            count: at most `capacity_per_block`.
            iterations: `(count,)` the 0-based iteration after which each was kept.
        """
        stop = self.filled + count
        self._iterations[self.filled : stop] = iterations
        self.filled = stop
        if self.filled >= self._rows_per_write or self._clock() - self._written_at >= _WRITE_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the draws that wait; after it a killed process loses none of them."""
        if not self.filled:
            return
        stop = self.committed + self.filled
        with self._failing_as("written"):
            if not self.path.exists():  # the system would go on writing to a file that nobody can open any more
                raise FileNotFoundError("it was moved or removed during the run")
            for dataset, rows in self._datasets:
                dataset.resize(stop, axis=0)
                dataset[self.committed : stop] = rows[: self.filled]
            self._file.flush()  # before the count that promises them; flushing datasets alone is not enough
            self._committed[()] = stop
            self._file.flush()
        self.committed = stop
        self.filled = 0
        self._written_at = self._clock()

    def close(self) -> None:
        """Write the draws that wait and close the file; a second call does nothing."""
        if not self._open:
            return
        self.flush()
        with self._failing_as("closed"):
            self._open = False
            self._file.close()

    @contextmanager
    def _failing_as(self, done: str) -> Iterator[None]:
        """Turn a failure into a StoreError, and leave nothing to do for `close`: what was committed stays readable."""
        try:
            yield
        except (OSError, RuntimeError) as error:
            if self._open:
                self._open = False
                # Closing would try to write again, and HDF5 then frees memory that it goes on using: the process
                # crashes anywhere later. The file stays as that of a killed run, readable up to its last commit.
                _ABANDONED.append(self._file)
            # HDF5's own text has many lines of addresses in it.
            number = getattr(error, "errno", None)
            raise StoreError(f"{self.path}: cannot be {done}: {os.strerror(number) if number else error}") from error

    def __enter__(self) -> DrawWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
