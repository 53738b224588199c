"""What the launcher promised is what there is. How sessions fail is tested from outside: tests/test_mpi_sessions.py."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from fedlangevin_mpi.comm.world import promised_ranks


def test_communicator_has_the_promised_ranks() -> None:
    assert MPI.COMM_WORLD.size == promised_ranks(os.environ)[0]


def test_every_rank_is_a_process_of_its_own(mpi_tmp_path: Path) -> None:
    pids = MPI.COMM_WORLD.allgather(os.getpid())
    assert len(set(pids)) == MPI.COMM_WORLD.size
    assert len(set(MPI.COMM_WORLD.allgather(mpi_tmp_path))) == 1


@pytest.mark.mpi(min_size=2)
def test_ranks_reach_each_other() -> None:
    comm = MPI.COMM_WORLD
    total = np.empty(3)
    comm.Allreduce(np.full(3, 2.0**comm.rank), total)
    assert total.tolist() == [2.0**comm.size - 1] * 3
