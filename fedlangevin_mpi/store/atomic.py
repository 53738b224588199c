"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedlangevin_mpi.errors import StoreError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path beside `path` to write to, and move it there when the `with` block ends without an error.

    Whatever fails, `path` keeps what it held and nothing else is left behind.

    Raises:
        StoreError: the file cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())  # the contents before the name, should the machine stop
        partial.replace(path)
    except (OSError, RuntimeError) as error:
        raise StoreError(f"{path}: cannot be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
