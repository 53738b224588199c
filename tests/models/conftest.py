"""Small shards, minibatches of them, and user modules."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.generic import Rows


@pytest.fixture
def row_shards() -> Callable[..., list[Shard]]:
    """`row_shards(sizes, p, classes)`: shards of random rows; `classes=0` for real targets."""

    def make(sizes: Sequence[int], p: int = 3, classes: int = 0, seed: int = 0) -> list[Shard]:
        rng = np.random.default_rng(seed)
        shards = []
        for client, n in enumerate(sizes):
            y = rng.integers(0, classes, n) if classes else rng.normal(size=n)
            shards.append(Shard(client, {"x": rng.normal(size=(n, p)), "y": y}, "made up"))
        return shards

    return make


def _rows(drawn: list[list[list[Sequence[int]]]], sizes: Sequence[int], dtype: Any) -> Rows:
    """Return the minibatches `drawn[k][c][j]`, rows of client c's own shard; what is padded points at its first row."""
    offsets = np.cumsum([0, *sizes])
    count = np.array([len(chains[0]) for chains in drawn[0]])
    index = np.zeros((len(drawn), len(sizes), len(drawn[0][0]), count.max()), np.int64) + offsets[:-1, None, None]
    weight = np.zeros((len(sizes), count.max()), dtype)
    for c, n in enumerate(count):
        weight[c, :n] = sizes[c] / n
        for k, j in np.ndindex(len(drawn), len(drawn[0][0])):
            index[k, c, j, :n] = offsets[c] + np.array(drawn[k][c][j])
    return Rows(index, count, weight)


@pytest.fixture
def draw_rows() -> Callable[..., Rows]:
    """`draw_rows(sizes, batch, chains, iterations, dtype)`: minibatches without replacement."""

    def make(sizes: Sequence[int], batch: int, chains: int, iterations: int, dtype: Any = np.float64) -> Rows:
        rng = np.random.default_rng(1)
        draw = [[[rng.permutation(n)[:batch] for _ in range(chains)] for n in sizes] for _ in range(iterations)]
        return _rows(draw, sizes, dtype)

    return make


@pytest.fixture
def all_subsets() -> Callable[..., Rows]:
    """`all_subsets(sizes, batch, chains)`: iterations that meet every subset of every client equally often."""

    def make(sizes: Sequence[int], batch: int, chains: int) -> Rows:
        subsets = [list(itertools.combinations(range(n), min(n, batch))) for n in sizes]
        iterations = int(np.lcm.reduce([len(s) for s in subsets]))
        draw = [[[s[k % len(s)]] * chains for s in subsets] for k in range(iterations)]
        return _rows(draw, sizes, np.float64)

    return make


_numbers = itertools.count()


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """`user_module(text, name=None)`: a module in the current directory; returns its name, new in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    names = set()

    def make(text: str, name: str | None = None) -> str:
        name = name or f"user_module_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(text)
        names.add(name)
        return name

    yield make
    for name in names:
        sys.modules.pop(name, None)
