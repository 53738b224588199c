"""Runs that average their posterior predictive as they go, one of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedlangevin_mpi.config import RunConfig, make_config
from tests.resuming import RING

LOGISTIC = {
    "model": {"name": "logistic_regression"},
    "data": {"name": "synthetic_logistic", "features": 3, "rows": 30, "test_rows": 17, "intercept": True},
}
LINEAR = {
    "model": {"name": "linear_regression", "noise_scale": 0.5},
    "data": {"name": "synthetic_linear", "features": 2, "rows": 30, "test_rows": 17, "standardize": "pooled"},
}
SOFTMAX = {"model": {"name": "softmax_regression"}, "data": {"name": "iris", "test_fraction": 0.1}}
CLASSES = {"model": {"name": "network", "module": "mlp", "options": {"hidden": [4]}}, "data": SOFTMAX["data"]}
LEARNED = {"likelihood": "gaussian", "noise_scale": "learned"}
TARGETS = {"model": CLASSES["model"] | LEARNED, "data": LINEAR["data"]}

KINDS: dict[str, dict[str, Any]] = {
    "average": {"algorithm": {"name": "fald", "communication_probability": 0.3}} | LOGISTIC,
    "regression": {"algorithm": {"name": "vr_fald", "communication_probability": 0.3}} | LINEAR,
    "gossip": {"algorithm": {"name": "de_sghmc"}, "topology": RING} | SOFTMAX,
    "network": {"algorithm": {"name": "fald", "communication_interval": 2}} | CLASSES,
    "targets": {"algorithm": {"name": "de_sgld"}, "topology": RING} | TARGETS,
    "travelling": {"algorithm": {"name": "dsgld", "particles": 2, "global_iterations": 30, "local_iterations": 3}}
    | SOFTMAX,
    "particles": {"algorithm": {"name": "dsvgd", "particles": 5, "global_iterations": 6}} | LOGISTIC,
    "variational": {"algorithm": {"name": "pvi", "particles": 5, "global_iterations": 6}} | LOGISTIC,
}


def config(folder: Path, kind: str, store: str, iterations: int = 60, **more: Any) -> RunConfig:
    """Return a config of five clients with held-out rows."""
    values = {
        "seed": 3,
        "clients": 5,
        "chains": 2,
        "iterations": iterations,
        "warmup": 7,
        "thin": 5,
        "engine": "interpreted",
        "output": {"directory": str(folder), "store": store},
    } | KINDS[kind]
    values["algorithm"] = {"step_size": 1e-3} | values["algorithm"]
    if "global_iterations" in values["algorithm"]:
        del values["iterations"]
        values |= {"warmup": 1, "thin": 2}
        del values["chains"]
    return make_config(values | more)
