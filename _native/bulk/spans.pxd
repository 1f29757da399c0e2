# Where whole records lie in one window of bytes: a mapped segment, or the body of an answer. Reads, never
# writes.
#
#   window         ...[record]...[record][record]...
#   positions[i]   bytes from the window's start, ascending or not
#
# Ownership: Spans keeps the window's buffer for as long as it lives, and what decodes from it must keep the
# Spans. Order: a record gets in only after `check_record`; `view` checks again, because files under a mapping
# may change. Loops over many records call `prefetch` for each: what they will read soon is then on its way from
# memory.

cimport cython
from libc.stdint cimport int64_t

from firearrow._native.store.log.record cimport RecordView


@cython.final
cdef class Spans:
    cdef object buffer                    # the window as a read-only memoryview, held
    cdef const unsigned char[::1] window
    cdef const unsigned char *data
    cdef readonly Py_ssize_t length       # of the window
    cdef readonly int64_t base            # physical offset of the window's first byte
    cdef int64_t *positions
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef readonly int64_t bytes           # of all records together

    cdef int ensure_capacity(self, Py_ssize_t count) except -1 nogil
    cdef int add(self, int64_t position, int64_t size) except -1 nogil
    cdef int checked(self, Py_ssize_t index, RecordView *found) except -1
    cdef int view(self, Py_ssize_t index, RecordView *found) noexcept nogil
    cdef void prefetch(self, Py_ssize_t index) noexcept nogil
    cdef Spans empty(self)

cdef Spans of_window(object window, int64_t base)   # without records yet; keeps the window
