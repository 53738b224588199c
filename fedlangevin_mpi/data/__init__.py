"""What clients own: data sources, how rows are dealt to clients, and how features are standardised."""

from __future__ import annotations

from functools import cache

from fedlangevin_mpi.data.partition import partitions
from fedlangevin_mpi.data.shard import DataSource, Shard, TestSet
from fedlangevin_mpi.registry import discover

__all__ = ["DataSource", "Shard", "TestSet", "partitions", "sources"]


@cache
def sources() -> dict[str, type[DataSource]]:
    """Return every data source by the names that a config gives it; a class may have several."""
    return discover(DataSource, __name__)
