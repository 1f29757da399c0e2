# Histogram: how often a value fell into each of a few ranges, with the sum of all values. The bounds are
# upper and inclusive, as Prometheus has them; the last range has none. `add` takes a few nanoseconds and no
# memory.
#
# Thread: one thread adds; another one may read, and then sees some additions in `counts` but not yet in
# `total`.

from libc.stdint cimport int64_t

cdef enum:
    BOUNDS_MAX = 24


cdef class Histogram:
    cdef int64_t bounds[BOUNDS_MAX]
    cdef int64_t counts[BOUNDS_MAX + 1]
    cdef int bounds_count
    cdef readonly int64_t total           # sum of all values

    cdef void add(self, int64_t value, int64_t times) noexcept nogil
