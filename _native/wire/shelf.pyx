"""Shelf: a pool of buffers for large frames (see shelf.pxd)."""

KEPT_BYTES = 4 << 20
cdef Py_ssize_t BYTES_MAX = KEPT_BYTES


cdef class BufferPool:
    def __init__(self):
        self.buffers = []

    cpdef bytearray acquire(self, Py_ssize_t length):
        cdef bytearray found = None, buffer
        for buffer in self.buffers:
            if len(buffer) >= length and (found is None or len(buffer) < len(found)):
                found = buffer
        if found is not None:
            self.drop(found)
        return found

    cpdef int release(self, bytearray buffer) except -1:
        """The smallest buffers go if there is no capacity."""
        if len(buffer) > BYTES_MAX:
            return 0
        self.buffers.append(buffer)
        self.bytes += len(buffer)
        while self.bytes > BYTES_MAX:
            self.drop(min(self.buffers, key=len))
        return 0

    cdef int drop(self, bytearray buffer) except -1:
        self.buffers = [each for each in self.buffers if each is not buffer]
        self.bytes -= len(buffer)
        return 0
