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
    fa_trim_threshold(freed_bytes)
    fa_mmap_threshold(blocks_below)
