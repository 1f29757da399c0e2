# Plug: where a connection's bytes go if it has no transport of the loop; the sockets of an engine are Plugs.
# Thread: the loop's.

from libc.stdint cimport uint8_t

cdef class RawTransport:
    cdef int push(self, const uint8_t *data, Py_ssize_t length) except -1
    cdef double now(self) except -1
