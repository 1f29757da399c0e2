"""Plug: takes a connection's bytes in place (see plug.pxd)."""


cdef class RawTransport:
    cdef int push(self, const uint8_t *data, Py_ssize_t length) except -1:
        """Send the bytes, or keep a copy of what the kernel does not take at once."""
        raise NotImplementedError

    cdef double now(self) except -1:
        """The loop's time, or the time at which the current pass began."""
        raise NotImplementedError
