"""ReadAhead: which bytes of the log can be sent to a slave without waiting for the disk. Loop thread.

A slave that lags far reads pages that are no longer in memory. The log is mapped: the thread that touches
such a page waits for the disk, and all clients with it. So the disk is asked for the next bytes ahead
(madvise), and only those are sent that are in memory (mincore); meanwhile the loop goes on.
"""

from libc.stdint cimport uint8_t, uintptr_t
from posix.mman cimport MADV_WILLNEED, madvise

cdef extern from "<sys/mman.h>" nogil:
    int mincore(void *at, size_t length, unsigned char *found)

cdef enum:
    PAGE = 4096                           # or a multiple of it: then some answers are repeated
    PAGES_MAX = 1024


def will_need(const uint8_t[::1] view not None):
    # type: (memoryview) -> None
    """Ask the disk for these bytes of a mapped file, without waiting for them."""
    cdef uintptr_t at = <uintptr_t> &view[0] if view.shape[0] else 0
    cdef uintptr_t start = at - at % PAGE
    if view.shape[0]:
        # only advice: errors do not matter
        madvise(<void *> start, at - start + view.shape[0], MADV_WILLNEED)


def bytes_in_memory(const uint8_t[::1] view not None):
    # type: (memoryview) -> int
    """How many bytes of a mapped file, from the first on, can be read without waiting for the disk. Looks
    at most at 4 MiB."""
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


WARM_BYTES = 1 << 20  # type: int  # what was written last is in memory
AHEAD_BYTES = 4 << 20
TRIES = 1000  # type: int  # then, with little memory or a slow disk, a few bytes all the same
UNSEEN_BYTES = 1 << 16  # type: int


class ReadAhead:
    """Of one slave."""

    def __init__(self, store):
        # type: (MessageStore) -> None
        self._store = store
        self._asked = 0
        self._tries = 0

    def ready(self, at, view):
        # type: (int, memoryview) -> int
        """How many bytes of the log from `at` on, which are `view`, to send now. 0: the disk reads; ask
        again in a millisecond. OSError."""
        if self._store.written - at <= WARM_BYTES:
            return len(view)
        if at + AHEAD_BYTES // 2 >= self._asked:
            begin = max(at, self._asked)
            ahead = self._store.log_bytes(begin, at + AHEAD_BYTES - begin)
            if ahead is not None:
                will_need(ahead)
                self._asked = begin + len(ahead)
        ready = bytes_in_memory(view)
        self._tries = 0 if ready else self._tries + 1
        if self._tries < TRIES:
            return ready
        self._tries = 0
        return min(len(view), UNSEEN_BYTES)
