"""The file formats of a shard: archives of named arrays, and tables of numbers. No reader runs what a file contains.

A format's library is imported when a file of that format is read: an import that the config did not name is none of
ours, and a parallel HDF5 would start MPI.
"""

from __future__ import annotations

import csv
import warnings
import zipfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedlangevin_mpi.data.shard import Array


class Table(NamedTuple):
    """What a table holds.

    Attributes:
        x: `(n, p)`.
        y: `(n,)`, of the column named `y`, or else the last one.
        features: `(p,)` names of the other columns, in their order; None where the file has none.
    """

    x: Array
    y: Array
    features: tuple[str, ...] | None


def read_npz(path: Path, names: Collection[str] | None = None) -> dict[str, Array]:
    """Read the arrays of a NumPy archive, `names` only or all.

    Raises:
        ValueError: it is no archive, or an array is a pickle, which is never loaded.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not the archive that np.savez writes, or truncated; pickles are never loaded")
    with np.load(path, allow_pickle=False) as archive:
        wanted = [name for name in archive.files if names is None or name in names]
        try:
            return {name: np.asarray(archive[name]) for name in wanted}
        except ValueError as error:
            if "allow_pickle" in str(error):  # NumPy has no exception of its own for it
                raise ValueError("an array in it is a pickle; pickles are never loaded; allowed: numbers") from error
            raise


def read_h5(path: Path, names: Collection[str] | None = None) -> dict[str, Array]:
    """Read the datasets at the top level of an HDF5 file, `names` only or all."""
    import h5py

    # Nothing is written, and some shared file systems have no locks.
    with h5py.File(path, "r", locking=False) as file:
        datasets = {name: item for name, item in file.items() if isinstance(item, h5py.Dataset)}
        return {name: np.asarray(d[()]) for name, d in datasets.items() if names is None or name in names}


def read_csv(path: Path) -> Table:
    """Read a table of numbers under one header row.

    Raises:
        ValueError: there is no header row, or a cell is not a number.
    """
    with path.open(newline="", encoding="utf-8-sig") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # no rows: an empty array, which is refused like any other
        header = next(csv.reader(file))
        if all(_is_number(name) for name in header):
            raise ValueError(f"its first row is {header}; allowed: a header row with the columns' names")
        try:
            values = np.loadtxt(file, delimiter=",", ndmin=2, comments=None, quotechar='"')
        except ValueError as error:
            raise ValueError(_bad_line(path, header) or str(error)) from error
    if values.size and values.shape[1] != len(header):
        raise ValueError(_bad_line(path, header))
    return _table(values.reshape(-1, len(header)), [name.strip() for name in header])


def _bad_line(path: Path, header: Sequence[str]) -> str | None:
    """Return what is wrong with the first line that is not one number a column."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        next(reader)
        for cells in filter(None, reader):
            if len(cells) != len(header):
                return f"line {reader.line_num} has {len(cells)} cells; allowed: {len(header)}, one a column"
            for name, cell in zip(header, cells, strict=True):
                if not _is_number(cell):
                    return f"line {reader.line_num}, column {name!r} holds {cell!r}; allowed: a number"
    return None


def read_parquet(path: Path) -> Table:
    """Read a table of numbers.

    Raises:
        ImportError: pandas or pyarrow is not installed.
        ValueError: a column does not hold numbers.
    """
    try:
        import pandas as pd

        frame = pd.read_parquet(path, engine="pyarrow")
    except ImportError as error:
        raise ImportError(".parquet needs pandas and pyarrow: pip install 'fedlangevin_mpi[parquet]'") from error
    for name, dtype in frame.dtypes.items():
        if not pd.api.types.is_numeric_dtype(dtype):
            raise ValueError(f"column {str(name)!r} has dtype {dtype}; allowed: numbers")
    return _table(frame.to_numpy(dtype=np.float64, na_value=np.nan), [str(name) for name in frame.columns])


def read_svm(path: Path, features: int | None = None) -> Table:
    """Read a sparse table in the format of LIBSVM, `label index:value ...`, indices from 1, maybe compressed.

    Args:
        path: of the file; `.gz` and `.bz2` are unpacked.
        features: how many columns `x` has; absent: the largest index. A column that is 0 in the last rows may need it.

    Raises:
        ValueError: a line is not of this format, or an index is above `features`.
    """
    from sklearn.datasets import load_svmlight_file

    x, y = load_svmlight_file(str(path), n_features=features, zero_based=False)
    return Table(x.toarray(), y, None)


def checked(name: str, array: Array) -> Array:
    """Return an array of finite numbers, truth values as integers.

    Raises:
        ValueError: it is something else, or empty.
    """
    if array.dtype.kind not in "biuf":
        raise ValueError(f"array {name!r} has dtype {array.dtype}; allowed: real numbers")
    if array.size == 0:
        raise ValueError(f"array {name!r} is empty: shape {array.shape}")
    wrong = ~np.isfinite(array)
    if wrong.any():
        place = tuple(int(index) for index in np.unravel_index(np.argmax(wrong), array.shape))
        where = {1: "row {}", 2: "row {}, column {}"}.get(array.ndim, f"index {place}").format(*place)
        raise ValueError(f"array {name!r} holds {array[place]} at {where} (counted from 0); allowed: finite numbers")
    return array.astype(np.uint8) if array.dtype.kind == "b" else array


def _table(values: Array, columns: Sequence[str]) -> Table:
    if len(columns) < 2:
        raise ValueError(f"it has the columns {list(columns)}; allowed: at least one feature, and y")
    if columns.count("y") > 1:
        raise ValueError("it has several columns named y; allowed: one")
    target = columns.index("y") if "y" in columns else len(columns) - 1
    features = tuple(name for column, name in enumerate(columns) if column != target)
    return Table(np.delete(values, target, axis=1), values[:, target].copy(), features)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


ARCHIVES: dict[str, Callable[[Path, Collection[str] | None], dict[str, Array]]] = {".npz": read_npz, ".h5": read_h5}
TABLES: dict[str, Callable[[Path], Table]] = {".csv": read_csv, ".parquet": read_parquet}
