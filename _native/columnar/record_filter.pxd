# RecordFilter: selects records of Spans by topic, tag, key, unique id and time. Reads the records themselves,
# so a tag is compared as a string, not by its hash.
#
# Ownership: a RecordFilter owns its sets and never changes; `keep` returns Spans on the window of its
# argument. Any thread.

cimport cython
from libc.stdint cimport int64_t

from firearrow._native.columnar.record_spans cimport Spans
from firearrow._native.columnar.string_set cimport StringSet
from firearrow._native.store.log.record cimport RecordView, Text


@cython.final
cdef class RecordFilter:
    cdef StringSet topics, tags, keys, unique_ids  # None: any
    cdef int64_t stored_from, stored_until, born_from, born_until
    cdef readonly bint everything  # No condition is set: `keep` returns its argument.

    cdef Py_ssize_t scan(self, Spans spans, Spans kept) except -2 nogil
    cdef bint accepts(self, const RecordView *view) noexcept nogil
    cdef bint accepts_strings(self, const RecordView *view) noexcept nogil
    cdef bint accepts_key(self, const Text *keys) noexcept nogil
