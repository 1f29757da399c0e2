"""Budget: bytes that all connections hold together, and a call when they are too many (see budget.pxd)."""


cdef class Budget:
    def __init__(self, loop, bytes_max, exceeded):
        self.loop = loop
        self.bytes_max = bytes_max
        self.exceeded = exceeded

    cdef int change(self, Py_ssize_t by) except -1:
        self.held += by
        if self.held > self.bytes_max and not self.planned:
            self.planned = True
            self.loop.call_soon(self.tell)
        return 0

    def tell(self):
        self.planned = False
        if self.held > self.bytes_max:
            self.exceeded()
