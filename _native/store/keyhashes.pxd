# The index hashes of staged records, in the records' order: of `topic#key` for the unique key and each key, and of
# `topic#T#tag`. One vector for all of them; a plan says how many of it are its own.
# Records that come together have one topic as a rule: the hash of the last one is kept beside its name.
# Owner: dispatch. Thread: the appender's.

from libc.stdint cimport int32_t, uint8_t

from firearrow._native.store.record cimport Properties, Text

cdef enum:
    TOPIC_KEPT = 255

cdef class KeyHashes:
    cdef int32_t *at
    cdef Py_ssize_t count, room
    cdef uint8_t topic[TOPIC_KEPT]
    cdef Py_ssize_t topic_bytes
    cdef int32_t topic_hash                # of `topic#`

    cdef int take(self, const Text *topic, const Properties *properties) except -1
    cdef int32_t of_topic(self, const Text *topic) noexcept
    cdef int add(self, int32_t key_hash) except -1
