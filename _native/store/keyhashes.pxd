# The index hashes of staged records, in the records' order: of `topic#key` for the unique key and each key,
# and of `topic#T#tag`. One vector for all of them; a plan says how many of it are its own. `add_keys` lays a
# record's hashes behind the others, the caller counts them once the record is planned: those of one that was
# not are written over. How those of a topic begin, its queues keep.
# Owner: dispatch. Thread: the appender's.

cimport cython
from libc.stdint cimport int32_t, uint8_t

from firearrow._native.store.record cimport Properties

cdef int32_t keys_of(const uint8_t *topic, Py_ssize_t length) noexcept nogil


@cython.final
cdef class KeyHashes:
    cdef int32_t *at
    cdef Py_ssize_t count, capacity            # of the hashes of planned records

    cdef int32_t add_keys(self, int32_t topic_key_hash, const Properties *properties) except -1
    cdef int put(self, Py_ssize_t place, int32_t key_hash) except -1
