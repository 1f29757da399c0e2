"""Leftover: connections with frames left over, a slice of time in each iteration of the loop (see
leftover.pxd)."""

from collections import deque

from libc.stdint cimport int64_t

from firearrow._native.base.clock cimport nanoseconds

cdef enum:
    SLICE_NS = 1000000


cdef class FairQueue:
    def __init__(self, loop):
        self.loop = loop
        self.connections = deque()

    cdef Py_ssize_t count(self):
        return len(self.connections)

    cdef int add(self, connection) except -1:
        """Call `connection.go_on()` once, after those already waiting."""
        self.connections.append(connection)
        if not self.planned:
            self.planned = True
            self.loop.call_soon(self.run)
        return 0

    def run(self):
        cdef int64_t deadline = nanoseconds() + SLICE_NS
        cdef Py_ssize_t left = len(self.connections)
        self.planned = False
        try:
            while left > 0:
                left -= 1
                self.connections.popleft().go_on()
                if nanoseconds() > deadline:
                    break
        finally:
            if self.connections and not self.planned:
                self.planned = True
                self.loop.call_soon(self.run)
