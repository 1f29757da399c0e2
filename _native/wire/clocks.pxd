# The system's clocks. Any thread.

from libc.stdint cimport int64_t
from posix.time cimport (
    CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_THREAD_CPUTIME_ID, clock_gettime, clockid_t, timespec,
)


cdef inline long long nanoseconds() noexcept nogil:
    """Since some moment, the same for all; never backwards."""
    return read(CLOCK_MONOTONIC)


cdef inline long long worked() noexcept nogil:
    """That this thread was on a core: what others do meanwhile is not its work."""
    return read(CLOCK_THREAD_CPUTIME_ID)


cdef inline long long read(clockid_t clock) noexcept nogil:
    cdef timespec now
    clock_gettime(clock, &now)
    return <long long> now.tv_sec * 1000000000 + now.tv_nsec


cdef class Clock:
    cpdef int64_t now_ms(self)
    cpdef int64_t monotonic_ms(self)
