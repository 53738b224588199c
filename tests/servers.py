"""Runs of algorithms with a server, in one process."""

from __future__ import annotations

from typing import Any

import fedlangevin_mpi
from fedlangevin_mpi.config import make_config
from tests.gaussians import write_shards


def serve(folder, algorithm, model, data, clients, **more) -> Any:
    """Run in `folder` and return the opened run."""
    values = {
        "seed": 3,
        "clients": clients,
        "engine": "interpreted",
        "algorithm": {"global_iterations": 4} | algorithm,
        "model": {"name": model} if isinstance(model, str) else model,
        "data": data,
        "output": {"directory": str(folder / "run")},
    }
    return fedlangevin_mpi.run(make_config(values | more), force=True)


def gaussian_files(folder, means, precisions) -> dict[str, str]:
    """Write Gaussian likelihoods, one a client, and return the `data` that reads them."""
    return {"name": "files", "path": write_shards(folder / "shards", means, precisions)}
