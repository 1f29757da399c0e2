"""Writer: a growing byte buffer for frames: big-endian numbers, JSON strings, patched lengths."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.string cimport memcpy

from firearrow._native.base.endian cimport put_i16 as store_i16, put_i32 as store_i32
from firearrow._native.wire.text_writer cimport DECIMAL_BYTES, decimal, quoted


@cython.final
cdef class Writer:
    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t needed = self.size + more
        cdef uint8_t *larger
        if needed <= self.capacity:
            return 0
        needed = max(needed, 2 * self.capacity, 512)
        larger = <uint8_t *> PyMem_Realloc(self.data, needed)
        if larger is NULL:
            raise MemoryError()
        self.data = larger
        self.capacity = needed
        return 0

    cdef int put(self, const void *source, Py_ssize_t length) except -1:
        self.reserve(length)
        memcpy(self.data + self.size, source, length)
        self.size += length
        return 0

    cdef int put_byte(self, uint8_t value) except -1:
        self.reserve(1)
        self.data[self.size] = value
        self.size += 1
        return 0

    cdef int put_i16(self, int16_t value) except -1:
        self.reserve(2)
        store_i16(self.data + self.size, value)
        self.size += 2
        return 0

    cdef int put_i32(self, int32_t value) except -1:
        self.reserve(4)
        store_i32(self.data + self.size, value)
        self.size += 4
        return 0

    cdef int put_decimal(self, long long value) except -1:
        self.reserve(DECIMAL_BYTES)
        self.size = decimal(self.data + self.size, value) - self.data
        return 0

    cdef int put_json_string(self, const uint8_t *text, Py_ssize_t length) except -1:
        """`text` as a JSON string; escapes only control characters, quotes and backslashes."""
        self.reserve(6 * length + 2)
        self.size = quoted(self.data + self.size, text, length) - self.data
        return 0

    cdef void patch_i16(self, Py_ssize_t position, int16_t value) noexcept:
        store_i16(self.data + position, value)

    cdef void patch_i32(self, Py_ssize_t position, int32_t value) noexcept:
        store_i32(self.data + position, value)

    cdef bytes take(self):
        cdef bytes whole = PyBytes_FromStringAndSize(<char *> self.data, self.size)
        self.size = 0
        return whole
