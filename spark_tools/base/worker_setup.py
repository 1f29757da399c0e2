"""Worker setup: what a Python worker forked by Spark needs once, before it reads the first record."""

import gc
from functools import cache

from firearrow._native.base import malloc
from firearrow.spark_tools.base.closed_pipe import silence_closed_pipe

KEPT_BYTES = 64 << 20
BUFFER_BYTES_MAX = 32 << 20


@cache
def setup_worker() -> None:
    """Exclude imported objects from garbage collection, reuse freed buffers, and do not report a closed pipe.

    Spark collects garbage after each task, which takes 20 ms for the imported modules. With the malloc
    thresholds, a batch reuses the buffers of the previous one instead of faulting in new pages.
    """
    gc.freeze()
    malloc.set_malloc_thresholds(KEPT_BYTES, blocks_below=BUFFER_BYTES_MAX)
    silence_closed_pipe()
