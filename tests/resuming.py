"""Runs of every algorithm that the config can name, and what must be equal of two of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedlangevin_mpi.algorithms import algorithms
from fedlangevin_mpi.algorithms.gossiping import Gossiping
from fedlangevin_mpi.config import RunConfig, make_config
from fedlangevin_mpi.store.reader import Run

CLIENTS = 5
RING = str(Path(__file__).parents[1] / "topologies" / "ring.yaml")
MODELS: dict[str, dict[str, Any]] = {
    "compiled": {"model": {"name": "gaussian"}, "data": {"name": "synthetic_gaussian", "dim": 3}},
    "interpreted": {
        "model": {"name": "logistic_regression"},
        "data": {"name": "synthetic_logistic", "features": 3, "rows": 12},
    },
}
"""Minibatches only where they need no compilation: the rows of a block do not depend on the engine."""


def config(folder: Path, name: str, engine: str, iterations: int, **more: Any) -> RunConfig:
    """Return a config of an algorithm by its name, whose every chance is in use."""
    kind = algorithms()[name]
    algorithm: dict[str, Any] = {"name": name, "step_size": 0.02}
    if engine == "interpreted":
        algorithm["batch_size"] = 4
    if "communication_probability" in kind.model_fields:
        algorithm["communication_probability"] = 0.3
    values = {
        "seed": 3,
        "clients": 1 if kind.communicates == "never" else CLIENTS,
        "chains": 2,
        "iterations": iterations,
        "warmup": 50,
        "thin": 3,
        "engine": engine,
        "algorithm": algorithm,
        "output": {"directory": str(folder)},
    }
    topology = {"topology": RING} if issubclass(kind, Gossiping) else {}
    return make_config(values | MODELS[engine] | topology | more)


def draws(run: Run) -> np.ndarray[Any, Any]:
    """Return all draws, `(draw, client, chain, dim)`."""
    return np.stack([run.position(c)[:] for c in range(run.clients)], axis=1)


def counts(run: Run) -> dict[str, int]:
    """Return what a run counted, equal on any number of ranks."""
    assert run.statistics is not None
    found = run.statistics.communication.model_dump(include={"rounds", "messages", "bytes"})
    return found | run.statistics.model_dump(include={"iterations", "gradient_evaluations"})
