from __future__ import annotations

import json

import arviz
import numpy as np
import pytest

from fedlangevin_mpi.errors import ConfigError, StoreError
from fedlangevin_mpi.store import export
from fedlangevin_mpi.store.reader import open_run

SHAPES = {
    "parameters": {"coefficients": [3], "weights": [2, 2], "precision": []},
    "coordinates": {"coefficients": ["age", "sex", "größe"]},
    "facts": {"features": 3, "classes": 2},
    "standardization": {"mean": [1.0], "scale": [2.0]},
}


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(13, 3, 2, 8))


@pytest.fixture
def run(make_run, x):
    return open_run(make_run(x, placement=[[0], [1, 2]], **SHAPES))


def check(data, expected: np.ndarray) -> None:
    """Compare what ArviZ has with positions `(draw, chain, dim)`."""
    posterior = data.posterior
    chain_first = expected.swapaxes(0, 1)
    assert posterior["weights"].dims == ("chain", "draw", "weights_dim_0", "weights_dim_1")
    np.testing.assert_array_equal(posterior["coefficients"], chain_first[..., :3])
    np.testing.assert_array_equal(posterior["weights"], chain_first[..., 3:7].reshape(2, 13, 2, 2))
    np.testing.assert_array_equal(posterior["precision"], chain_first[..., 7])
    np.testing.assert_array_equal(posterior["coefficients"].sel(coefficients_dim_0="größe"), chain_first[..., 2])
    np.testing.assert_array_equal(posterior["draw"], np.arange(13))
    np.testing.assert_array_equal(data.sample_stats["iteration"], np.tile(np.arange(13), (2, 1)))
    assert posterior.attrs["inference_library"] == "fedlangevin_mpi"
    assert json.loads(posterior.attrs["config"])["data"]["name"] == "files"
    assert json.loads(data.observed_data.attrs["model"]) == {"name": "gaussian"}
    assert data.observed_data["classes"] == 2
    assert json.loads(data.observed_data.attrs["standardization"]) == {"mean": [1.0], "scale": [2.0]}


def test_arviz_reads_the_exported_average(run, x, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "_BLOCK_BYTES", 500)  # a few draws at a time
    path = tmp_path / "run.nc"
    export.export(run, path)
    data = arviz.from_netcdf(path)
    check(data, run.average()[:])
    assert data.posterior.attrs["position_of"] == "average over clients"


def test_arviz_reads_one_client(run, x, tmp_path):
    export.export(run, tmp_path / "run.nc", client=1)
    data = arviz.from_netcdf(tmp_path / "run.nc")
    check(data, x[:, 1])
    assert data.posterior.attrs["position_of"] == "client 1"


def test_arviz_in_memory_has_the_same(run, x):
    check(run.to_arviz(), run.average()[:])
    check(run.to_arviz(client=2), x[:, 2])


def test_arviz_summarises_the_labels(run):
    table = arviz.summary(run.to_arviz())
    assert [name.replace(", ", ",") for name in table.index] == run.resolved.labels()


def test_existing_file_is_replaced(run, tmp_path):
    path = tmp_path / "run.nc"
    path.write_text("old")
    export.export(run, path)
    assert arviz.from_netcdf(path).posterior.sizes["draw"] == 13


def test_failure_leaves_what_was_there(run, tmp_path):
    path = tmp_path / "out" / "run.nc"
    path.parent.mkdir()
    path.write_text("old")
    run.files[1].unlink()
    with pytest.raises(StoreError, match=r"rank-00001\.h5: cannot be read"):
        export.export(run, path)
    assert [(file.name, file.read_text()) for file in path.parent.iterdir()] == [("run.nc", "old")]


def test_missing_folder_is_named(run, tmp_path):
    with pytest.raises(StoreError, match=r"gone/run\.nc: cannot be written"):
        export.export(run, tmp_path / "gone" / "run.nc")


def test_unknown_client_is_refused(run, tmp_path):
    with pytest.raises(ConfigError, match="client 3"):
        export.export(run, tmp_path / "run.nc", client=3)


def test_run_without_draws_is_not_exported(make_run, x, tmp_path):
    with pytest.raises(StoreError, match="has no draws yet"):
        export.export(open_run(make_run(x[:0])), tmp_path / "run.nc")
