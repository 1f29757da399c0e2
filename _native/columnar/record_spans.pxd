# Spans: positions of whole records in one window of bytes, a mapped segment or the body of a pull response.
# Reads only.
#
# window         ...[record]...[record][record]...
# positions[i]   bytes from the window's start, ascending or not
#
# Ownership: Spans hold the window's buffer as long as they live; code that decodes from it must hold the
# Spans. Order: a record is added only after `check_record`; `view` checks it again, because a mapped file
# may change. Loops over many records call `prefetch` for each record that they will read soon: first for
# its head, then, once the head is in the cache, for the strings after the body. A wrong guess costs only
# time: nothing outside the window is read.

cimport cython
from libc.stdint cimport int64_t, uint8_t

from firearrow._native.base.endian cimport get_i32
from firearrow._native.base.memory cimport prefetch_read
from firearrow._native.store.files.layout cimport RECORD_FIXED_BYTES
from firearrow._native.store.log.record cimport RecordView


cdef enum:
    HEADS_AHEAD = 12              # records ahead whose head is prefetched …
    STRINGS_AHEAD = 6               # … and whose strings are
    CACHE_LINE = 64
    BODY_AT = 84                  # where a record with IPv4 hosts has the length of its body
    PREFETCH_BYTES = 1536           # of a body that is read whole: the CPU prefetches the rest itself


cdef inline void prefetch_head(const uint8_t *record) noexcept nogil:
    prefetch_read(record)
    prefetch_read(record + CACHE_LINE)


cdef inline void prefetch_strings(const uint8_t *data, int64_t length, int64_t position) noexcept nogil:
    cdef int64_t body_bytes
    if position < 0 or length - position < RECORD_FIXED_BYTES:
        return
    body_bytes = get_i32(data + position + BODY_AT)
    if 0 <= body_bytes < length - position - RECORD_FIXED_BYTES:
        prefetch_read(data + position + BODY_AT + 4 + body_bytes)
        prefetch_read(data + position + BODY_AT + 4 + body_bytes + CACHE_LINE)


cdef inline void prefetch_body(const uint8_t *data, int64_t length, int64_t position) noexcept nogil:
    cdef int64_t at = position + BODY_AT
    cdef int64_t end = min(position + PREFETCH_BYTES, length)
    while at < end:
        prefetch_read(data + at)
        at += CACHE_LINE


@cython.final
cdef class Spans:
    cdef object buffer                    # the window as a read-only memoryview, held
    cdef const unsigned char[::1] window
    cdef const unsigned char *data
    cdef readonly Py_ssize_t length  # Of the window, bytes.
    cdef readonly int64_t base            # physical offset of the window's first byte
    cdef int64_t *positions
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef readonly int64_t bytes  # Of all records together.

    cdef int ensure_capacity(self, Py_ssize_t count) except -1 nogil
    cdef int add(self, int64_t position, int64_t size) except -1 nogil
    cdef int checked(self, Py_ssize_t index, RecordView *found) except -1
    cdef int view(self, Py_ssize_t index, RecordView *found) noexcept nogil
    cdef void prefetch(self, Py_ssize_t index) noexcept nogil
    cdef Spans empty(self)

cdef Spans of_window(object window, int64_t base)   # without records yet; keeps the window
