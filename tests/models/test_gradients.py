"""What every model's gradients must satisfy, in both engines."""

import sys
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.generic import Everything, Rows, gradient, meaning
from fedlangevin_mpi.models import models
from fedlangevin_mpi.models.base import Model
from fedlangevin_mpi.runtime.compiled import OPTIONS

SIZES = (5, 2, 4)
WEIGHTS = (0.5, 0.2, 0.3)
CHAINS = 2
P = 3

TORCH = """
import torch
from fedlangevin_mpi.models.custom import CustomModel

def make_model():
    def log_likelihood(theta, x, y):
        return -(torch.nn.functional.softplus(x @ theta[:3]) - y * (x @ theta[:3])).sum() * theta[3].exp()
    return CustomModel(dim=4, log_likelihood=log_likelihood, log_prior=lambda theta: -(theta**4).sum())
"""

NUMPY = """
import numba
import numpy as np
from fedlangevin_mpi.models.custom import CustomModel

@numba.njit
def gradient(theta, x, y):
    out = np.zeros_like(theta)
    for i in range(len(y)):
        out[:3] += (np.dot(x[i], theta[:3]) - y[i]) ** 3 * x[i]
    return out

def prior_gradient(theta):
    return np.sinh(theta)

def make_model():
    return CustomModel(
        dim=lambda features: features + 1,
        gradient=gradient,
        prior_gradient=prior_gradient,
        log_likelihood=lambda theta, x, y: -((x @ theta[:3] - y) ** 4).sum() / 4,
        log_prior=lambda theta: -np.cosh(theta).sum(),
    )
"""

KINDS: dict[str, dict[str, Any]] = {
    "gaussian": {"name": "gaussian"},
    "mixture": {"name": "gaussian_mixture", "prior": {"name": "normal", "mean": 0.3, "scale": 1.5}},
    "bounded_mixture": {"name": "gaussian_mixture", "prior": {"name": "uniform", "low": -9.0, "high": 9.0}},
    "linear": {"name": "linear_regression", "noise_scale": 0.7, "prior_scale": 1.5},
    "logistic": {"name": "logistic_regression", "prior_scale": 0.8},
    "hierarchical": {"name": "logistic_regression", "precision_prior": {"shape": 1.5, "rate": 0.4}},
    "softmax": {"name": "softmax_regression", "prior_scale": 0.6},
    "custom_numpy": {"name": "custom", "factory": "user_numpy:make_model"},
    "custom_torch": {"name": "custom", "factory": "user_torch:make_model"},
    "network": {"name": "network", "module": "mlp", "options": {"hidden": [4], "activation": "tanh"}},
    "network_gaussian": {
        "name": "network",
        "module": "mlp",
        "options": {"hidden": [2, 3], "activation": "sigmoid"},
        "likelihood": "gaussian",
        "noise_scale": 0.4,
        "weight_decay": 2.0,
    },
}
TORCH_KINDS = ["custom_torch", "network", "network_gaussian"]
WITH_ROWS = [kind for kind, values in KINDS.items() if models()[values["name"]].has_rows]
COMPILED = [
    (kind, batch)
    for kind in KINDS
    for batch in ("rows", "everything")
    if kind not in TORCH_KINDS and (batch == "everything" or kind in WITH_ROWS)
]


class Problem(NamedTuple):
    model: Model
    shards: list[Shard]
    dim: int

    def pack(self, dtype: Any = np.float64) -> Any:
        return self.model.pack(self.shards, WEIGHTS, self.facts, np.dtype(dtype))

    @property
    def facts(self) -> Any:
        return self.model.facts(self.shards[0])

    def positions(self, dtype: Any = np.float64) -> np.ndarray:
        return np.random.default_rng(2).normal(size=(len(self.shards), CHAINS, self.dim)).astype(dtype)


def gaussian_shards() -> list[Shard]:
    rng = np.random.default_rng(3)
    factors = rng.normal(size=(3, P, 5))
    means = rng.normal(size=(3, P))
    return [Shard(c, {"mean": means[c], "covariance": f @ f.T}, "made up") for c, f in enumerate(factors)]


def mixture_shards() -> list[Shard]:
    """Two, one and three components."""
    rng = np.random.default_rng(4)
    shards = []
    for c, k in enumerate([2, 1, 3]):
        factors = rng.normal(size=(k, P, 5))
        arrays = {"weights": rng.random(k), "means": rng.normal(size=(k, P)), "covariances": factors @ factors.mT}
        shards.append(Shard(c, arrays, "made up"))
    return shards


@pytest.fixture(scope="module", autouse=True)
def user_modules(tmp_path_factory):
    folder = tmp_path_factory.mktemp("user")
    (folder / "user_torch.py").write_text(TORCH)
    (folder / "user_numpy.py").write_text(NUMPY)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        yield


@pytest.fixture
def problem(request, row_shards) -> Problem:
    kind = request.param
    values = KINDS[kind]
    if kind in TORCH_KINDS:
        pytest.importorskip("torch")
    model = models()[values["name"]](**values)
    labels = {"softmax": 3, "network": 3, "linear": 0, "custom_numpy": 0, "network_gaussian": 0}.get(kind, 2)
    without_rows = mixture_shards() if "mixture" in kind else gaussian_shards()
    shards = row_shards(SIZES, P, labels) if kind in WITH_ROWS else without_rows
    if labels == 3:
        shards[0].arrays["y"][0] = 2  # so that client 0 alone tells the number of classes
    return Problem(model, shards, model.dimension(model.facts(shards[0])))


def every(kinds: list[str]) -> Any:
    return pytest.mark.parametrize("problem", kinds, indirect=True)


def test_every_model_is_among_the_problems():
    assert {kind["name"] for kind in KINDS.values()} == set(models())


@every(list(KINDS))
def test_full_gradient_is_the_slope_of_the_potential(problem):
    data, theta, h = problem.pack(), problem.positions(), 1e-5
    steps = h * np.eye(problem.dim)
    differences = [problem.model.potential(theta + s, data) - problem.model.potential(theta - s, data) for s in steps]
    slope = np.stack(differences, axis=-1) / (2 * h)
    np.testing.assert_allclose(gradient(theta, data, Everything(3), 0), slope, rtol=1e-6, atol=1e-6)


@every(WITH_ROWS)
def test_mean_over_all_minibatches_is_the_full_gradient(problem, all_subsets):
    data, theta = problem.pack(), problem.positions()
    rows = all_subsets(SIZES, 3, CHAINS)
    assert list(rows.drawn) == [3, 2, 3]  # client 1 has fewer rows than the batch
    mean = np.mean([gradient(theta, data, rows, k) for k in range(len(rows.row))], axis=0)
    np.testing.assert_allclose(mean, gradient(theta, data, Everything(3), 0), rtol=1e-12, atol=1e-12)


@every(WITH_ROWS)
def test_a_minibatch_differs_by_chain_and_iteration(problem, draw_rows):
    data, rows = problem.pack(), draw_rows(SIZES, 1, CHAINS, 2)
    theta = np.broadcast_to(problem.positions()[:, :1], (3, CHAINS, problem.dim)).copy()
    found = np.stack([gradient(theta, data, rows, k) for k in range(2)])
    assert not np.allclose(found[0], found[1])
    assert not np.allclose(found[:, :, 0], found[:, :, 1])


@every(WITH_ROWS)
def test_splitting_rows_over_clients_changes_nothing(problem):
    theta = np.broadcast_to(problem.positions()[:1], (3, CHAINS, problem.dim)).copy()
    pooled = Shard(0, {n: np.concatenate([s.arrays[n] for s in problem.shards]) for n in ("x", "y")}, "pooled")
    one = problem.model.pack([pooled], [1.0], problem.facts, np.dtype(np.float64))
    for value in (lambda t, d: gradient(t, d, Everything(len(t)), 0), problem.model.potential):
        together = value(theta, problem.pack()).sum(0, keepdims=True)
        np.testing.assert_allclose(together, value(theta[:1], one), rtol=1e-12)


@every(list(KINDS))
def test_parameters_cover_a_position(problem):
    shapes = problem.model.parameters(problem.facts)
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == problem.dim


@numba.njit(**OPTIONS)
def compiled(theta, data, batch, k):
    return gradient(theta, data, batch, k)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
@pytest.mark.parametrize(("problem", "batch"), COMPILED, indirect=["problem"])
def test_compiled_and_interpreted_agree(problem, batch, dtype, tolerance, draw_rows):
    data, theta = problem.pack(dtype), problem.positions(dtype)
    before = theta.copy()
    chosen = draw_rows(SIZES, 3, CHAINS, 2, dtype) if batch == "rows" else Everything(3)
    for k in range(2):
        expected, found = gradient(theta, data, chosen, k), compiled(theta, data, chosen, k)
        assert expected.dtype == found.dtype == dtype
        assert found.flags.c_contiguous
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(theta, before)


@pytest.mark.parametrize("batch", [4, 6, 7, None])
@pytest.mark.parametrize("kind", ["linear", "logistic", "hierarchical"])
def test_groups_and_tiles_of_rows_leave_none_out(kind, batch, row_shards, draw_rows):
    sizes = (130, 7, 64)
    model, shards = models()[KINDS[kind]["name"]](**KINDS[kind]), row_shards(sizes, 11, 0 if kind == "linear" else 2)
    facts = model.facts(shards[0])
    data = model.pack(shards, WEIGHTS, facts, np.dtype(float))
    theta = np.random.default_rng(2).normal(size=(3, CHAINS, model.dimension(facts)))
    chosen = draw_rows(sizes, batch, CHAINS, 1) if batch else Everything(3)
    expected = gradient(theta, data, chosen, 0)
    np.testing.assert_allclose(compiled(theta, data, chosen, 0), expected, rtol=1e-12, atol=1e-11)


@every(TORCH_KINDS)
def test_torch_models_have_no_compiled_gradient(problem):
    kind = type(problem.pack())
    assert all(meaning(gradient, kind, batch).compiled is None for batch in (Rows, Everything))


@every(TORCH_KINDS)
def test_torch_gradients_keep_float32(problem):
    assert gradient(problem.positions(np.float32), problem.pack(np.float32), Everything(3), 0).dtype == np.float32
