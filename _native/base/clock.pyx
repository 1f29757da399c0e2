"""Clock: wall and monotonic time in milliseconds (see clock.pxd)."""


cdef class Clock:
    cpdef int64_t now_ms(self):
        return read(CLOCK_REALTIME) // 1000000

    cpdef int64_t monotonic_ms(self):
        return read(CLOCK_MONOTONIC) // 1000000
