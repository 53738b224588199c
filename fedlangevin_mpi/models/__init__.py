"""Models, one file a family of potentials. A new file is found by itself: see CONTRIBUTING.md."""

from __future__ import annotations

from functools import cache

from fedlangevin_mpi.models.base import Model
from fedlangevin_mpi.registry import discover


@cache
def models() -> dict[str, type[Model]]:
    """Return every model by the name that a config gives it."""
    return discover(Model, __name__)
