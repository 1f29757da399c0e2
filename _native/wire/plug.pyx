"""Plug: takes a connection's bytes in place (see plug.pxd)."""


cdef class Plug:
    cdef int push(self, const uint8_t *data, Py_ssize_t length) except -1:
        """Send them, or keep a copy of what does not go at once."""
        raise NotImplementedError
