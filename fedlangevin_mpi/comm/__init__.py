"""MPI: the world of ranks and the channels between them. The only room that imports mpi4py; importing it starts MPI."""

import os

# A process that no launcher started: Open MPI would make a file for its shared memory and leave it in /dev/shm.
_TRANSPORTS = "OMPI_MCA_btl"
_alone = not any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", _TRANSPORTS))
if _alone:
    os.environ[_TRANSPORTS] = "^sm"

import mpi4py.MPI  # noqa: E402, F401

if _alone:  # what this process starts is another matter
    del os.environ[_TRANSPORTS]
