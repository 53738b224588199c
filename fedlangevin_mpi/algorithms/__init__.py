"""The samplers, one file an algorithm. A new file is found by itself: see CONTRIBUTING.md."""

from __future__ import annotations

from functools import cache

from fedlangevin_mpi.algorithms.base import Method
from fedlangevin_mpi.registry import discover


@cache
def algorithms() -> dict[str, type[Method]]:
    """Return every algorithm by the name that a config gives it."""
    return discover(Method, __name__)
