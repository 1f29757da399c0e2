"""Clock: wall and monotonic time in milliseconds (see clock.pxd)."""


cdef class Clock:
    cpdef int64_t now_ms(self):
        return wall_ns() // 1000000

    cpdef int64_t monotonic_ms(self):
        return nanoseconds() // 1000000
