"""Settings of glibc's malloc: how much freed memory it keeps. Does nothing with another C library."""

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""From <malloc.h>."""


def set_malloc_thresholds(freed_bytes: int, *, blocks_below: int) -> None:
    """Keep up to `freed_bytes` of freed memory at the end of the heap. Blocks of at least `blocks_below`
    bytes (at most 32 MiB) are mapped separately and returned to the system when freed. For the process; call
    once."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, freed_bytes)
        mallopt(M_MMAP_THRESHOLD, blocks_below)
