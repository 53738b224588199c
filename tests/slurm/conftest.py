from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from launch.bench.emulated_hosts import EmulatedHosts
from tests.slurm.cluster import Cluster, missing_programs
from tests.unavailable import unavailable


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A SLURM cluster of two nodes, h1 and h2, with four cores each."""
    if missing := missing_programs():
        unavailable(f"not installed: {', '.join(missing)}")
    if os.geteuid() != 0:
        unavailable("SLURM's daemons need root")
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "hosts").mkdir()
    try:
        hosts = EmulatedHosts(folder / "hosts", 2)
    except OSError as error:
        unavailable(str(error))
    with hosts:
        yield Cluster(folder, hosts)
