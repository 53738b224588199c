"""What a run says of a step size, given the curvature of its clients' potentials."""

import numpy as np
import pytest

from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.runtime.step_note import step_notes
from tests.gaussians import write_shards

RING = np.array([[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]) / 3  # eigenvalues 1, 1/3, 1/3, -1/3


def test_the_bounds_of_de_sgld():
    # (1 + lambda_N) / L = 2/3 / 4 and 1 / (L + mu) = 1/5
    assert step_notes("de_sgld", 0.16, RING, 1.0, 4.0) == []
    (note,) = step_notes("de_sgld", 0.17, RING, 1.0, 4.0)
    assert "algorithm.step_size: 0.17 is outside the convergence theorem of de_sgld, which holds below 0.1667" in note
    assert "from 0.1667 on it may be unstable" in note
    assert "(curvature of a client's potential 1 to 4, smallest eigenvalue of W -0.3333)" in note
    # of a complete graph 1 / L = 1/4, so that the other part is the smaller one
    (note,) = step_notes("de_sgld", 0.21, np.full((4, 4), 0.25), 1.0, 4.0)
    assert "holds below 0.2 (" in note


def test_the_bounds_of_de_sghmc():
    # eta^2 <= 2/3 / (2 * 5): 0.2582; beta = 1 - friction eta
    assert step_notes("de_sghmc", 0.25, RING, 1.0, 4.0, friction=3.8) == []
    notes = step_notes("de_sghmc", 0.3, RING, 1.0, 4.0, friction=2.0)
    assert "holds below 0.2582" in notes[0]
    assert notes[1].startswith("algorithm.friction: 1 - friction step_size is 0.4; the convergence theorem of de_sghmc")


def test_flat_potentials_have_no_bound():
    assert step_notes("de_sgld", 1e9, RING, 0.0, 0.0) == []


@pytest.mark.parametrize("step", [0.1, 0.19])
def test_a_run_says_so_and_goes_on(tmp_path, caplog, step):
    (tmp_path / "ring.yaml").write_text("kind: ring")
    precisions = np.array([np.diag([1.0, L]) for L in (2.0, 3.0, 4.0, 1.0)])
    values = {
        "clients": 4,
        "iterations": 10,
        "engine": "interpreted",
        "algorithm": {"name": "de_sgld", "step_size": step},
        "model": {"name": "gaussian"},
        "data": {"name": "files", "path": write_shards(tmp_path / "shards", np.zeros((4, 2)), precisions)},
        "topology": str(tmp_path / "ring.yaml"),
        "output": {"directory": str(tmp_path / "run")},
    }
    run(make_config(values))
    notes = [record.getMessage() for record in caplog.records if "theorem" in record.getMessage()]
    assert notes == step_notes("de_sgld", step, RING, 1.0, 4.0)
    assert len(notes) == (step > 1 / 6)
