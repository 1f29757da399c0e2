# RowEncoder: encodes rows of columns as messages, the items of batch requests, without an object for each
# row.
#
#   item     i32 size, i32 0, i32 0, i32 flag, i32 length + body, i16 length + properties
#
# Ownership: a RowEncoder holds the columns that its views point into.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.columnar.arrow_import cimport ListArrayView, ByteView, StringArrayView

cdef enum SourceKind:
    TEXT
    WORDS                             # a list, joined by spaces
    NUMBER                            # below 0: not set
    CONSTANT

cdef struct PropertySource:                   # of one property
    SourceKind kind
    bint is_id
    ByteView name
    ByteView constant
    StringArrayView text
    ListArrayView words
    const int64_t *numbers

cdef enum Fault:
    FAULT_NONE = 0
    FAULT_SEPARATOR
    FAULT_LONG
    FAULT_LARGE
    FAULT_NO_BODY


@cython.final
cdef class RowEncoder:
    cdef readonly Py_ssize_t count
    cdef list keep_alive
    cdef StringArrayView body
    cdef const int32_t *flags         # NULL: all 0
    cdef bint has_pairs
    cdef ListArrayView pairs
    cdef PropertySource *sources
    cdef Py_ssize_t source_count
    cdef ByteView *dropped
    cdef Py_ssize_t dropped_count
    cdef bint dropped_length[256]     # [n]: a name of n bytes may be dropped
    cdef ByteView id_prefix              # at NULL: rows without an id get none
    cdef int64_t id_first

    cdef Py_ssize_t item_bytes_max(self, Py_ssize_t row) noexcept nogil
    cdef Fault put_item(self, uint8_t **at, Py_ssize_t row) noexcept nogil
    cdef Fault put_properties(self, uint8_t **at, Py_ssize_t row) noexcept nogil
    cdef Fault put_pairs(self, uint8_t **at, Py_ssize_t row, bint *has_id) noexcept nogil
    cdef bint is_dropped(self, ByteView name) noexcept nogil
    cdef bytes put_all(self, const int64_t[::1] rows, Py_ssize_t capacity)
    cdef ByteView own_bytes(self, bytes raw)
    cdef int set_ids(self, object ids) except -1
    cdef int set_sources(self, list named) except -1
    cdef int set_dropped(self, set names) except -1
