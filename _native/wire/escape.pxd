# JSON escapes decoded to UTF-8. `to` needs a capacity of `length` bytes: decoded text is never longer than
# its escaped form. Borrows both, keeps nothing. Any thread.

from libc.stdint cimport uint8_t

cdef Py_ssize_t unescape(const uint8_t *at, Py_ssize_t length, uint8_t *to) noexcept nogil
