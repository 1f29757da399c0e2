"""glibc's malloc, told what it keeps of freed memory; of another C library nothing is asked. Once a process."""

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Of <malloc.h>."""


def set_malloc_thresholds(freed_bytes: int, *, blocks_below: int) -> None:
    """Of freed memory at the heap's end so much stays for the next one who asks; blocks of `blocks_below` bytes (32 MiB
    at most) and more are mapped apart, and go to the system when they are freed."""
    tell = getattr(ctypes.CDLL(None), "mallopt", None)
    if tell is not None:
        tell(M_TRIM_THRESHOLD, freed_bytes)
        tell(M_MMAP_THRESHOLD, blocks_below)
