# JSON escapes written out. `to` has room for `length` bytes; the text is never longer than its escaped form.

from libc.stdint cimport uint8_t

cdef Py_ssize_t unescape(const uint8_t *at, Py_ssize_t length, uint8_t *to) noexcept nogil
