"""Budget: counts the bytes that all connections hold, and reports an excess (see budget.pxd)."""


cdef extern from "<malloc.h>" nogil:
    int malloc_trim(size_t kept)

cdef enum:
    RELEASED_BYTES = 67108864


cdef class MemoryBudget:
    def __init__(self, loop, bytes_max, exceeded):
        self.loop = loop
        self.bytes_max = bytes_max
        self.exceeded = exceeded

    cdef int change(self, Py_ssize_t by) except -1:
        self.held += by
        self.most = max(self.most, self.held)
        if self.held > self.bytes_max and not self.planned:
            self.planned = True
            self.loop.call_soon(self.notify)
        return 0

    def return_memory(self):
        """Return freed memory to the system if it is much; the allocator would keep it."""
        if self.most - self.held >= RELEASED_BYTES:
            self.most = self.held
            with nogil:
                malloc_trim(0)

    def notify(self):
        self.planned = False
        if self.held > self.bytes_max:
            self.exceeded()
