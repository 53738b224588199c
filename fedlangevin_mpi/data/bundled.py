"""Real data sets that need no network: Titanic from its counts, and those that come with scikit-learn."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedlangevin_mpi.data.partition import Dirichlet, Partition
from fedlangevin_mpi.data.shard import Array
from fedlangevin_mpi.data.tabular import INTERCEPT, PARTITION, STANDARDIZE, Standardize, TableSource

# (sex, age, survived): how many in (crew, 1st, 2nd, 3rd class). 2,201 people (Dawson 1995, J. Statistics Education 3).
_TITANIC_COUNTS = {
    ("male", "child", "died"): (0, 0, 0, 35),
    ("female", "child", "died"): (0, 0, 0, 17),
    ("male", "adult", "died"): (670, 118, 154, 387),
    ("female", "adult", "died"): (3, 4, 13, 89),
    ("male", "child", "survived"): (0, 5, 11, 13),
    ("female", "child", "survived"): (0, 1, 13, 14),
    ("male", "adult", "survived"): (192, 57, 14, 75),
    ("female", "adult", "survived"): (20, 140, 80, 76),
}


class Titanic(TableSource):
    """Who survived the Titanic: 2,201 rows of class, age and sex; `y` is 1 for survivors.

    Coded as class (crew 0, 1st 1, 2nd 2, 3rd 3), age (child 0, adult 1), sex (female 0, male 1). The defaults are the
    setting of Plassier et al. 2023, table 2.
    """

    summary: ClassVar[str] = "survival on the Titanic: 2,201 rows, class, age, sex; 2 classes"

    name: Literal["titanic"] = "titanic"
    partition: Partition = Field(default=Dirichlet(concentration=0.5), description=PARTITION)
    standardize: Standardize = Field(default="pooled", description=STANDARDIZE)
    intercept: bool = Field(default=True, description=INTERCEPT)

    def table(self) -> tuple[Array, Array]:
        """Return one row a person, in the order of the table of counts."""
        rows = [
            (cabin, age == "adult", sex == "male", fate == "survived")
            for (sex, age, fate), counts in _TITANIC_COUNTS.items()
            for cabin, count in enumerate(counts)
            for _ in range(count)
        ]
        people = np.array(rows, np.int64)
        return people[:, :3].astype(np.float64), people[:, 3]

    def columns(self) -> list[str]:
        """Return class, age, sex."""
        return ["class", "age", "sex"]


class ScikitLearn(TableSource):
    """A set that comes with scikit-learn, unscaled."""

    summary: ClassVar[str] = (
        "scikit-learn's sets (rows x features): breast_cancer 569x30, digits 1797x64, iris 150x4, wine 178x13 "
        "(classes); diabetes 442x10 (regression)"
    )

    name: Literal["breast_cancer", "diabetes", "digits", "iris", "wine"]

    def table(self) -> tuple[Array, Array]:
        """Return the set's rows; labels are integers, targets of a regression floating-point numbers."""
        bunch = self._load()
        return bunch.data, bunch.target

    def columns(self) -> list[str]:
        """Return scikit-learn's names of the features."""
        return [str(name) for name in self._load().feature_names]

    def _load(self) -> Any:
        from sklearn import datasets  # half a second that other sources need not pay

        # Diabetes comes scaled by statistics of all rows, the test rows too, unless one asks for the measured values.
        options = {"scaled": False} if self.name == "diabetes" else {}
        return getattr(datasets, f"load_{self.name}")(**options)
