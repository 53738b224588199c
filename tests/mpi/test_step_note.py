"""The note on a step size is of all clients, whatever rank hosts them."""

import numpy as np
from mpi4py import MPI

from fedlangevin_mpi.comm.world import World
from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.evaluate.exact_report import quadratic_potentials
from fedlangevin_mpi.runtime.prepare import prepare
from fedlangevin_mpi.runtime.step_note import step_notes, step_size_notes


def test_all_ranks_know_the_extremes_of_all_clients(mpi_tmp_path):
    path = mpi_tmp_path / "ring.yaml"
    if MPI.COMM_WORLD.rank == 0:
        path.write_text("kind: ring")
    values = {
        "clients": 5,
        "iterations": 1,
        "algorithm": {"name": "de_sghmc", "step_size": 0.5, "friction": 1.0},
        "model": {"name": "linear_regression"},
        "data": {"name": "synthetic_linear", "rows": 6, "features": 3},
        "topology": str(path),
    }
    config = make_config(values)
    with World() as world:
        prepared = prepare(world, config)
        found = step_size_notes(world, prepared)
    spectra = np.linalg.eigvalsh(quadratic_potentials(config)[1])
    W = prepared.mixing.matrices[0].toarray()
    assert found == step_notes("de_sghmc", 0.5, W, spectra[:, 0].min(), spectra[:, -1].max(), friction=1.0)
    assert len(found) == 2
