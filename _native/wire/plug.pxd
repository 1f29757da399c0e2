# Where a connection's bytes go when no transport of the loop carries them. An engine's sockets are one.

from libc.stdint cimport uint8_t

cdef class Plug:
    cdef int push(self, const uint8_t *data, Py_ssize_t length) except -1
    cdef double now(self) except -1
