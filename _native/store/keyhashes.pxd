# The index hashes of staged records, in the records' order: of `topic#key` for the unique key and each key, and of
# `topic#T#tag`. One vector for all of them; a plan says how many of it are its own. `take` lays a record's hashes behind
# the others, the caller counts them once the record is planned: those of one that was not are written over.
# Records that come together have one topic as a rule: how the hashes of the last one begin is kept beside its name.
# Owner: dispatch. Thread: the appender's.

cimport cython
from libc.stdint cimport int32_t, uint8_t

from firearrow._native.store.record cimport Properties, Text

cdef enum:
    TOPIC_KEPT = 255

@cython.final
cdef class KeyHashes:
    cdef int32_t *at
    cdef Py_ssize_t count, room            # of the hashes of planned records
    cdef uint8_t topic[TOPIC_KEPT]
    cdef Py_ssize_t topic_bytes            # -1: of none that could be kept
    cdef int32_t of_keys, of_tags          # of `topic#` and `topic#T#`

    cdef int32_t take(self, const Text *topic, const Properties *properties) except -1
    cdef void begin(self, const Text *topic) noexcept
    cdef int put(self, Py_ssize_t place, int32_t key_hash) except -1
