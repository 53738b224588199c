"""The exported file in ArviZ 1.x, which needs a newer Python than 3.11: `FEDLANGEVIN_ARVIZ1` names one that has it."""

from __future__ import annotations

import json
import os
import subprocess

import numpy as np
import pytest

from fedlangevin_mpi.store.export import export
from fedlangevin_mpi.store.reader import open_run

PYTHON = os.environ.get("FEDLANGEVIN_ARVIZ1")
READ = """
import json, sys, arviz
tree = arviz.from_netcdf(sys.argv[1])
posterior, stats = tree["posterior"], tree["sample_stats"]
print(json.dumps({
    "version": arviz.__version__,
    "dims": {name: list(posterior[name].dims) for name in posterior.data_vars},
    "values": posterior["coefficients"].values.tolist(),
    "names": posterior["coefficients_dim_0"].values.tolist(),
    "iteration": stats["iteration"].values.tolist(),
    "r_hat": arviz.rhat(tree)["coefficients"].values.tolist(),
    "ess": arviz.ess(tree, method="bulk")["coefficients"].values.tolist(),
}))
"""


@pytest.mark.skipif(PYTHON is None, reason="FEDLANGEVIN_ARVIZ1 names no Python with ArviZ 1.x")
def test_arviz_1_reads_the_exported_average(make_run, tmp_path):
    x = np.random.default_rng(5).normal(size=(40, 2, 3, 3))
    about = {"parameters": {"coefficients": [2], "precision": []}, "coordinates": {"coefficients": ["age", "sex"]}}
    run = open_run(make_run(x, about={"coins": "none"}, **about))
    export(run, tmp_path / "run.nc")
    done = subprocess.run([PYTHON, "-c", READ, tmp_path / "run.nc"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert int(found["version"].split(".")[0]) >= 1
    assert found["dims"] == {"coefficients": ["chain", "draw", "coefficients_dim_0"], "precision": ["chain", "draw"]}
    assert found["names"] == ["age", "sex"]
    np.testing.assert_array_equal(found["values"], run.named()["coefficients"])
    np.testing.assert_array_equal(found["iteration"], np.tile(run.iterations, (3, 1)))
    parameters = run.summary()["parameters"]
    np.testing.assert_allclose(parameters["r_hat"][:2], found["r_hat"], rtol=1e-6)
    np.testing.assert_allclose(parameters["ess_bulk"][:2], found["ess"], rtol=1e-6)
