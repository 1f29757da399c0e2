"""Settings of glibc's malloc: how much freed memory it keeps. Does nothing with another C library."""

cdef extern from *:
    """
    #include <stdlib.h>
    #ifdef __GLIBC__
    #include <malloc.h>
    #define fa_trim_threshold(bytes) mallopt(M_TRIM_THRESHOLD, (bytes))
    #define fa_mmap_threshold(bytes) mallopt(M_MMAP_THRESHOLD, (bytes))
    #else
    #define fa_trim_threshold(bytes) ((void) (bytes))
    #define fa_mmap_threshold(bytes) ((void) (bytes))
    #endif
    """
    void fa_trim_threshold(int bytes)
    void fa_mmap_threshold(int bytes)


def set_malloc_thresholds(int freed_bytes, *, int blocks_below):
    # type: (...) -> None
    """Keep up to `freed_bytes` of freed memory at the end of the heap. Blocks of at least `blocks_below`
    bytes (at most 32 MiB) are mapped separately and returned to the system when freed. For the process; call
    once."""
    fa_trim_threshold(freed_bytes)
    fa_mmap_threshold(blocks_below)
