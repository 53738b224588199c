"""The files of a checkpoint: a part a rank, and a manifest that makes them count. Knows no MPI, and loads no pickle.

`checkpoint/000007/rank-00000.npz`, ... hold named arrays; `checkpoint/000007/manifest.json`, written last, holds their
checksums. Arrays lie by client, so that another number of ranks finds what its clients need. `predictive-00000.npz`,
... hold the averaged predictive of held-out rows in the same way, and what reads a run reads them here, too.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from fedlangevin_mpi.errors import StoreError
from fedlangevin_mpi.store.atomic import replacing

Array = np.ndarray[Any, np.dtype[Any]]

POSITIONS = "rank"
PREDICTIVE = "predictive"
"""Begin the names of a rank's files: of what it goes on from, and of its averaged predictive."""

_FORMAT = 1
_MANIFEST = "manifest.json"
_GENERATION = re.compile(r"\d{6,}")


class Part(BaseModel):
    """One file of a checkpoint.

    Attributes:
        file: its name.
        clients: whose rows its arrays hold along their first axis; None: what all ranks share.
        bytes: its size.
        crc32: of its bytes.
    """

    model_config = ConfigDict(frozen=True)

    file: str
    clients: list[int] | None
    bytes: int
    crc32: int


class Manifest(BaseModel):
    """What makes a checkpoint count.

    Attributes:
        format: version of these files.
        iteration: the next one.
        counts: numbers of the whole run up to it.
        parts: the files.
    """

    model_config = ConfigDict(frozen=True)

    format: int = _FORMAT
    iteration: int
    counts: dict[str, int | float]
    parts: list[Part]


def generations(directory: Path) -> list[int]:
    """Return the numbers of the checkpoints in `checkpoint/`, whole or not, growing."""
    if not directory.is_dir():
        return []
    return sorted(int(entry.name) for entry in directory.iterdir() if _GENERATION.fullmatch(entry.name))


def committed(directory: Path) -> list[int]:
    """Return the numbers of the checkpoints that have a manifest, growing."""
    return [number for number in generations(directory) if (_folder(directory, number) / _MANIFEST).exists()]


def write_part(
    directory: Path, number: int, name: str, clients: Sequence[int] | None, arrays: Mapping[str, Array]
) -> Part:
    """Write a rank's arrays and return what the manifest says of them.

    Raises:
        StoreError: the file cannot be written.
    """
    path = _folder(directory, number) / f"{name}.npz"
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error}") from error
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]  # (no array is named allow_pickle)
    view = content.getbuffer()
    with replacing(path, room=len(view)) as partial:
        partial.write_bytes(view)
    owners = None if clients is None else list(clients)
    return Part(file=path.name, clients=owners, bytes=len(view), crc32=zlib.crc32(view))


def commit(directory: Path, number: int, manifest: Manifest) -> None:
    """Write the manifest, and drop every checkpoint but this one and the one before it.

    Raises:
        StoreError: the file cannot be written.
    """
    text = manifest.model_dump_json()
    with replacing(_folder(directory, number) / _MANIFEST) as partial:
        partial.write_text(json.dumps({"crc32": zlib.crc32(text.encode()), "manifest": text}) + "\n")
    kept = committed(directory)[-2:]
    for other in generations(directory):
        if other not in kept:
            drop(directory, other)


def drop(directory: Path, number: int) -> None:
    """Remove a checkpoint, its manifest first: what is left of it does not count."""
    folder = _folder(directory, number)
    (folder / _MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def read_manifest(directory: Path, number: int) -> Manifest:
    """Return what a checkpoint says of itself.

    Raises:
        StoreError: it is missing, damaged, or of a later version.
    """
    path = _folder(directory, number) / _MANIFEST
    try:
        outer = json.loads(path.read_text(encoding="utf-8"))
        text = outer["manifest"]
        if zlib.crc32(text.encode()) != outer["crc32"]:
            raise ValueError("its checksum is wrong")
        manifest = Manifest.model_validate_json(text)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise StoreError(f"{path}: cannot be read: {error}") from error
    if manifest.format > _FORMAT:
        raise StoreError(f"{path}: has format {manifest.format}; allowed: up to {_FORMAT}")
    return manifest


def read_rows(
    directory: Path, number: int, manifest: Manifest, clients: Sequence[int], kind: str = POSITIONS
) -> dict[str, Array]:
    """Return the arrays of some clients, the first axis in their order, from the parts that hold any of them.

    Args:
        directory: of checkpoints.
        number: of the checkpoint.
        manifest: its own.
        clients: whose arrays.
        kind: of parts, `POSITIONS` or `PREDICTIVE`.

    Raises:
        StoreError: a part is missing or damaged, or holds no such client.
    """
    rows: dict[int, dict[str, Array]] = {}
    wanted = set(clients)
    for part in _of(kind, manifest):
        here = wanted.intersection(part.clients or ())
        if here and part.clients is not None:
            arrays = _read(_folder(directory, number), part)
            for row, client in enumerate(part.clients):
                if client in here:
                    rows[client] = {name: array[row] for name, array in arrays.items()}
    if missing := wanted - rows.keys():
        raise StoreError(f"{_folder(directory, number)}: holds no client {min(missing)}")
    names = rows[clients[0]] if clients else {}
    return {name: np.stack([rows[client][name] for client in clients]) for name in names}


def last_arrays(directory: Path, clients: Sequence[int], kind: str) -> tuple[dict[str, Array], int] | None:
    """Return the arrays of some clients in the last checkpoint that can be read, and its next iteration.

    Returns:
        None: no checkpoint has parts of this kind.

    Raises:
        StoreError: none can be read.
    """
    problem: StoreError | None = None
    for number in committed(directory)[::-1]:
        try:
            manifest = read_manifest(directory, number)
            if _of(kind, manifest):
                return read_rows(directory, number, manifest, clients, kind), manifest.iteration
        except StoreError as error:
            problem = problem or error
    if problem is not None:
        raise problem
    return None


def _of(kind: str, manifest: Manifest) -> list[Part]:
    return [part for part in manifest.parts if part.file.startswith(f"{kind}-")]


def read_shared(directory: Path, number: int, manifest: Manifest) -> dict[str, Array]:
    """Return the arrays that all ranks share.

    Raises:
        StoreError: their file is missing or damaged.
    """
    shared = [_read(_folder(directory, number), part) for part in manifest.parts if part.clients is None]
    return {name: array for arrays in shared for name, array in arrays.items()}


def _read(folder: Path, part: Part) -> dict[str, Array]:
    path = folder / part.file
    try:
        content = path.read_bytes()
        if len(content) != part.bytes or zlib.crc32(content) != part.crc32:
            raise ValueError(f"it is damaged: {len(content)} bytes of {part.bytes}, checksum {zlib.crc32(content):08x}")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read: {error}") from error


def _folder(directory: Path, number: int) -> Path:
    return directory / f"{number:06d}"
