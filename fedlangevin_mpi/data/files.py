"""One file a client: each rank opens the files of its own clients."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from fedlangevin_mpi.data.readers import ARCHIVES, TABLES, checked
from fedlangevin_mpi.data.shard import Array, Shard, TestSet
from fedlangevin_mpi.data.tabular import FeatureSource
from fedlangevin_mpi.errors import ConfigError, ShardError

_TEST = ("x_test", "y_test")


class Files(FeatureSource):
    """The arrays of one file a client.

    `.npz` and `.h5` hold named arrays: `x (n, p)` and `y (n,)`, optionally `x_test (m, p)` and `y_test (m,)`; `mean`
    and `covariance`; or `weights`, `means` and `covariances`. `.csv` (with a header row) and `.parquet` hold numbers
    only: the column named `y`, or else the last one, is `y`, the others are `x`.
    """

    summary: ClassVar[str] = "one file a client: .npz, .h5, .csv or .parquet"

    name: Literal["files"] = "files"
    path: str = Field(
        description="path of a client's file, relative to the current directory, with {client} for the client's number "
        "from 0 ({client:03d} pads it); ends in .npz, .h5, .csv or .parquet"
    )

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        try:
            path.format(client=0)
        except (ValueError, LookupError, AttributeError, TypeError):
            raise ValueError(f"found {path!r}; allowed: no placeholder but {{client}}") from None
        if Path(path).suffix not in ARCHIVES | TABLES:
            raise ValueError(f"found {path!r}; allowed: a file name that ends in {', '.join(ARCHIVES | TABLES)}")
        return path

    def shards(self, clients: Sequence[int], total: int, seed: int) -> list[Shard]:
        """Return the arrays of the clients' files, the test rows left out.

        Raises:
            ShardError: a file is missing, unreadable or empty, or an array is not numeric or not finite.
            ConfigError: several clients and a path without `{client}`.
        """
        self._check_total(total)
        return [self._shard(client) for client in clients]

    def test_set(self, total: int, seed: int) -> TestSet | None:
        """Return the test rows of all clients' files, one behind the other, or None where no file has any.

        Raises:
            ShardError: as `shards`.
        """
        found = [test for test in self.held_out(range(total), total, seed) if test is not None]
        if not found:
            return None
        return TestSet(np.concatenate([test.x for test in found]), np.concatenate([test.y for test in found]))

    def held_out(self, clients: Sequence[int], total: int, seed: int) -> list[TestSet | None]:
        """Return the test rows of the clients' files.

        Raises:
            ShardError: as `shards`.
        """
        self._check_total(total)
        if Path(self.path).suffix in TABLES:  # x and y only
            return [None for _ in clients]
        found = [self._read(client, _TEST)[0] for client in clients]
        return [TestSet(arrays["x_test"], arrays["y_test"]) if arrays else None for arrays in found]

    def _shard(self, client: int) -> Shard:
        arrays, features = self._read(client)
        kept = {name: array for name, array in arrays.items() if name not in _TEST}
        return Shard(client, kept, str(self._path(client)), features)

    def _path(self, client: int) -> Path:
        return Path(self.path.format(client=client)).absolute()

    def _check_total(self, total: int) -> None:
        if total > 1 and self._path(0) == self._path(1):
            raise ConfigError(f"data.path: found {self.path!r} for {total} clients; allowed: a path with {{client}}")

    def _read(
        self, client: int, names: Collection[str] | None = None
    ) -> tuple[dict[str, Array], tuple[str, ...] | None]:
        """Return the checked arrays of a client's file, `names` only or all, and the names of x's columns."""
        path = self._path(client)
        try:
            if path.stat().st_size == 0:
                raise ValueError("it is empty (0 bytes)")
            arrays, features = _load(path, names)
        except FileNotFoundError:
            raise ShardError(client, str(path), "no such file; clients are numbered from 0") from None
        except Exception as error:  # a damaged file makes its format's library raise anything
            raise ShardError(client, str(path), f"cannot be read: {str(error) or type(error).__name__}") from error
        try:
            if names is None and not arrays:
                raise ValueError("it holds no arrays at its top level")
            arrays = {name: checked(name, array) for name, array in arrays.items()}
            _check_held_out(arrays)
        except ValueError as error:
            raise ShardError(client, str(path), str(error)) from None
        return arrays, features


def _load(path: Path, names: Collection[str] | None) -> tuple[dict[str, Array], tuple[str, ...] | None]:
    if path.suffix in ARCHIVES:
        return ARCHIVES[path.suffix](path, names), None
    table = TABLES[path.suffix](path)
    return {"x": table.x, "y": table.y}, table.features


def _check_held_out(arrays: dict[str, Array]) -> None:
    """Raise ValueError where test rows are not a pair `(m, p)`, `(m,)` with as many columns as `x`."""
    found = [arrays[name] for name in _TEST if name in arrays]
    if not found:
        return
    if len(found) == 1:
        raise ValueError("it holds one of x_test and y_test; allowed: both or neither")
    x, y = found
    if x.ndim != 2 or y.shape != (len(x),):
        raise ValueError(f"x_test has shape {x.shape}, y_test {y.shape}; allowed: (m, p) and (m,)")
    if "x" in arrays and arrays["x"].shape[1:] != x.shape[1:]:
        raise ValueError(f"x_test has shape {x.shape}, x {arrays['x'].shape}; allowed: as many columns")
