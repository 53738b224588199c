"""How the rows of one data set are dealt to clients.

A partition sees the training rows alone (test rows are split off before) and draws from one generator that all ranks
share, so that every rank knows every row's owner without a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Union

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.registry import choices

Array = np.ndarray[Any, np.dtype[Any]]
Positive = Annotated[float, Field(gt=0)]


class PartitionRule(BaseModel):
    """Who owns which row. A subclass is one choice of `data.partition.name`; it says how in `draw`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    summary: ClassVar[str]
    """One line for `fedlangevin list data`."""

    name: str

    def assign(self, labels: Array, clients: int, generator: np.random.Generator) -> Array:
        """Return the owner of every row, `(n,)` integers; every client owns at least one row.

        A client that the draw leaves without a row takes one of the client that has the most: clients without a row
        in ascending order, each from the largest client (the first of equals) its last row.

        Args:
            labels: `(n,)` the rows' labels, or their targets in a regression.
            clients: how many there are.
            generator: shared by all ranks.

        Raises:
            ConfigError: fewer rows than clients, or a partition that does not suit the labels or the clients.
        """
        if len(labels) < clients:
            found = f"{self.name} of {len(labels)} training rows among {clients} clients"
            raise ConfigError(f"data.partition: found {found}; allowed: at least one row a client")
        owners = self.draw(labels, clients, generator)
        sizes = np.bincount(owners, minlength=clients)
        for empty in np.flatnonzero(sizes == 0):
            largest = int(sizes.argmax())
            owners[np.flatnonzero(owners == largest)[-1]] = empty
            sizes[largest] -= 1
            sizes[empty] += 1
        return owners

    def draw(self, labels: Array, clients: int, generator: np.random.Generator) -> Array:
        """Return `(n,)` owners; a client may be left without a row.

        Raises:
            ConfigError: the partition does not suit the labels or the number of clients.
        """
        raise NotImplementedError

    def _rows_by_label(self, labels: Array, generator: np.random.Generator) -> list[Array]:
        """Return the shuffled rows of every label, labels ascending.

        Raises:
            ConfigError: the labels are continuous (a floating-point array).
        """
        if not np.issubdtype(labels.dtype, np.integer):
            raise ConfigError(
                f"data.partition: found {self.name} for continuous targets ({labels.dtype}); "
                "allowed in a regression: iid, unequal"
            )
        return [generator.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]


def _cut(rows: int, proportions: Array) -> Array:
    """Return `(rows,)` owners: consecutive runs with lengths in these proportions, cut at the nearest row."""
    ends = np.rint(np.cumsum(proportions)[:-1] / proportions.sum() * rows)
    return np.searchsorted(ends, np.arange(rows), side="right")


class Iid(PartitionRule):
    """Equal sizes (they differ by at most one), rows drawn uniformly."""

    summary: ClassVar[str] = "equal sizes, rows drawn uniformly"

    name: Literal["iid"] = "iid"

    def draw(self, labels: Array, clients: int, generator: np.random.Generator) -> Array:
        """Deal shuffled rows in turn."""
        return generator.permutation(np.arange(len(labels)) % clients)


class Dirichlet(PartitionRule):
    """Each label's rows are shared out in proportions drawn from a symmetric Dirichlet law (Hsu, Qi, Brown 2019)."""

    summary: ClassVar[str] = (
        "every label shared out in Dirichlet proportions; the smaller concentration, the less alike"
    )

    name: Literal["dirichlet"] = "dirichlet"
    concentration: float = Field(
        default=0.5,
        gt=0,
        description="parameter of the symmetric Dirichlet law, > 0, no unit: near 0 each label belongs to one client, "
        "large values give all clients the same share of every label",
    )

    def draw(self, labels: Array, clients: int, generator: np.random.Generator) -> Array:
        """Draw one vector of proportions a label."""
        owners = np.empty(len(labels), np.intp)
        for rows in self._rows_by_label(labels, generator):
            owners[rows] = _cut(len(rows), generator.dirichlet(np.full(clients, self.concentration)))
        return owners


class LabelSplit(PartitionRule):
    """A fraction of label `y` goes to `y`'s own clients, the rest to all (Plassier et al. 2023, section 5, MNIST).

    With `L` labels, label number `y` (in ascending order, 0-based) is owned by the clients `i` with `i % L == y`,
    which share its fraction equally; what remains of all labels is dealt evenly to all clients. With `2 L` clients
    these are the paper's clients `y` and `y + L`. Equal means: sizes differ by at most one.
    """

    summary: ClassVar[str] = "a fraction of label y to clients y, y + L, ... (L labels), the rest evenly to all"

    name: Literal["label_split"] = "label_split"
    fraction: float = Field(
        default=0.8, ge=0, le=1, description="share of a label's rows that its own clients get, 0 to 1"
    )

    def draw(self, labels: Array, clients: int, generator: np.random.Generator) -> Array:
        """Deal every label's fraction in turn to its own clients, then what remains, label by label, to all.

        Raises:
            ConfigError: continuous labels, or fewer clients than labels.
        """
        by_label = self._rows_by_label(labels, generator)
        if clients < len(by_label):
            found = f"{self.name} of {len(by_label)} labels among {clients} clients"
            raise ConfigError(f"data.partition: found {found}; allowed: at least one client a label")
        owners = np.empty(len(labels), np.intp)
        remaining = []
        for label, rows in enumerate(by_label):
            own, rest = np.split(rows, [round(self.fraction * len(rows))])
            own_clients = np.arange(label, clients, len(by_label))
            owners[own] = own_clients[np.arange(len(own)) % len(own_clients)]
            remaining.append(rest)
        rest = np.concatenate(remaining)
        owners[rest] = np.arange(len(rest)) % clients
        return owners


class Unequal(PartitionRule):
    """Sizes in given proportions, rows drawn uniformly."""

    summary: ClassVar[str] = "sizes in given proportions or falling geometrically, rows drawn uniformly"

    name: Literal["unequal"] = "unequal"
    proportions: tuple[Positive, ...] | None = Field(
        default=None,
        description="relative size of every client, in client order, each > 0; they need not sum to one. "
        "Either this or `ratio`",
    )
    ratio: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="size of client i + 1 over that of client i, in (0, 1]: client 0 is the largest. "
        "Either this or `proportions`",
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.proportions is None) == (self.ratio is None):
            found = "neither proportions nor ratio" if self.ratio is None else "both proportions and ratio"
            raise ValueError(f"found {found}; allowed: one of them")
        return self

    def draw(self, labels: Array, clients: int, generator: np.random.Generator) -> Array:
        """Cut the shuffled rows.

        Raises:
            ConfigError: the number of proportions is not the number of clients.
        """
        if self.proportions is not None and len(self.proportions) != clients:
            found = f"{len(self.proportions)} for {clients} clients"
            raise ConfigError(f"data.partition.proportions: found {found}; allowed: one a client")
        proportions = self.proportions if self.ratio is None else self.ratio ** np.arange(clients)
        return generator.permutation(_cut(len(labels), np.asarray(proportions)))


def partitions() -> dict[str, type[PartitionRule]]:
    """Return every partition by the name that a config gives it."""
    return choices(PartitionRule, globals())


if TYPE_CHECKING:
    Partition = PartitionRule
else:  # a type made at run time, so that a new partition is one class above
    Partition = Annotated[Union[tuple(partitions().values())], Field(discriminator="name")]  # noqa: UP007
