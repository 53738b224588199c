"""One table in one file, of which every rank keeps its clients' rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from fedlangevin_mpi.data.readers import TABLES, Table, checked, read_svm
from fedlangevin_mpi.data.shard import Array
from fedlangevin_mpi.data.tabular import TableSource
from fedlangevin_mpi.errors import ConfigError

_SPARSE = (".svm", ".libsvm")
_PACKED = (".gz", ".bz2")

_COVERTYPE = (
    *("elevation", "aspect", "slope", "horizontal_distance_to_hydrology", "vertical_distance_to_hydrology"),
    *("horizontal_distance_to_roadways", "hillshade_9am", "hillshade_noon", "hillshade_3pm"),
    "horizontal_distance_to_fire_points",
    *(f"wilderness_area_{area}" for area in range(4)),
    *(f"soil_type_{kind}" for kind in range(40)),
)


class TableFile(TableSource):
    """One file with all rows: `.csv` (with a header row), `.parquet`, or LIBSVM's sparse format (`.svm`, `.libsvm`).

    Of a table the column named `y`, or else the last one, is `y`. Whole numbers are class labels.
    """

    summary: ClassVar[str] = "one file for all clients, dealt to them: .csv, .parquet, .svm or .libsvm (.gz, .bz2)"

    name: Literal["table"] = "table"
    path: str = Field(description="path of the file, relative to the current directory")
    labels: tuple[float, ...] | None = Field(
        default=None,
        min_length=2,
        description="the values of y that stand for classes 0, 1, ..., as [-1, 1] or [1, 2]; absent: y is as it is",
    )
    features: int | None = Field(
        default=None,
        ge=1,
        description="of LIBSVM's format: columns of x; absent: the largest index in the file",
    )

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        if _suffix(path) not in {*TABLES, *_SPARSE}:
            allowed = ", ".join((*TABLES, *_SPARSE))
            raise ValueError(f"found {path!r}; allowed: a file name that ends in {allowed}")
        return path

    def read(self) -> Table:
        """Return the file's rows.

        Raises:
            ConfigError: the file is missing or unreadable, holds no finite numbers, or other labels than the config's.
        """
        x, y, features = _read(self.path, self._reader)
        return Table(x, _coded(y, self.labels), features)

    def _reader(self, path: Path) -> Table:
        suffix = _suffix(self.path)
        return read_svm(path, self.features) if suffix in _SPARSE else TABLES[suffix](path)


class Covertype(TableSource):
    """Forest cover types of 581,012 patches, 54 features, from the UCI file `covtype.data` (Blackard, Dean 1999).

    A row is 54 numbers and the cover type 1 to 7, separated by commas, in plain text or as `.gz`; a header row is
    skipped. With two classes, `y` is 1 for type 2 (lodgepole pine), as in the sampling literature.
    """

    summary: ClassVar[str] = "forest cover types: 581012x54 from the UCI file covtype.data; 2 or 7 classes"

    name: Literal["covertype"] = "covertype"
    path: str = Field(description="path of covtype.data or covtype.data.gz, relative to the current directory")
    classes: Literal[2, 7] = Field(default=2, description="2: type 2 against the others; 7: type 1 is class 0, ...")

    def read(self) -> Table:
        """Return the file's rows.

        Raises:
            ConfigError: the file is missing or unreadable, or is not of this format.
        """
        x, cover, features = _read(self.path, _read_covertype)
        types = _coded(cover, tuple(range(1, 8)))
        return Table(x, (types == 1).astype(np.int64) if self.classes == 2 else types, features)


def _read_covertype(path: Path) -> Table:
    first = np.loadtxt(path, str, delimiter=",", max_rows=1, ndmin=1)
    header = any(name.strip("\"' ").strip()[:1].isalpha() for name in first)
    values = np.loadtxt(path, delimiter=",", ndmin=2, skiprows=int(header))
    if values.shape[1] != len(_COVERTYPE) + 1:
        raise ValueError(f"rows of {values.shape[1]} numbers; allowed: {len(_COVERTYPE)} features and the cover type")
    return Table(values[:, :-1], values[:, -1], _COVERTYPE)


def _suffix(path: str) -> str:
    """Return what tells a file's format; only LIBSVM's may be packed."""
    whole = Path(path)
    inner = whole.with_suffix("").suffix
    return inner if whole.suffix in _PACKED and inner in _SPARSE else whole.suffix


def _read(path: str, reader: Callable[[Path], Table]) -> Table:
    where = f"data.path: {Path(path).absolute()}"
    try:
        x, y, features = reader(Path(path))
        return Table(checked("x", x), checked("y", y), features)
    except FileNotFoundError:
        raise ConfigError(f"{where}: no such file") from None
    except Exception as error:  # a damaged file makes its format's library raise anything
        raise ConfigError(f"{where}: cannot be read: {str(error) or type(error).__name__}") from error


def _coded(y: Array, labels: tuple[float, ...] | None) -> Array:
    """Return class numbers where labels are given, whole numbers as integers, other targets as they are."""
    if labels is None:
        return y.astype(np.int64) if (y == np.rint(y)).all() else y
    known = np.isin(y, labels)
    if not known.all():
        row = int(np.argmin(known))
        raise ConfigError(
            f"data: row {row} has label {y[row]:g}; allowed: {', '.join(f'{value:g}' for value in labels)}"
        )
    codes: Array = (y[:, None] == np.asarray(labels)).argmax(1)
    return codes
