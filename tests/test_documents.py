"""What the documents show works as they show it."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fedlangevin_mpi.config import parse_config
from fedlangevin_mpi.generic import Everything
from fedlangevin_mpi.models.gaussian import GaussianData

ROOT = Path(__file__).parents[1]


def blocks(document, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def test_the_readmes_config_is_valid():
    first, *_ = blocks("README.md", "yaml")
    config = parse_config(first)
    assert (config.clients, config.draws) == (10, 4500)


def test_the_readmes_data_section_is_valid():
    (data,) = (block for block in blocks("README.md", "yaml") if "name: files" in block)
    rest = "iterations: 1\nalgorithm: {name: fald, step_size: 1e-3}\nmodel: {name: logistic_regression}\n"
    assert parse_config(rest + data).data.intercept


def test_the_readmes_decentralised_section_is_valid():
    (gossip,) = (block for block in blocks("README.md", "yaml") if "topology:" in block)
    rest = "iterations: 1\nclients: 6\nmodel: {name: logistic_regression}\ndata: {name: breast_cancer}\n"
    assert (ROOT / parse_config(rest + gossip).topologies[0]).exists()


def test_the_readmes_network_section_is_valid():
    (network,) = (block for block in blocks("README.md", "yaml") if "name: network" in block)
    rest = "iterations: 1\nalgorithm: {name: fald, step_size: 1e-3}\ndata: {name: digits}\n"
    assert parse_config(rest + network).initial.name == "module"


def test_the_readmes_model_runs(tmp_path, monkeypatch):
    import fedlangevin_mpi
    from fedlangevin_mpi.config import make_config

    monkeypatch.chdir(tmp_path)
    model, *_ = blocks("README.md", "python")
    (tmp_path / "my_module.py").write_text(model)
    values = {
        "clients": 2,
        "iterations": 50,
        "algorithm": {"name": "fald", "step_size": 1e-3, "batch_size": 5},
        "model": {"name": "custom", "factory": "my_module:make_model"},
        "data": {"name": "synthetic_linear", "features": 3, "rows": 20},
        "output": {"directory": "run"},
    }
    run = fedlangevin_mpi.run(make_config(values))
    assert run.draws == 50
    assert np.isfinite(run.average()[:]).all()


def test_the_contributors_algorithm_descends():
    (text,) = (block for block in blocks("CONTRIBUTING.md", "python") if "class Descent" in block)
    names: dict[str, object] = {"__name__": "descent"}
    exec(text, names)  # the document's own code
    algorithm = names["Descent"](step_size=0.5)
    draws = algorithm.draws(SimpleNamespace(iterations=np.arange(20), dtype=np.dtype(float)))
    data = GaussianData(np.array([[1.0, 2.0]]), np.eye(2)[None])
    theta, trace = np.zeros((1, 1, 2)), np.zeros((20, 1, 1, 2))
    algorithm.kernel(theta, None, draws, data, Everything(1), None, trace, np.arange(20), 0, 20)
    np.testing.assert_allclose(trace[:, 0, 0], [[1 - 0.5**k, 2 - 2 * 0.5**k] for k in range(1, 21)])


@pytest.mark.parametrize("path", sorted(ROOT.glob("launch/**/*.yaml"), key=str), ids=lambda p: p.name)
def test_every_shipped_config_is_valid(path):
    assert parse_config(path.read_text()).iterations > 0


def test_files_named_in_the_documents_are_there():
    for document in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / document).read_text()
        for name in re.findall(r"\b(?:launch|tests|fedlangevin_mpi|topologies)/[\w./-]*\w", text):
            assert (ROOT / name).exists(), f"{document} names {name}"
