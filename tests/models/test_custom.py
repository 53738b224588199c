import pickle
import subprocess
import sys

import numpy as np
import pytest
from pydantic import ValidationError

from fedlangevin_mpi.data.shard import Shard
from fedlangevin_mpi.errors import ConfigError
from fedlangevin_mpi.generic import Everything, Rows, gradient, meaning
from fedlangevin_mpi.models import custom_gradients
from fedlangevin_mpi.models.base import Facts
from fedlangevin_mpi.models.custom import Custom, CustomModel
from fedlangevin_mpi.models.logistic import LogisticRegression

NUMPY = """
import numpy as np
from fedlangevin_mpi.models.custom import CustomModel

def make_model(scale):
    def probability(theta, x):
        return 1 / (1 + np.exp(-x @ theta))
    return CustomModel(
        dim=lambda features: features,
        gradient=lambda theta, x, y: x.T @ (probability(theta, x) - y),
        prior_gradient=lambda theta: theta / scale**2,
        log_likelihood=lambda theta, x, y: (y * (x @ theta) - np.logaddexp(0, x @ theta)).sum(),
        log_prior=lambda theta: -(theta @ theta) / (2 * scale**2),
        predict=lambda theta, x: np.stack([1 - probability(theta, x), probability(theta, x)], axis=-1),
        parameters={"slopes": (2,), "offset": ()},
    )
"""

TORCH = """
import torch
from fedlangevin_mpi.models.custom import CustomModel

def make_model(scale):
    def predict(theta, x):
        p = torch.sigmoid(x @ theta)
        return torch.stack([1 - p, p], dim=-1)
    return CustomModel(
        dim=3,
        log_likelihood=lambda theta, x, y: -torch.nn.functional.binary_cross_entropy_with_logits(
            x @ theta, y, reduction="sum"
        ),
        log_prior=lambda theta: -theta.square().sum() / (2 * scale**2),
        predict=predict,
    )
"""


def custom(module: str, **options) -> Custom:
    return Custom(factory=f"{module}:make_model", options=options)


def returning(expression: str) -> str:
    return (
        "import numpy as np\nfrom fedlangevin_mpi.models.custom import CustomModel\n"
        f"def make_model():\n    return {expression}\n"
    )


def pack(model: Custom) -> object:
    shard = Shard(0, {"x": np.ones((4, 3)), "y": np.zeros(4)}, "made up")
    return model.pack([shard], [1.0], model.facts(shard), np.float64)


@pytest.mark.parametrize("text", [NUMPY, TORCH], ids=["numpy", "torch"])
def test_a_custom_logistic_regression_is_the_built_in_one(text, user_module, row_shards, draw_rows):
    if text is TORCH:
        pytest.importorskip("torch")
    shards, facts, sizes = row_shards([5, 2, 4], classes=2), Facts(3, 2), (5, 2, 4)
    mine, reference = custom(user_module(text), scale=0.7), LogisticRegression(prior_scale=0.7)
    one, two = (m.pack(shards, [0.5, 0.2, 0.3], facts, np.float64) for m in (mine, reference))
    theta = np.random.default_rng(0).normal(size=(3, 2, 3))
    for batch in (Everything(3), draw_rows(sizes, 3, 2, 1)):
        found = gradient(theta, one, batch, 0)
        np.testing.assert_allclose(found, gradient(theta, two, batch, 0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(mine.potential(theta, one), reference.potential(theta, two), rtol=1e-12)
    x, positions = shards[0].arrays["x"], theta[:, 0]
    np.testing.assert_allclose(mine.predict(positions, x, facts), reference.predict(positions, x, facts), rtol=1e-12)


def test_shapes_come_from_the_user(user_module):
    model = custom(user_module(NUMPY), scale=1.0)
    assert model.dimension(Facts(3)) == 3
    assert model.parameters(Facts(3)) == {"slopes": (2,), "offset": ()}
    with pytest.raises(ConfigError, match=r"parameters .* have 3 entries; allowed: dim = 4"):
        model.parameters(Facts(4))


def test_without_shapes_a_position_is_one_vector(user_module):
    model = custom(user_module(returning("CustomModel(dim=5, gradient=lambda t, x, y: t)")))
    assert model.parameters(Facts(3)) == {"theta": (5,)}
    assert model.predict(np.zeros((2, 5)), np.zeros((1, 3)), Facts(3)) is None


def test_without_a_prior_gradient_the_prior_is_flat(user_module):
    model = custom(user_module(returning("CustomModel(dim=3, gradient=lambda t, x, y: x.sum(0))")))
    np.testing.assert_array_equal(gradient(np.ones((1, 1, 3)), pack(model), Everything(1), 0), [[[4, 4, 4]]])


def test_the_compiled_engine_is_for_decorated_gradients_only(user_module):
    plain = user_module(returning("CustomModel(dim=3, gradient=lambda t, x, y: t)"))
    decorated = user_module("import numba\n" + returning("CustomModel(dim=3, gradient=numba.njit(lambda t, x, y: t))"))
    for module, compiles in ((plain, False), (decorated, True)):
        kind = type(pack(custom(module)))
        assert {meaning(gradient, kind, batch).compiled is not None for batch in (Rows, Everything)} == {compiles}


def test_two_models_in_a_process_keep_their_gradients(user_module):
    text = "import numpy as np\nfrom fedlangevin_mpi.models.custom import CustomModel\n"
    text += "def make_model(factor):\n    return CustomModel(dim=3, gradient=lambda t, x, y: factor * t)\n"
    module = user_module(text)
    one, two = (pack(custom(module, factor=factor)) for factor in (1.0, 2.0))
    for data, factor in ((one, 1), (two, 2)):
        np.testing.assert_array_equal(gradient(np.ones((1, 1, 3)), data, Everything(1), 0), np.full((1, 1, 3), factor))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, r"importing \w+ failed: ModuleNotFoundError: No module named '\w+'"),
        ("def make_model(:", r"importing \w+ failed: SyntaxError: invalid syntax"),
        ("raise OSError('no GPU')", r"importing \w+ failed: OSError: no GPU"),
        ("x = 1", r"\w+ \(.*\.py\) has no function 'make_model'"),
        ("def make_model():\n    return {}['scale']", r"make_model\(\) raised: KeyError: 'scale'"),
        ("def make_model():\n    return 7", r"it returned int; allowed: fedlangevin_mpi\.CustomModel"),
        (returning("CustomModel(dim=3)"), r"ValueError: neither gradient \(NumPy\) nor log_likelihood \(torch\)"),
        (returning("CustomModel(dim=3, gradient=1)"), r"TypeError: gradient is 1; allowed: a function"),
        (returning("CustomModel(dim=0, gradient=np.dot)"), r"dim is 0; allowed: a positive integer"),
        (returning("CustomModel(dim=lambda p: p / 0, gradient=np.dot)"), r"dim\(3\) raised: ZeroDivisionError"),
        (
            returning("CustomModel(dim=3, gradient=lambda theta, x, y: x[0, :2])"),
            r"gradient returned shape \(2,\); allowed: \(3,\)",
        ),
        (
            returning("CustomModel(dim=2, gradient=lambda theta, x, y: x @ theta)"),
            r"gradient raised: ValueError: matmul",
        ),
        (
            returning("CustomModel(dim=3, gradient=lambda theta, x, y: theta, prior_gradient=np.sum)"),
            r"prior_gradient returned shape \(\); allowed: \(3,\)",
        ),
    ],
)
def test_what_is_wrong_with_a_factory_is_said(text, problem, user_module):
    module = "no_such_module" if text is None else user_module(text)
    with pytest.raises(ConfigError, match=rf"^model\.factory: found '{module}:make_model': .*{problem}"):
        pack(custom(module))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("x @ theta", "grad can be implicitly created only for scalar outputs"),
        ("1.0", "TypeError|AttributeError"),
        ("torch.tensor(1.0)", "does not require grad"),
    ],
)
def test_what_torch_cannot_differentiate_is_refused(body, problem, user_module):
    pytest.importorskip("torch")
    module = user_module("import torch\n" + returning(f"CustomModel(dim=3, log_likelihood=lambda theta, x, y: {body})"))
    with pytest.raises(ConfigError, match=rf"torch cannot differentiate its log density: .*({problem})"):
        pack(custom(module))


def test_predictions_of_another_shape_are_refused(user_module):
    module = user_module(returning("CustomModel(dim=3, gradient=np.dot, predict=lambda theta, x: theta)"))
    with pytest.raises(
        ConfigError, match=r"predict returned shape \(3,\) for 4 rows; allowed: \(4,\) or \(4, classes\)"
    ):
        custom(module).predict(np.zeros((2, 3)), np.zeros((4, 3)), Facts(3))


def test_a_potential_needs_log_densities(user_module):
    model = custom(user_module(returning("CustomModel(dim=3, gradient=lambda t, x, y: t)")))
    with pytest.raises(ConfigError, match="gradients only; log_likelihood"):
        model.potential(np.zeros((1, 1, 3)), pack(model))


@pytest.mark.parametrize(
    ("functions", "problem"),
    [
        ({"log_likelihood": max, "prior_gradient": max}, "prior_gradient is given without gradient"),
        ({"gradient": max, "log_prior": max}, "without prior_gradient"),
        ({"gradient": max, "prior_gradient": max, "log_likelihood": max}, "without log_prior"),
    ],
)
def test_half_a_prior_is_refused(functions, problem):
    with pytest.raises(ValueError, match=problem):
        CustomModel(dim=1, **functions)


@pytest.mark.parametrize("factory", ["make_model", "a:b.c", "../a:make", "a:", "a b:c"])
def test_what_does_not_name_a_function_of_a_module_is_refused(factory):
    with pytest.raises(ValidationError, match="allowed: module:function"):
        Custom(factory=factory)


def test_the_fingerprint_follows_sources_and_options(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from fedlangevin_mpi.models.custom import CustomModel\nfrom helper import slope\n"
    )
    with (tmp_path / "mine.py").open("a") as file:
        file.write("def make_model(scale):\n    return CustomModel(dim=1, gradient=slope)\n")
    (tmp_path / "helper.py").write_text("def slope(theta, x, y):\n    return theta\n")
    script = "from fedlangevin_mpi.models.custom import Custom\nimport sys\n"
    script += "print(Custom(factory='mine:make_model', options={'scale': int(sys.argv[1])}).fingerprint())"

    def fingerprint(scale: int) -> str:
        command = [sys.executable, "-c", script, str(scale)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60).stdout

    first = fingerprint(1)
    (tmp_path / "unrelated.py").write_text("")
    assert fingerprint(1) == first
    assert fingerprint(2) != first
    (tmp_path / "helper.py").write_text("def slope(theta, x, y):\n    return 2 * theta\n")
    assert fingerprint(1) != first


def test_an_edit_after_the_import_is_noticed(user_module):
    module = user_module(returning("CustomModel(dim=3, gradient=lambda t, x, y: t)"))
    custom(module).fingerprint()
    user_module(returning("CustomModel(dim=3, gradient=lambda t, x, y: 2 * t)"), module)
    with pytest.raises(ConfigError, match="edited after this process imported it; start a new process"):
        custom(module).fingerprint()


def test_a_module_imported_before_is_read_again(user_module, tmp_path):
    module = user_module(returning("CustomModel(dim=3, gradient=lambda t, x, y: t)"))
    sys.path.insert(0, str(tmp_path))
    __import__(module)
    user_module(returning("CustomModel(dim=3, gradient=lambda t, x, y: 25 * t)"), module)
    found = gradient(np.ones((1, 1, 3)), pack(custom(module)), Everything(1), 0)
    np.testing.assert_array_equal(found, np.full((1, 1, 3), 25.0))


def test_the_types_of_models_not_loaded_here_can_be_unpickled():
    kind = custom_gradients.CustomData_0123  # as Numba's cache does with the signatures that it lists
    assert issubclass(kind, custom_gradients.CustomData)
    assert pickle.loads(pickle.dumps(kind)) is kind
    with pytest.raises(AttributeError, match="no attribute 'typo'"):
        _ = custom_gradients.typo
