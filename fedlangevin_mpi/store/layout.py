"""What the writer and the reader of a run's HDF5 files share: names, attributes, and how a file is opened."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py

from fedlangevin_mpi.errors import StoreError

FORMAT = "fedlangevin"
FORMAT_VERSION = 1

POSITION = "draws/position"
ITERATION = "draws/iteration"
COMMITTED = "draws/committed"
NATURAL = "draws/natural_parameters"
CLIENTS = "clients"

SERVER = -1
"""What `/clients` holds in the file of a particle method: the particles belong to no client."""

_RANK_FILE = re.compile(r"rank-(\d{5})(?:\.s(\d{2,}))?\.h5")
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_SMALLEST = 2048  # the block in which HDF5 begins to put its own records
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS}


def rank_file(directory: Path, rank: int, segment: int = 0) -> Path:
    """Return the path of a rank's draws: `rank-00002.h5`, and after one resume `rank-00002.s01.h5`."""
    suffix = f".s{segment:02d}" if segment else ""
    return directory / f"rank-{rank:05d}{suffix}.h5"


def rank_files(directory: Path) -> dict[tuple[int, int], Path]:
    """Return the draw files of a run's folder by `(segment, rank)`, in this order.

    Raises:
        StoreError: the folder cannot be read.
    """
    try:
        matches = [(_RANK_FILE.fullmatch(path.name), path) for path in directory.iterdir()]
    except OSError as error:
        raise StoreError(f"{directory}: cannot be read as a run's folder: {error}") from error
    return dict(sorted(((int(m[2] or 0), int(m[1])), path) for m, path in matches if m))


def open_file(path: Path, mode: str, **options: Any) -> h5py.File:
    """Open an HDF5 file, without locks where the file system has none.

    The format is that of HDF5 1.10: the first that can be read while it is written, so that old programs read it too.
    """
    try:
        return h5py.File(path, mode, libver="v110", locking="best-effort", **options)
    except OSError as error:
        # HDF5's own best effort forgives ENOSYS only; NFS, among others, answers ENOLCK.
        if error.errno not in _NO_LOCKS:
            raise
    return h5py.File(path, mode, libver="v110", locking=False, **options)


@contextmanager
def reading(path: Path, **options: Any) -> Iterator[h5py.File]:
    """Open a draw file that may still be written, or whose writer was killed.

    Raises:
        StoreError: it is missing, unreadable or not a draw file; also for errors of reads in the `with` block.
    """
    try:
        with open_file(path, "r", swmr=_left_open(path), **options) as file:
            yield file
    except (OSError, KeyError, RuntimeError) as error:
        raise StoreError(f"{path}: cannot be read as the draws of a run: {error}") from error


def _left_open(path: Path) -> bool:
    """Whether the file's writer is at work, was killed, or had no room to end it (HDF5 file format, superblock 3).

    Such a file is read with few checks, and HDF5 tries again for hours where its index is damaged; any other is read
    with all of them.

    Raises:
        OSError: it is no HDF5 file, or next to nothing is left of it.
    """
    with path.open("rb") as file:
        superblock = file.read(36)
        size = os.fstat(file.fileno()).st_size
    if not superblock.startswith(_SIGNATURE):
        raise OSError("it is not an HDF5 file")
    if size < _SMALLEST:
        raise OSError(f"it was cut: {size} bytes are left")
    being_written, end = superblock[11] != 0, int.from_bytes(superblock[28:36], "little")
    return being_written or size < end
