# The system's clocks. Units: nanoseconds, or milliseconds where the name says so. Any thread.

from libc.stdint cimport int64_t


cdef extern from "base/platform.h" nogil:
    int64_t wall_ns "fa_wall_ns"() noexcept
    # with the same origin in all threads
    int64_t nanoseconds "fa_monotonic_ns"() noexcept
    # CPU time of this thread
    int64_t thread_cpu_ns "fa_thread_cpu_ns"() noexcept


cdef class Clock:
    cpdef int64_t now_ms(self)
    cpdef int64_t monotonic_ms(self)
