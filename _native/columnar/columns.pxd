# Columns: parses records once, then writes them column by column in Apache Arrow's layout.
#
#   views[i]                      the parsed record; body, topic and properties may point into `keep_alive`
#   pairs[ends[i] .. ends[i + 1]) properties of record i
#
#   numbers   i32 or i64 for each record   texts   i32 offsets[count + 1], bytes
#   validity  one bit for each record, 1: not null
#   map       i32 offsets[count + 1] into the texts of names and of values
#
# Ownership: Columns hold the Spans, which hold the window; buffers belong to the batch that they are written
# for. Order: the constructor fills views and pairs, record by record while its bytes are in the cache; topics
# are checked when a batch needs them.

from libc.stdint cimport int32_t, int64_t

from firearrow._native.columnar.arrow_export cimport ArrowArray
from firearrow._native.columnar.property_pairs cimport Pair
from firearrow._native.columnar.record_spans cimport Spans
from firearrow._native.store.log.record cimport RecordView, Text

cdef class Columns:
    cdef Spans spans
    # opened bodies and repaired strings that views point to
    cdef list keep_alive
    cdef RecordView *views
    cdef readonly Py_ssize_t first        # in the Spans
    cdef readonly Py_ssize_t count
    cdef readonly int64_t size  # Bytes of the records, with bodies as opened.
    cdef Pair *pairs
    cdef int64_t capacity                     # for pairs
    cdef int32_t *ends                    # NULL: made without properties

    cdef int prepare(self, Py_ssize_t capacity, int64_t bytes_max, bint opening) noexcept nogil
    cdef int find_last(self) noexcept nogil
    cdef int ensure_capacity(self, int64_t count) noexcept nogil
    cdef int settle(self, object opener) except -1
    cdef int raise_for(self, int state) except -1
    cdef int replace_value(self, Text *text, bytes instead) except -1
    cdef int repair(self, Text *text) except -1
    cdef int repair_topics(self) except -1
    cdef int64_t fill(self, ArrowArray *to, int kind, Py_ssize_t at, const Text *word) noexcept nogil
    cdef int fill_numbers(self, ArrowArray *to, bint wide, Py_ssize_t at) noexcept nogil
    cdef int fill_times(self, ArrowArray *to, Py_ssize_t at) noexcept nogil
    cdef int64_t fill_hosts(self, ArrowArray *to, Py_ssize_t at) noexcept nogil
    cdef int64_t fill_values(self, ArrowArray *to, const Text *name) noexcept nogil
    cdef int64_t fill_pairs(self, ArrowArray *to) noexcept nogil
