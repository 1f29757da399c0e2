# Rows of columns as messages to be sent: the items of batch requests, written without an object a row.
#
#   item     i32 size, i32 0, i32 0, i32 flag, i32 length + body, i16 length + properties
#
# Ownership: Rows hold the columns whose views and pieces they keep.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.bulk.arrays cimport ListsView, Piece, TextsView

cdef enum SourceKind:
    TEXT
    WORDS                             # a list, joined by spaces
    NUMBER                            # below 0: not set
    CONSTANT

cdef struct Source:                   # of one property
    SourceKind kind
    bint is_id
    Piece name
    Piece constant
    TextsView text
    ListsView words
    const int64_t *numbers

cdef enum Fault:
    FAULT_NONE = 0
    FAULT_SEPARATOR
    FAULT_LONG
    FAULT_LARGE
    FAULT_NO_BODY


@cython.final
cdef class Rows:
    cdef readonly Py_ssize_t count
    cdef list held
    cdef TextsView body
    cdef const int32_t *flags         # NULL: all 0
    cdef bint has_pairs
    cdef ListsView pairs
    cdef Source *sources
    cdef Py_ssize_t source_count
    cdef Piece *dropped
    cdef Py_ssize_t dropped_count
    cdef bint dropped_length[256]     # whether a name of so many bytes may be dropped
    cdef Piece id_prefix              # at NULL: rows without an id get none
    cdef int64_t id_first

    cdef Py_ssize_t room(self, Py_ssize_t row) noexcept nogil
    cdef Fault put_item(self, uint8_t **at, Py_ssize_t row) noexcept nogil
    cdef Fault put_properties(self, uint8_t **at, Py_ssize_t row) noexcept nogil
    cdef Fault put_pairs(self, uint8_t **at, Py_ssize_t row, bint *has_id) noexcept nogil
    cdef bint is_dropped(self, Piece name) noexcept nogil
    cdef bytes put_all(self, const int64_t[::1] rows, Py_ssize_t room)
    cdef Piece keep(self, bytes raw)
    cdef int take_ids(self, object ids) except -1
    cdef int take_sources(self, list named) except -1
    cdef int take_dropped(self, set names) except -1
