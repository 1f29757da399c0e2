# The system's clocks. Units: nanoseconds, or milliseconds where the name says so. Any thread.

from libc.stdint cimport int64_t
from posix.time cimport (
    CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_THREAD_CPUTIME_ID, clock_gettime, clockid_t, timespec,
)


cdef inline long long nanoseconds() noexcept nogil:
    """Monotonic, with the same origin in all threads."""
    return read(CLOCK_MONOTONIC)


cdef inline long long thread_cpu_ns() noexcept nogil:
    """CPU time of this thread."""
    return read(CLOCK_THREAD_CPUTIME_ID)


cdef inline long long read(clockid_t clock) noexcept nogil:
    cdef timespec now
    clock_gettime(clock, &now)
    return <long long> now.tv_sec * 1000000000 + now.tv_nsec


cdef class Clock:
    cpdef int64_t now_ms(self)
    cpdef int64_t monotonic_ms(self)
