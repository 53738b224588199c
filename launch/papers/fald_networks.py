"""What tables 3 and 4 of the FALD paper share: the samplers of a network, at one budget of gradients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from runs import sample, with_overrides

from fedlangevin_mpi.algorithms.fald import Fald
from fedlangevin_mpi.config import RunConfig
from fedlangevin_mpi.store.metadata import SUMMARY_FILE
from fedlangevin_mpi.store.reader import Run

WARM_UP = 1000
"""Iterations of FedAvg from whose last average every sampler starts."""

MEMBERS, MOMENTUM = 5, 0.9
"""Of a deep ensemble."""


def samplers(config: RunConfig, rows: int) -> dict[str, dict[str, Any]]:
    """Return what differs from a config of FALD, by the names of the tables.

    All compute the gradients of as many rows as FALD in the config's iterations. SGLD takes the minibatches of all
    clients in one, and the step of their average. VR-FALD* has a new reference point so often (q_c is the share of all
    rows in an iteration's minibatches) that it costs as much as a minibatch: with its two gradients on each, it has a
    third of the iterations. FedAvg, a point estimate, is told by its last average. A deep ensemble's members share the
    budget; each starts anew, and moves as fast as SGLD does, its momentum counted.

    Args:
        config: of FALD.
        rows: that all clients have together.
    """
    fald = config.algorithm
    assert isinstance(fald, Fald)
    assert isinstance(fald.step_size, float)
    assert config.clients
    assert fald.batch_size
    together = config.clients * fald.batch_size
    sgld = {"name": "sgld", "step_size": fald.step_size / config.clients, "batch_size": together}
    sgld |= {"temperature": fald.temperature}
    central = {"clients": 1, "data.partition": {"name": "iid"}}
    third = (config.iterations * together - rows) // (3 * together)  # the first reference point costs all rows
    federated = fald.model_dump(mode="json", exclude_none=True, exclude={"participants"})
    return {
        "SGLD": central | {"algorithm": sgld},
        "deep ensembles": central
        | {
            "algorithm": {
                "name": "deep_ensemble",
                "step_size": (1 - MOMENTUM) * fald.step_size / config.clients,
                "momentum": MOMENTUM,
                "batch_size": together,
            },
            "chains": MEMBERS,
            "iterations": config.iterations // MEMBERS,
            "warmup": 0,
            "thin": config.iterations // MEMBERS,
            "initial": {"name": "module"},
        },
        "pSGLD": central | {"algorithm": sgld | {"name": "psgld", "step_size": 1e-3}},
        "FALD": {},
        "VR-FALD*": {
            "algorithm": federated | {"name": "vr_fald", "reference_probability": together / rows},
            "iterations": third,
            "warmup": third * config.warmup // config.iterations,
            "thin": max(1, config.thin // 3),
        },
        "FedAvg": {"algorithm": _without_noise(federated), "thin": config.iterations - config.warmup},
    }


def warm_start(config: Path, directory: Path, ranks: int, overrides: dict[str, Any]) -> dict[str, Any]:
    """Run FedAvg from new parameters, and return what starts other runs from its last average."""
    given = with_overrides(config, overrides)
    averaging = {"algorithm": _without_noise(given.algorithm.model_dump(mode="json", exclude_none=True))}
    length = {"iterations": WARM_UP, "warmup": 0, "thin": WARM_UP, "output.store": "draws"}
    run = sample(config, directory, ranks, overrides | averaging | length)
    path = directory / "average.npz"
    np.savez(path, position=run.average()[-1])
    return {"initial": {"name": "file", "path": str(path)}}


def _without_noise(federated: dict[str, Any]) -> dict[str, Any]:
    noise = ("noise_correlation", "temperature", "participants")
    return {key: value for key, value in federated.items() if key not in noise} | {"name": "fed_avg"}


def gradient_rows(run: Run, rows: int) -> float:
    """Return of how many rows a run computed gradients.

    Args:
        run: of a federated or a centralised sampler.
        rows: that all clients have together.
    """
    algorithm, summary = run.config["algorithm"], json.loads((run.directory / SUMMARY_FILE).read_text())
    minibatches = (2 if algorithm["name"] == "vr_fald" else 1) * run.config["iterations"]
    full = summary["gradient_evaluations"] / (run.clients * run.resolved.chains) - minibatches
    return float(run.resolved.chains * (minibatches * run.clients * algorithm["batch_size"] + full * rows))
