"""Shelf: a pool of buffers for large frames (see shelf.pxd)."""

KEPT_BYTES = 4 << 20
cdef Py_ssize_t BYTES_MAX = KEPT_BYTES


cdef class Shelf:
    def __init__(self):
        self.rooms = []

    cpdef bytearray take(self, Py_ssize_t length):
        cdef bytearray found = None, room
        for room in self.rooms:
            if len(room) >= length and (found is None or len(room) < len(found)):
                found = room
        if found is not None:
            self.drop(found)
        return found

    cpdef int give(self, bytearray room) except -1:
        """The smallest buffers go if there is no capacity."""
        if len(room) > BYTES_MAX:
            return 0
        self.rooms.append(room)
        self.bytes += len(room)
        while self.bytes > BYTES_MAX:
            self.drop(min(self.rooms, key=len))
        return 0

    cdef int drop(self, bytearray room) except -1:
        self.rooms = [each for each in self.rooms if each is not room]
        self.bytes -= len(room)
        return 0
