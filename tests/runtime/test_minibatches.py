"""Every algorithm with minibatches: one of all rows is the full gradient, but for the order of sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedlangevin_mpi
from fedlangevin_mpi.algorithms import algorithms
from fedlangevin_mpi.algorithms.gossiping import Gossiping
from fedlangevin_mpi.algorithms.serving import Serving
from fedlangevin_mpi.config import make_config
from tests.predictives import CLASSES, LOGISTIC
from tests.resuming import RING

ALGORITHMS = algorithms()
MODELS = {"logistic": LOGISTIC, "network": CLASSES}


def draws(folder, name: str, model: dict[str, Any], batch_size: int | None) -> np.ndarray[Any, Any]:
    kind = ALGORITHMS[name]
    algorithm = {"name": name, "step_size": 1e-3} | ({"batch_size": batch_size} if batch_size else {})
    clients = 1 if kind.communicates == "never" else 3
    values = {"seed": 3, "clients": clients, "dtype": "float64", "engine": "interpreted"}
    if issubclass(kind, Serving):
        algorithm |= {"global_iterations": 7}
        algorithm |= {"local_iterations": 4} if name != "fed_sgd" else {}
        algorithm |= {"particles": 3} if name not in ("sequential_fed_avg", "fed_sgd") else {}
    else:
        values |= {"iterations": 20, "chains": 2}
        if "communication_probability" in kind.model_fields:
            algorithm |= {"communication_probability": 0.5}
    values |= {"topology": RING} if issubclass(kind, Gossiping) else {}
    config = make_config(values | model | {"algorithm": algorithm, "output": {"directory": str(folder)}})
    run = fedlangevin_mpi.run(config)
    return np.stack([run.position(client)[:] for client in run.owners])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_minibatch_of_all_rows_is_the_full_gradient(tmp_path, name, model):
    full = draws(tmp_path / "full", name, MODELS[model], None)
    all_rows = draws(tmp_path / "all", name, MODELS[model], 150)
    np.testing.assert_allclose(all_rows, full, rtol=1e-6, atol=1e-9)
    few = draws(tmp_path / "few", name, MODELS[model], 5)
    assert np.isfinite(few).all()
    assert np.abs(few - full).max() > 1e-5
