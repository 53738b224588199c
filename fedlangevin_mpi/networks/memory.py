"""Memory that a gradient frees and the next one takes again, until the last one."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

# Of <malloc.h>.
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3

_KEPT_BYTES = 256 << 20
_LARGEST_MMAP_THRESHOLD = 32 << 20  # more is refused on 64 bits


def keep_freed_memory() -> None:
    """Let glibc keep 256 MiB at the top of its heap that this process freed, instead of returning them to the system.

    Autograd takes and frees the same megabytes in every pass. Returned and taken again, every page of them is a page
    fault: 3 of 13 ms for 20 positions of 784-100-10. Other C libraries, and glibc where the environment says what it
    is to do, are left as they are.
    """
    if any(name in os.environ for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")):
        return
    with suppress(OSError, AttributeError):
        libc = _glibc()
        libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)


def return_freed_memory() -> None:
    """Return to the system what is free in glibc's heap: what comes after the last gradient seldom fits its gaps."""
    with suppress(OSError, AttributeError):
        _glibc().malloc_trim(0)


def _glibc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    libc.gnu_get_libc_version  # noqa: B018 - raises AttributeError where it is another C library
    return libc
