"""MPI calls that compiled code makes itself: the symbols of the very library that mpi4py loaded.

Imported only by the compiled engine, since it imports Numba. An `ExternalFunction` is called by name, and the name is
resolved through `llvmlite.binding.add_symbol`, so that compiled kernels can be cached on disk.
"""

from __future__ import annotations

import ctypes

import llvmlite.binding
from mpi4py import MPI
from numba import types

_SYMBOLS = ("MPI_Start", "MPI_Wait", "MPI_Allreduce")


def _add_symbols() -> None:
    library = ctypes.CDLL(MPI.__file__)
    for name in _SYMBOLS:
        llvmlite.binding.add_symbol(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)


_add_symbols()

# Handles travel as pointer-sized integers: a pointer in Open MPI, an int in MPICH, whose callee reads the low half.
MPI_Start = types.ExternalFunction("MPI_Start", types.int32(types.intp))
MPI_Wait = types.ExternalFunction("MPI_Wait", types.int32(types.intp, types.intp))
MPI_Allreduce = types.ExternalFunction(
    "MPI_Allreduce", types.int32(types.intp, types.intp, types.int32, types.intp, types.intp, types.intp)
)
