# Writer: a growing byte buffer for a frame; lengths are patched afterwards. Its creator owns it. Every `put`
# reserves the capacity it needs; MemoryError is the only failure. One thread at a time.

cimport cython
from libc.stdint cimport int16_t, int32_t, uint8_t


@cython.final
cdef class Writer:
    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    cdef int reserve(self, Py_ssize_t more) except -1
    cdef int put(self, const void *source, Py_ssize_t length) except -1
    cdef int put_byte(self, uint8_t value) except -1
    cdef int put_i16(self, int16_t value) except -1
    cdef int put_i32(self, int32_t value) except -1
    cdef int put_decimal(self, long long value) except -1
    cdef int put_json_string(self, const uint8_t *text, Py_ssize_t length) except -1
    cdef void patch_i16(self, Py_ssize_t position, int16_t value) noexcept
    cdef void patch_i32(self, Py_ssize_t position, int32_t value) noexcept
    cdef bytes take(self)
