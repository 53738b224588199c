import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

pytest.importorskip("torch")

from fedlangevin_mpi.algorithms import algorithms
from fedlangevin_mpi.algorithms.base import Algorithm
from fedlangevin_mpi.algorithms.serving import Serving
from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.evaluate.held_out import summary_of
from fedlangevin_mpi.models import network as network_module
from fedlangevin_mpi.models.base import Facts
from fedlangevin_mpi.models.network import Network
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.store.reader import open_run

ROOT = Path(__file__).parents[2]
LINEAR = """
import torch

class Linear(torch.nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(*shape))

    def forward(self, x):
        return x @ self.weights

def classifier():
    return Linear(13, 3)

def regression():
    return Linear(4)
"""
MODULE = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)
        {init}

    def forward(self, x):
        return {forward}
"""
LAYER = "nn.Sequential(nn.Linear(5, 3), {})"


def pack(module, likelihood="categorical", **fields):
    rng = np.random.default_rng(0)
    shard = Shard(0, {"x": rng.normal(size=(4, 5)), "y": np.array([0, 1, 2, 1])}, "made up")
    model = Network(module=module, likelihood=likelihood, **fields)
    return model.pack([shard], [1.0], model.facts(shard), np.float32)


def mine(user_module, init="pass", forward="self.layer(x)"):
    return f"{user_module(MODULE.format(init=init, forward=forward))}:Mine"


def last_draw(tmp_path, model, data, algorithm):
    values = {
        "seed": 1,
        "clients": 2,
        "chains": 2,
        "iterations": 100,
        "dtype": "float32",
        "engine": "interpreted",
        "algorithm": {"communication_probability": 0.3, "batch_size": 16} | algorithm,
        "model": {"prior_scale": 0.5} | model,
        "data": data,
        "output": {"directory": str(tmp_path / model["name"])},
    }
    return open_run(run(make_config(values))).average()[-1]


@pytest.mark.parametrize("algorithm", ["fald", "vr_fald"])
@pytest.mark.parametrize("kind", ["classifier", "regression"])
def test_a_linear_network_gives_the_draws_of_the_linear_model(kind, algorithm, user_module, tmp_path):
    network = {"name": "network", "module": f"{user_module(LINEAR)}:{kind}"}
    if kind == "classifier":
        plain, data = {"name": "softmax_regression"}, {"name": "wine", "standardize": "pooled"}
    else:
        plain, data = {"name": "linear_regression"}, {"name": "synthetic_linear", "features": 4, "rows": 50}
        plain, network = plain | {"noise_scale": 0.8}, network | {"noise_scale": 0.8}
        network["likelihood"] = "gaussian"
    sampler = {"name": algorithm, "step_size": 1e-3}
    found = last_draw(tmp_path, network, data, sampler)
    want = last_draw(tmp_path, plain, data, sampler)
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("name", [name for name, kind in algorithms().items() if issubclass(kind, Serving)])
def test_every_algorithm_with_a_server_runs_a_network(name, tmp_path):
    values = {
        "clients": 1 if name in ("svgd", "gvi") else 3,
        "engine": "interpreted",
        "initial": {"name": "module"},
        "algorithm": {"name": name, "step_size": 1e-3, "particles": 3, "global_iterations": 4},
        "model": {"name": "network", "module": "mlp", "options": {"hidden": [4]}},
        "data": {"name": "wine", "standardize": "pooled"},
        "output": {"directory": str(tmp_path / "run")},
    }
    opened = open_run(run(make_config(values)))
    particles = opened.position(-1)[:]
    assert particles.shape == (4, 3, 13 * 4 + 4 + 4 * 3 + 3)
    assert particles.dtype == np.float64
    assert (particles[0] != particles[-1]).mean() > 0.99
    assert summary_of(opened)["metrics"]["accuracy"] > 0


@pytest.mark.parametrize("name", [name for name, kind in algorithms().items() if issubclass(kind, Algorithm)])
def test_every_sampler_runs_a_network(name, tmp_path):
    kind = algorithms()[name]
    values = {
        "clients": 1 if kind.communicates == "never" else 3,
        "chains": 2,
        "iterations": 4,
        "thin": 1,
        "engine": "interpreted",
        "initial": {"name": "module"},
        "algorithm": {"name": name, "step_size": 1e-3, "batch_size": 8},
        "model": {"name": "network", "module": "mlp", "options": {"hidden": [4]}},
        "data": {"name": "wine", "standardize": "pooled"},
        "output": {"directory": str(tmp_path / "run")},
    }
    if kind.communicates == "gossip":
        values["topology"] = str(ROOT / "topologies" / "ring.yaml")
    values["algorithm"] |= {"friction": 1.0} if name == "de_sghmc" else {}
    values["algorithm"] |= {"communication_probability": 0.5} if kind.communicates == "average" else {}
    opened = open_run(run(make_config(values)))
    draws = opened.average()[:]
    assert draws.dtype == np.float32
    assert (draws[0] != draws[-1]).mean() > 0.99
    assert set(summary_of(opened)["metrics"]) == {"accuracy", "ece", "mce", "brier", "nll"}
    assert list(opened.named()) == ["hidden0.weight", "hidden0.bias", "output.weight", "output.bias"]


def test_a_noise_scale_is_learned(user_module, tmp_path):
    values = {
        "clients": 2,
        "iterations": 3000,
        "warmup": 1000,
        "initial": {"name": "module"},
        "algorithm": {"name": "fald", "step_size": 2e-4, "communication_probability": 1.0},
        "model": {
            "name": "network",
            "module": f"{user_module(LINEAR)}:regression",
            "likelihood": "gaussian",
            "noise_scale": "learned",
            "prior_scale": 3.0,
        },
        "data": {"name": "synthetic_linear", "features": 4, "rows": 200, "noise_scale": 0.25},
        "output": {"directory": str(tmp_path / "run")},
    }
    config = make_config(values)
    opened = open_run(run(config))
    shards = [shard.arrays for shard in config.data.shards(range(2), 2, 0)]
    x, y = (np.concatenate([arrays[name] for arrays in shards]) for name in ("x", "y"))
    residual = (y - x @ np.linalg.lstsq(x, y)[0]).std(ddof=4)
    found = np.exp(opened.named()["log_noise_scale"])
    # The posterior of a noise scale given 400 rows is nearly N(residual, residual^2 / 800).
    assert found.mean() == pytest.approx(residual, rel=0.03)
    assert found.std() == pytest.approx(residual / np.sqrt(800), rel=0.5)


def test_networks_are_of_float32_unless_one_says_otherwise():
    values = {
        "iterations": 1,
        "algorithm": {"name": "sgld", "step_size": 1},
        "model": {"name": "network", "module": "mlp"},
        "data": {"name": "digits"},
    }
    assert make_config(values).dtype == "float32"
    assert make_config(values | {"dtype": "float64"}).dtype == "float64"
    assert make_config(values | {"model": {"name": "softmax_regression"}}).dtype == "float64"


@pytest.mark.parametrize(
    ("init", "forward", "problem"),
    [
        ("", "x @@ x", r"importing \w+ failed: SyntaxError"),
        ("undefined", "x", "making it raised|raised: NameError"),
        ("self.layer.requires_grad_(False)", "self.layer(x)", "no parameters to sample"),
        ("self.layer = nn.LazyLinear(3)", "self.layer(x)", "parameter layer.weight has no shape yet"),
        ("self.n = nn.BatchNorm1d(3)", "self.n(self.layer(x))", r"n is BatchNorm1d, whose batch statistics"),
        (
            "self.n = nn.InstanceNorm1d(3, track_running_stats=True)",
            "self.n(self.layer(x)[..., None].expand(-1, -1, 2))[..., 0]",
            "changed its buffers",
        ),
        ("self.d = nn.Dropout(0.3)", "self.d(self.layer(x))", r"d is Dropout that drops out with probability 0\.3"),
        ("pass", "self.layer(x) + torch.randn(3)", "other numbers for the same rows the second time"),
        ("pass", "self.layer(x) - self.layer(x).mean(0)", "other numbers beside other rows"),
        (
            "self.register_buffer('b', torch.zeros(1))",
            "self.layer(x) + self.b.add_(1)",
            "other numbers for the same|changed its buffers",
        ),
        ("pass", "self.layer(x.relu_())", "forward changed the rows; allowed: the rows as they are"),
        # Not at 1, where it is made.
        ("self.s = nn.Parameter(torch.ones(5))", "self.layer(x.mul_(self.s))", "forward changed the rows"),
        (
            "pass",
            "self.layer(x) + 0 * self.layer.weight.data.clamp_(-0.01, 0.01).sum()",
            "forward changed its parameters",
        ),
        ("pass", "self.layer(x)[:, :2]", r"returned shape \(4, 2\); allowed: \(4, k\), .* k = 3 or more"),
        ("pass", "self.layer(x).sum()", r"returned shape \(\)"),
        ("pass", "(self.layer(x), x)", "forward returned tuple; allowed: a tensor"),
        ("pass", "self.layer(x).log() * float('nan')", "numbers that are not finite"),
        ("pass", "self.layer(x[:, :3])", r"forward of rows of shape \(4, 5\) raised: RuntimeError: mat1 and mat2"),
    ],
)
def test_what_is_wrong_with_a_module_is_said(init, forward, problem, user_module):
    module = mine(user_module, init, forward)
    with pytest.raises(ConfigError, match=rf"^model\.module: found '{module}': .*({problem})"):
        pack(module)


def test_what_is_no_module_is_refused(user_module):
    module = f"{user_module('def Mine():' + chr(10) + '    return 7')}:Mine"
    with pytest.raises(ConfigError, match=r"it returned int; allowed: a torch\.nn\.Module"):
        pack(module)


def test_a_regression_has_one_output(user_module):
    with pytest.raises(ConfigError, match=r"returned shape \(4, 3\); allowed: \(4, 1\) or \(4,\), the mean of y"):
        pack(mine(user_module), likelihood="gaussian")


def test_what_is_not_sampled_is_the_same_on_all_ranks(user_module):
    module = mine(user_module, "self.register_buffer('b', torch.randn(3))", "self.layer(x) + self.b")
    first = pack(module).network.buffers()[0]

    network_module._made.cache_clear()
    assert (pack(module).network.buffers()[0] == first).all()


def test_a_module_that_vmap_does_not_know_is_looped_over(user_module):
    data = pack(
        mine(user_module, forward="self.layer(x) * (1.0 if float(self.layer(x).sum().detach()) > 1e9 else 2.0)")
    )
    assert not data.network._at_once(20, 4)


def test_a_module_that_has_parameters_from_elsewhere_is_looped_over(user_module):
    module = mine(user_module, "self.list = [self.layer.weight]", "x @ self.list[0].T")
    network = pack(module).network
    assert not network._at_once(20, 4)
    network.move(2 * network.own_position)
    torch = pytest.importorskip("torch")
    x = torch.ones(1, 5)
    torch.testing.assert_close(network.outputs(x), 2 * network.own_position[:15].reshape(3, 5).sum(1)[None])


def test_a_network_is_checked_where_it_was_made_after_a_run_that_diverged(user_module):
    module = mine(user_module)
    network = pack(module).network
    network.move(np.full(network.dim, np.nan, np.float32))
    assert pack(module).network is network


def test_a_position_of_another_type_is_refused(user_module):
    with pytest.raises(TypeError, match="a position of torch.float64 for a network of torch.float32"):
        pack(mine(user_module)).network.move(np.zeros(18))


def test_parameters_are_named_as_the_module_names_them():
    model = Network(module="mlp", options={"hidden": [4]})
    shapes = {"hidden0.weight": (4, 5), "hidden0.bias": (4,), "output.weight": (3, 4), "output.bias": (3,)}
    assert model.parameters(Facts(5, 3)) == shapes
    assert model.coordinates(Facts(5, 3), list("abcde")) == dict.fromkeys(shapes) | {"hidden0.weight": list("abcde")}


def test_own_starts_differ_by_chain_and_follow_the_seed():
    model = Network(module="mlp")
    one, two = (model.own_draws(np.random.default_rng(seed), 2, Facts(5, 3)) for seed in (0, 0))
    np.testing.assert_array_equal(one, two)
    assert np.abs(one[0] - one[1]).max() > 0.1
    assert np.abs(one).max() < 1  # torch's uniform laws, not N(0, 1)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"module": "vgg"}, "allowed: lenet5, mlp, resnet20, or module:Class"),
        ({"prior_scale": 1, "weight_decay": 1}, "allowed: one of them"),
        ({"likelihood": "gaussian", "classes": 3}, "classes: found 3; allowed: absent"),
        ({"noise_scale": 0.5}, "noise_scale: found 0.5; allowed: absent"),
    ],
)
def test_impossible_combinations_are_refused(fields, problem):
    with pytest.raises(ValidationError, match=problem):
        Network(**{"module": "mlp"} | fields)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"module": "lenet5"}, "model.input_shape: missing for rows of 5 numbers"),
        ({"module": "mlp", "input_shape": [2, 3]}, r"model.input_shape: found \[2, 3\] for rows of 5 numbers"),
        ({"module": "mlp", "options": {"hidden": [0]}}, r"hidden: found \[0\]; allowed: a list of positive integers"),
        ({"module": "mlp", "options": {"activation": "step"}}, "activation: found 'step'; allowed: gelu, relu"),
        ({"module": "resnet20", "input_shape": [5, 1, 1]}, r"resnet20 of rows of shape \(5, 1, 1\); allowed"),
    ],
)
def test_options_that_do_not_fit_are_refused(fields, problem):
    with pytest.raises(ConfigError, match=problem):
        pack(**fields)


def test_torch_is_imported_for_networks_only():
    script = "import sys, fedlangevin_mpi.cli, fedlangevin_mpi.config; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60).stdout
    assert out == "False\n"
