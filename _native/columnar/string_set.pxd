# A set of texts, asked without the GIL and without an object: open addressing over UTF-8 bytes of our own.
#
# Ownership: StringSet copies the texts when it is made and never changes. Any thread.

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef struct Slot:
    uint64_t hash
    int64_t at                            # in `texts`
    int64_t length                        # -1: nothing here


@cython.final
cdef class StringSet:
    cdef bytes texts                      # one behind the other …
    cdef const uint8_t *data              # … and where
    cdef Slot *slots
    cdef uint64_t mask
    cdef readonly Py_ssize_t count

    cdef void put(self, const uint8_t *at, Py_ssize_t length, int64_t place) noexcept nogil
    cdef bint contains(self, const uint8_t *at, Py_ssize_t length) noexcept nogil
