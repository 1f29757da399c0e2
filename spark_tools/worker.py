"""The Python worker that Spark forked for us: what its process needs once, before the first record is read."""

import ctypes
import gc
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Of glibc's <malloc.h>."""
KEPT_BYTES = 64 << 20
BUFFER_BYTES_MAX = 32 << 20
"""The most that glibc takes."""


@cache
def settle() -> None:
    """Spark collects garbage behind each task, 20 ms for what is imported: it is left out from now on. A batch's
    buffers are taken from those of the batch before, instead of new pages each time."""
    gc.freeze()
    keep = getattr(ctypes.CDLL(None), "mallopt", None)
    if keep is not None:
        keep(M_TRIM_THRESHOLD, KEPT_BYTES)
        keep(M_MMAP_THRESHOLD, BUFFER_BYTES_MAX)
