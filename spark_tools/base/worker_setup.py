"""The Python worker that Spark forked for us: what its process needs once, before the first record is read."""

import gc
from functools import cache

from firearrow._native.base import malloc

KEPT_BYTES = 64 << 20
BUFFER_BYTES_MAX = 32 << 20


@cache
def setup_worker() -> None:
    """Spark collects garbage behind each task, 20 ms for what is imported: it is left out from now on. A batch's
    buffers are taken from those of the batch before, instead of new pages each time."""
    gc.freeze()
    malloc.set_malloc_thresholds(KEPT_BYTES, blocks_below=BUFFER_BYTES_MAX)
