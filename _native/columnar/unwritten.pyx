"""Finds the first written byte after reserved zeros. Reads only; any thread."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy


cdef int64_t written(const uint8_t *data, int64_t at, int64_t stop) noexcept nogil:
    cdef uint64_t words[8]
    while stop - at >= 64:
        memcpy(words, data + at, 64)
        if words[0] | words[1] | words[2] | words[3] | words[4] | words[5] | words[6] | words[7]:
            break
        at += 64
    while at < stop and data[at] == 0:
        at += 1
    return at


def first_written(window not None, int64_t start, int64_t stop):
    # type: (bytes | bytearray | memoryview | mmap, int, int) -> int
    """Position in [start, stop) of the first byte that is not zero, else `stop`. ValueError: `start` is
    below 0."""
    cdef const uint8_t[::1] view = memoryview(window).cast("B")
    cdef int64_t found
    if start < 0:
        raise ValueError(f"a search cannot start at {start}")
    stop = min(stop, <int64_t> view.shape[0])
    if start >= stop:
        return stop
    with nogil:
        found = written(&view[0], start, stop)
    return found
