"""One table in a file, dealt to the clients."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from fedlangevin_mpi.data.readers import TABLES, Table
from fedlangevin_mpi.data.shard import Array
from fedlangevin_mpi.data.tabular import TableSource
from fedlangevin_mpi.errors import ConfigError


class OneFile(TableSource):
    """The rows of a `.csv` (with a header row) or `.parquet` file of numbers, as `files` reads them: `y` is the column
    of that name, or else the last one. Where all of `y` are whole numbers, they are labels."""

    summary: ClassVar[str] = "one .csv or .parquet file whose rows are dealt to the clients"

    name: Literal["one_file"] = "one_file"
    path: str = Field(description="of the file, relative to the current directory; ends in .csv or .parquet")

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        if Path(path).suffix not in TABLES:
            raise ValueError(f"found {path!r}; allowed: a file name that ends in {', '.join(TABLES)}")
        return path

    def table(self) -> tuple[Array, Array]:
        """Return the file's rows.

        Raises:
            ConfigError: it cannot be read, is empty, or holds what is not a finite number.
        """
        x, y, _ = self._read()
        return x, y.astype(np.int64) if (y == np.floor(y)).all() else y

    def columns(self) -> list[str]:
        """Return the names of the columns but `y`'s."""
        return list(self._read().features)

    def _read(self) -> Table:
        try:
            table = TABLES[Path(self.path).suffix](Path(self.path))
            values = np.column_stack([table.x, table.y])
            if not len(values):
                raise ValueError("it has no rows")
            if not np.isfinite(values).all():
                row = int(np.argmin(np.isfinite(values).all(axis=1)))
                raise ValueError(f"row {row} (counted from 0) holds a number that is not finite")
        except Exception as error:  # a damaged file makes its format's library raise anything
            raise ConfigError(f"data.path: {self.path} cannot be read: {str(error) or type(error).__name__}") from error
        return table
