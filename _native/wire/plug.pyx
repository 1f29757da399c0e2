"""Plug: takes a connection's bytes in place (see plug.pxd)."""


cdef class Plug:
    cdef int push(self, const uint8_t *data, Py_ssize_t length) except -1:
        """Send them, or keep a copy of what does not go at once."""
        raise NotImplementedError

    cdef double now(self) except -1:
        """The loop's time, or when the pass began in which the bytes came."""
        raise NotImplementedError
