# Count: a counter incremented where the event happens; the statistics hold the same object. Owner: Stats.
# Thread: the loop's.

from libc.stdint cimport int64_t

cdef class Count:
    cdef public int64_t value, times
