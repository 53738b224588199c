"""One config gives one result: on any number of ranks, packed or not, in either engine, and twice the same."""

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.config import make_config
from fedlangevin_mpi.runtime.run import run
from fedlangevin_mpi.store.reader import open_run

COMM = MPI.COMM_WORLD
CLIENTS = 5

GAUSSIAN = {"model": {"name": "gaussian"}, "data": {"name": "synthetic_gaussian", "dim": 3}}
LOGISTIC = {
    "model": {"name": "logistic_regression"},
    "data": {"name": "breast_cancer", "standardize": "pooled", "intercept": True, "partition": {"name": "dirichlet"}},
}
CASES = {
    "fald-gaussian": GAUSSIAN | {"algorithm": {"name": "fald", "step_size": 0.1, "noise_correlation": 0.3}},
    "fald-logistic": LOGISTIC | {"algorithm": {"name": "fald", "step_size": 1e-3, "batch_size": 8}},
    "vr_fald-gaussian": GAUSSIAN | {"algorithm": {"name": "vr_fald", "step_size": 0.1}},
    "vr_fald-logistic": LOGISTIC | {"algorithm": {"name": "vr_fald", "step_size": 1e-3, "batch_size": 8}},
    "fed_avg-logistic": LOGISTIC | {"algorithm": {"name": "fed_avg", "step_size": 1e-3}},
    "participants": GAUSSIAN | {"algorithm": {"name": "fald", "step_size": 0.1, "participants": 2}},
    "per_chain": GAUSSIAN | {"coins": "per_chain", "algorithm": {"name": "vr_fald", "step_size": 0.1}},
}


def draws(folder, case, comm, engine="compiled"):
    """Run a case on `comm` and return all clients' draws `(draw, client, chain, dim)` with the communication."""
    algorithm = {"communication_probability": 0.2} | CASES[case]["algorithm"]
    values = {"seed": 2, "clients": CLIENTS, "chains": 2, "iterations": 1000, "engine": engine}
    config = make_config(values | CASES[case] | {"algorithm": algorithm, "output": {"directory": str(folder)}})
    opened = open_run(run(config, comm=comm, force=True))
    return np.stack([opened.position(c)[:] for c in range(CLIENTS)], axis=1), opened.statistics.communication


@pytest.mark.parametrize("case", CASES)
def test_draws_do_not_depend_on_ranks_or_engine(case, mpi_tmp_path):
    together, communication = draws(mpi_tmp_path / "together", case, COMM)
    again, _ = draws(mpi_tmp_path / "again", case, COMM)
    np.testing.assert_array_equal(again, together)
    slow, _ = draws(mpi_tmp_path / "slow", case, COMM, engine="interpreted")
    alone, communication_alone = draws(mpi_tmp_path / f"alone-{COMM.rank}", case, MPI.COMM_SELF)
    tolerance = 1e-9 * np.abs(alone).max()
    np.testing.assert_allclose(together, alone, rtol=0, atol=tolerance)
    np.testing.assert_allclose(slow, alone, rtol=0, atol=tolerance)
    logical = ("rounds", "messages", "bytes")
    assert [getattr(communication, n) for n in logical] == [getattr(communication_alone, n) for n in logical]
