"""Memory that a gradient frees and the next one takes again."""

from __future__ import annotations

import ctypes
from contextlib import suppress

# Of <malloc.h>.
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3

_KEPT_BYTES = 256 << 20
_LARGEST_MMAP_THRESHOLD = 32 << 20  # more is refused on 64 bits


def keep_freed_memory() -> None:
    """Let glibc keep what this process frees, up to 256 MiB, instead of returning it to the system.

    Autograd takes and frees the same megabytes in every pass. Returned and taken again, every page of them is a page
    fault: 3 of 13 ms for 20 positions of 784-100-10. Other C libraries are left as they are.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 - raises where it is another C library
        libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
