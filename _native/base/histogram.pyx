"""Histogram: counts of values by range, and their sum (see histogram.pxd)."""


cdef class Histogram:
    """Counts of whole values by range. ValueError: no bounds, too many, or not rising."""

    def __cinit__(self, tuple bounds not None):
        # type: (tuple[int, ...]) -> None
        """`bounds`: the inclusive upper bound of each range but the last."""
        cdef int n
        if not 0 < len(bounds) <= BOUNDS_MAX:
            raise ValueError(f"a histogram has 1 to {BOUNDS_MAX} bounds, not {len(bounds)}")
        if list(bounds) != sorted(set(bounds)):
            raise ValueError("the bounds of a histogram must rise")
        self.bounds_count = <int> len(bounds)
        for n in range(self.bounds_count):
            self.bounds[n] = bounds[n]

    cdef void add(self, int64_t value, int64_t times) noexcept nogil:
        cdef int n = 0
        while n < self.bounds_count and value > self.bounds[n]:
            n += 1
        self.counts[n] += times
        self.total += value * times

    def record(self, int64_t value, int64_t times=1):
        # type: (...) -> None
        self.add(value, times)

    def read(self):
        # type: (...) -> tuple[list[int], int]
        """The count of each range, the last one above all bounds, and the sum of all values."""
        cdef int n
        return [self.counts[n] for n in range(self.bounds_count + 1)], self.total
