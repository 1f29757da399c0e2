"""Pages of the mapped log: which are in memory, and asking the disk for more. Linux: mincore, madvise.

Whoever touches a mapped page that is not in memory waits for the disk; on the loop's thread everybody waits.
"""

from libc.stdint cimport uint8_t, uintptr_t
from posix.mman cimport MADV_WILLNEED, madvise

cdef extern from "<sys/mman.h>" nogil:
    int mincore(void *at, size_t length, unsigned char *found)

cdef enum:
    PAGE = 4096                           # or a multiple of it: then some answers are repeated
    PAGES_MAX = 1024


def will_need(const uint8_t[::1] view not None):
    cdef uintptr_t at = <uintptr_t> &view[0] if view.shape[0] else 0
    cdef uintptr_t start = at - at % PAGE
    if view.shape[0]:
        # only advice: errors do not matter
        madvise(<void *> start, at - start + view.shape[0], MADV_WILLNEED)


def bytes_in_memory(const uint8_t[::1] view not None):
    cdef unsigned char found[PAGES_MAX]
    cdef Py_ssize_t length = view.shape[0]
    cdef uintptr_t at = <uintptr_t> &view[0] if length else 0
    cdef uintptr_t start = at - at % PAGE
    cdef size_t pages = min(<size_t> PAGES_MAX, (at - start + length + PAGE - 1) // PAGE)
    cdef size_t known = 0
    if length == 0 or mincore(<void *> start, pages * PAGE, found) != 0:
        return length                     # not known: as if they were
    while known < pages and found[known] & 1:
        known += 1
    return min(length, max(<Py_ssize_t> (start + known * PAGE - at), <Py_ssize_t> 0))
