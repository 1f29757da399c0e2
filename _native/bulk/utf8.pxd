# Whether bytes are UTF-8 text. Borrows the pointer. Any thread.
#
#   0xxxxxxx | 110xxxxx 10xxxxxx | 1110xxxx 10xxxxxx 10xxxxxx | 11110xxx 10xxxxxx 10xxxxxx 10xxxxxx
#   The shortest form only, no surrogates (ED A0..BF), nothing above U+10FFFF (F4 90).

from libc.stdint cimport uint8_t

cdef bint is_utf8(const uint8_t *at, Py_ssize_t length) noexcept nogil
