"""The gradients of a flat network against autograd on the plain module, one position and one row set at a time."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fedlangevin_mpi.data.shard import Shard  # noqa: E402
from fedlangevin_mpi.generic import Everything, Rows, gradient  # noqa: E402
from fedlangevin_mpi.models.network import Network  # noqa: E402
from fedlangevin_mpi.networks import flat  # noqa: E402
from fedlangevin_mpi.networks.architectures import lenet5, mlp, resnet20  # noqa: E402

SIZES = (9, 3)
WEIGHTS = (0.4, 0.6)
SCALE = 0.7
CASES = {
    "mlp": ({"module": "mlp", "options": {"hidden": [6, 5]}}, lambda: mlp((12,), 3, [6, 5]), 12),
    "regression": ({"module": "mlp", "likelihood": "gaussian", "noise_scale": 0.5}, lambda: mlp((12,), 1), 12),
    "learned": (
        {"module": "mlp", "likelihood": "gaussian", "noise_scale": "learned"},
        lambda: mlp((12,), 1),
        12,
    ),
    "lenet5": ({"module": "lenet5"}, lambda: lenet5((1, 12, 12), 3), 144),
    "resnet20": ({"module": "resnet20"}, lambda: resnet20((3, 8, 8), 3), 192),
}


def problem(case, chains):
    values, build, p = CASES[case]
    model = Network(prior_scale=SCALE, **values)
    rng = np.random.default_rng(0)
    shards = []
    for client, n in enumerate(SIZES):
        y = rng.normal(size=n) if model.likelihood == "gaussian" else rng.permutation(np.arange(n) % 3)
        shards.append(Shard(client, {"x": rng.normal(size=(n, p)), "y": y}, "made up"))
    facts = model.facts(shards[0])
    data = model.pack(shards, WEIGHTS, facts, np.float64)
    own = model.own_draws(rng, len(SIZES) * chains, facts).astype(np.float64)
    own[:, -1] += 0.3  # where it is the logarithm of the noise, not 0
    return model, facts, data, own.reshape(len(SIZES), chains, -1), build().double()


def expected(model, module, position, x, y, factor, prior_weight):
    """Return the gradient by autograd of the textbook potential of a plain module that holds the position."""
    module = copy.deepcopy(module)
    log_noise = torch.tensor(position[-1:], requires_grad=True)
    torch.nn.utils.vector_to_parameters(torch.from_numpy(position.copy()), module.parameters())
    parameters = [*module.parameters(), *[log_noise] * (model.noise_scale == "learned")]
    outputs, y = module(torch.from_numpy(x).reshape(len(x), *shape_of(module, x))), torch.from_numpy(y)
    if model.likelihood == "gaussian":
        noise = log_noise.exp() if model.noise_scale == "learned" else model.noise_scale
        loss = -torch.distributions.Normal(outputs[:, 0], noise).log_prob(y).sum()
    else:
        loss = -torch.distributions.Categorical(logits=outputs).log_prob(y).sum()
    prior = sum(torch.distributions.Normal(0.0, SCALE).log_prob(p).sum() for p in parameters)
    (factor * loss - prior_weight * prior).backward()
    return np.concatenate([p.grad.reshape(-1).numpy() for p in parameters])


def shape_of(module, x):
    return {144: (1, 12, 12), 192: (3, 8, 8)}.get(x.shape[1], (x.shape[1],))


@pytest.mark.parametrize(
    ("chains", "few", "kept"),
    [(1, 0, 10**8), (1, 0, 1), (2, 0, 10**8), (2, 10**7, 10**8)],
    ids=["one by one", "in chunks of a row", "at once, inside", "at once, outside"],
)
@pytest.mark.parametrize("case", CASES)
def test_minibatch_gradients_are_autograds(case, chains, few, kept, monkeypatch):
    monkeypatch.setattr(flat, "_FEW_NUMBERS", few)
    monkeypatch.setattr(flat, "_CHUNK_BYTES", kept)
    model, _, data, theta, module = problem(case, chains)
    drawn = (4, 3)
    row = np.zeros((1, 2, chains, 4), np.int64)
    rng = np.random.default_rng(1)
    for c, j in np.ndindex(2, chains):
        row[0, c, j] = data.offsets[c]
        row[0, c, j, : drawn[c]] += rng.permutation(SIZES[c])[: drawn[c]]
    weight = np.array([[9 / 4] * 4, [1, 1, 1, 0]])
    assert data.network._at_once(2 * chains, 4) == (chains == 2)
    found = gradient(theta, data, Rows(row, np.array(drawn), weight), 0)
    for c, j in np.ndindex(2, chains):
        rows = row[0, c, j, : drawn[c]]
        want = expected(model, module, theta[c, j], data.x[rows], data.y[rows], SIZES[c] / drawn[c], WEIGHTS[c])
        np.testing.assert_allclose(found[c, j], want, rtol=1e-6, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize("case", CASES)
def test_full_gradients_in_chunks_are_autograds(case, monkeypatch):
    model, _, data, theta, module = problem(case, 1)
    monkeypatch.setattr(flat, "_LARGEST_CHUNK", 4)  # 4 + 4 + 1 and 3 rows
    found = gradient(theta, data, Everything(2), 0)
    for c in range(2):
        rows = slice(data.offsets[c], data.offsets[c + 1])
        want = expected(model, module, theta[c, 0], data.x[rows], data.y[rows], 1, WEIGHTS[c])
        np.testing.assert_allclose(found[c, 0], want, rtol=1e-6, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize("few", [0, 10**5], ids=["inside", "outside"])
def test_full_gradients_of_several_chains_at_once_are_those_of_each(few, monkeypatch):
    monkeypatch.setattr(flat, "_FEW_NUMBERS", few)
    monkeypatch.setattr(flat, "_LARGEST_CHUNK", 4)
    _, _, data, theta, _ = problem("mlp", 5)
    together = gradient(theta, data, Everything(2), 0)
    alone = [gradient(np.ascontiguousarray(theta[:, j : j + 1]), data, Everything(2), 0) for j in range(5)]
    np.testing.assert_allclose(together, np.concatenate(alone, axis=1), rtol=1e-10, atol=1e-12)


def test_chunks_keep_what_autograd_holds_bounded(monkeypatch):
    _, _, data, _, _ = problem("resnet20", 1)
    row = data.network._row_bytes
    assert 19 * 16 * 64 * 8 < row < 100 * 16 * 64 * 8  # float64; 19 convolutions of at most 16 x 8 x 8 outputs
    monkeypatch.setattr(flat, "_CHUNK_BYTES", 3 * row)
    assert [len(y) for _, y, _ in data.network._chunks(data, 0, 1)] == [3, 3, 3]
    assert [data.network._at_once(4, rows) for rows in (0, 1)] == [True, False]


@pytest.mark.parametrize(
    ("module", "parameters"),
    [
        (lambda: mlp((8,), 1, [50]), 501),
        (lambda: lenet5((1, 28, 28), 10), 61_706),
        (lambda: lenet5((3, 32, 32), 10), 62_006),
        (lambda: resnet20((3, 32, 32), 10), 269_722),
    ],
)
def test_architectures_are_of_their_known_size(module, parameters):
    assert sum(p.numel() for p in module().parameters()) == parameters


def test_predictions_are_the_modules():
    model, facts, data, theta, module = problem("lenet5", 1)
    torch.nn.utils.vector_to_parameters(torch.from_numpy(theta[0, 0].copy()), module.parameters())
    logits = module(torch.from_numpy(data.x).reshape(-1, 1, 12, 12))
    found = model.predict(theta[:, 0], data.x, facts)
    assert found.shape == (2, 12, 3)
    np.testing.assert_allclose(found[0], torch.softmax(logits, 1).detach(), rtol=1e-10)
