# Records looked into once, then written out column by column into buffers laid out as Apache Arrow has them.
#
#   views[i]                               what was found; body, topic and properties may point into `held` instead
#   pairs[ends[i - 1] .. ends[i])          properties of record i (from 0 for the first)
#
#   numbers   i32 or i64 a record          texts   i32 offsets[count + 1], bytes       validity   a bit a record, 1 is there
#   map       i32 offsets[count + 1] into the texts of names and of values
#
# Ownership: Columns keep the Spans, so the window; the buffers are bytearrays of exactly the column's size, the caller's.
# Order: views when made; texts are checked and pairs found when a column first wants them.

from libc.stdint cimport int32_t, int64_t

from firearrow._native.bulk.pairs cimport Pair
from firearrow._native.bulk.spans cimport Spans
from firearrow._native.store.record cimport RecordView, Text

cdef class Columns:
    cdef Spans spans
    cdef list held                        # bodies opened and texts repaired, for as long as views point at them
    cdef RecordView *views
    cdef readonly Py_ssize_t first        # in the Spans
    cdef readonly Py_ssize_t count
    cdef readonly int64_t size            # bytes of the records, with bodies as opened
    cdef bint topics_checked
    cdef Pair *pairs                      # NULL: not wanted yet
    cdef int32_t *ends

    cdef int look(self, Py_ssize_t room, int64_t bytes_max, bint opening) noexcept nogil
    cdef int open_last(self, object opener) except -1
    cdef int repair(self, Py_ssize_t at) except -1
    cdef int find(self) except -1
    cdef tuple texts(self, const char *first, Py_ssize_t stride, Py_ssize_t count, str name)
