"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedlangevin_mpi.errors import StoreError

_SPARE_BYTES = 1 << 20


@contextmanager
def replacing(path: Path, room: int = 0) -> Iterator[Path]:
    """Give a path beside `path` to write to, and move it there when the `with` block ends without an error.

    Whatever fails, `path` keeps what it held and nothing else is left behind.

    Args:
        path: of the file.
        room: bytes that must be free for it, and a MiB more. HDF5 can crash where a new file cannot be closed for want
            of room, so better not to begin.

    Raises:
        StoreError: the file cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        free = shutil.disk_usage(path.parent).free
        if free < room + _SPARE_BYTES:
            raise OSError(f"{free} bytes are free and {room + _SPARE_BYTES} needed")
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())  # the contents before the name, should the machine stop
        partial.replace(path)
    except (OSError, RuntimeError) as error:
        raise StoreError(f"{path}: cannot be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
