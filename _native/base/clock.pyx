"""Clock: wall and monotonic time in milliseconds (see clock.pxd)."""


cdef class Clock:
    """The system's clock; tests subclass it."""

    cpdef int64_t now_ms(self):
        # type: (...) -> int
        """Milliseconds since the Unix epoch."""
        return wall_ns() // 1000000

    cpdef int64_t monotonic_ms(self):
        # type: (...) -> int
        """Milliseconds; never goes back."""
        return nanoseconds() // 1000000
