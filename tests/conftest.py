"""Small run folders, laid out by the writer itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fedlangevin_mpi.store.writer import DrawWriter

STATISTICS = {
    "iterations": 100,
    "wall_seconds": 2.5,
    "setup_seconds": 0.25,
    "compile_seconds": 0.5,
    "iterations_per_second": 50.0,
    "gradient_evaluations": 1200,
    "communication": {"rounds": 20, "messages": 120, "bytes": 2880, "mpi_bytes": 3000},
}


def _write_draws(
    directory: Path,
    positions: np.ndarray,
    placement: Sequence[Sequence[int]],
    segment: int = 0,
    iterations: Sequence[int] | None = None,
    **about: Any,
) -> None:
    """Write `positions (draw, client, chain, dim)`, rank r holding the clients `placement[r]`."""
    for rank, clients in enumerate(placement):
        mine = positions[:, [max(c, 0) for c in clients]]
        facts: dict[str, Any] = {"algorithm": "fald", "seed": 1, "coins": "shared", "ranks": len(placement)}
        with DrawWriter(
            directory,
            rank=rank,
            clients=clients,
            chains=positions.shape[2],
            dim=positions.shape[3],
            dtype=positions.dtype,
            capacity_per_block=len(positions),
            segment=segment,
            **facts | about,
        ) as writer:
            writer.buffer[: len(mine)] = mine
            writer.commit(len(mine), range(len(mine)) if iterations is None else iterations)


def _write_run_file(directory: Path, clients: int, chains: int, dim: int, **resolved: Any) -> None:
    config = {
        "seed": 1,
        "clients": clients,
        "iterations": 100,
        "algorithm": {"name": "fald", "step_size": 0.1, "communication_probability": 0.2},
        "model": {"name": "gaussian"},
        "data": {"name": "files", "path": "client-{client}.npz"},
    }
    shape = {"clients": clients, "ranks": 1, "chains": chains, "dim": dim, "dtype": "float64"}
    content = config | {"resolved": shape | {"parameters": {"x": [dim]}} | resolved}
    (directory / "run.yaml").write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")


@pytest.fixture
def write_draws() -> Callable[..., None]:
    """`write_draws(directory, positions, placement, segment=0, iterations=None, **about)`."""
    return _write_draws


@pytest.fixture
def write_run_file() -> Callable[..., None]:
    """`write_run_file(directory, clients, chains, dim, **resolved)`."""
    return _write_run_file


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that lays out a finished run of given positions and returns its folder."""

    def make(
        positions: np.ndarray,
        placement: Sequence[Sequence[int]] | None = None,
        name: str = "run",
        about: dict[str, Any] | None = None,
        **resolved: Any,
    ) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        clients = positions.shape[1]
        placement = placement or [list(range(clients))]
        _write_draws(directory, positions, placement, **about or {})
        _write_run_file(directory, clients, *positions.shape[2:], **{"ranks": len(placement)} | resolved)
        (directory / "statistics.json").write_text(json.dumps(STATISTICS))
        return directory

    return make
