"""The law that an algorithm is after, against conjugate linear regression written out."""

import numpy as np
import pytest

from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.evaluate.target import target_of

MODEL = {"name": "linear_regression", "noise_scale": 0.5, "prior_scale": 2.0}
DATA = {"name": "synthetic_linear", "rows": 20, "features": 3, "noise_scale": 0.5}
SERVER = {"name": "svgd", "step_size": 0.1, "particles": 2, "global_iterations": 1}


def config(algorithm, clients=3):
    values = {"seed": 1, "clients": clients, "model": MODEL, "data": DATA, "algorithm": algorithm}
    return make_config(values | ({} if algorithm["name"] == "svgd" else {"iterations": 1}))


@pytest.mark.parametrize(
    ("algorithm", "of_prior"),
    [
        ({"name": "fald", "step_size": 0.1}, 1.0),
        ({"name": "fald", "step_size": 0.1, "temperature": 2.5}, 1 / 2.5),
        (SERVER, 1.0),
        (SERVER | {"temperature": 2.5}, 1.0),  # alpha of generalised Bayes leaves the prior as it is
    ],
)
def test_temperature_flattens_all_or_with_a_server_the_likelihood_alone(algorithm, of_prior):
    made = config(algorithm)
    target = target_of(made)
    shards = made.data.shards(range(3), 3, 1)
    x, y = (np.concatenate([shard.arrays[name] for shard in shards]) for name in ("x", "y"))
    theta = np.random.default_rng(0).normal(size=(5, 3))
    likelihood = -(theta @ x.T - y) @ x / 0.5**2 / algorithm.get("temperature", 1.0)
    np.testing.assert_allclose(target.score(theta), likelihood - of_prior * theta / 2.0**2, rtol=1e-10)
    steps = 1e-4 * np.eye(3)
    slopes = [(target.log_density(theta + h) - target.log_density(theta - h)) / 2e-4 for h in steps]
    np.testing.assert_allclose(np.stack(slopes, axis=1), target.score(theta), rtol=1e-6)
    assert target.dim == 3


def test_the_number_of_clients_must_be_known():
    with pytest.raises(ConfigError, match="clients: missing"):
        target_of(config({"name": "fald", "step_size": 0.1}, clients=None))
