# Rooms of large frames, which the connections of a thread leave to each other when a frame is done.
#
# Why: a room from 1 MiB on would be mapped anew for each frame, and memory that was just mapped costs more,
# page by page, than all that is done with what comes to lie in it.
#
# Ownership: a room is its taker's until he gives it back; what it held stays in it. At most KEPT_BYTES lie
# here, and count in nobody's budget. Thread: the loop's.

cdef class Shelf:
    cdef list rooms                       # bytearrays
    cdef readonly Py_ssize_t bytes

    cpdef bytearray take(self, Py_ssize_t length)
    cpdef int give(self, bytearray room) except -1
    cdef int drop(self, bytearray room) except -1
