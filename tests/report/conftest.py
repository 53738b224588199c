"""Runs to look at: small, sampled by this process."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedlangevin_mpi
from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.store.reader import Run

RING = str(Path(__file__).parents[2] / "topologies" / "ring.yaml")
TITANIC = {"name": "titanic", "test_fraction": 0.2}


def sampled(directory: Path, **config) -> Run:
    base = {"seed": 3, "clients": 3, "chains": 2, "iterations": 400, "thin": 2, "engine": "interpreted"}
    return fedlangevin_mpi.run(make_config(base | config | {"output": {"directory": str(directory)}}))


def with_server(directory: Path, **config) -> Run:
    base = {"seed": 3, "engine": "interpreted", "output": {"directory": str(directory)}}
    return fedlangevin_mpi.run(make_config(base | config))


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> dict[str, Run]:
    """A FALD run that predicts, the same by VR-FALD*, a Gaussian one on a ring, and particles on a server."""
    folder = tmp_path_factory.mktemp("runs")
    logistic = {"model": {"name": "logistic_regression"}, "data": TITANIC}
    step = {"step_size": 1e-3, "batch_size": 16, "communication_probability": 0.5}
    gaussian = {"model": {"name": "gaussian"}, "data": {"name": "synthetic_gaussian", "dim": 2}}
    gossip = {"algorithm": {"name": "de_sgld", "step_size": 0.05}, "topology": RING}
    server = {"name": "dsvgd", "step_size": 0.1, "particles": 30, "global_iterations": 6, "local_iterations": 20}
    mixture = {"model": {"name": "gaussian_mixture"}, "data": {"name": "toy_mixture_1d"}}
    return {
        "dsvgd": with_server(folder / "dsvgd", clients=2, algorithm=server, **mixture),
        "fald": sampled(folder / "fald", algorithm={"name": "fald"} | step, **logistic),
        "vr_fald": sampled(folder / "vr <b>", algorithm={"name": "vr_fald"} | step, **logistic),
        "ring": sampled(folder / "ring", **gossip, **gaussian),
    }
