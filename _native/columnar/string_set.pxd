# StringSet: a set of strings that native code queries without the GIL or an object. Open addressing over
# its own copy of the UTF-8 bytes.
#
# Ownership: the constructor copies the strings; a StringSet never changes. Any thread.

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef struct Slot:
    uint64_t hash
    int64_t at                            # in `texts`
    int64_t length                        # -1: the slot is empty


@cython.final
cdef class StringSet:
    cdef bytes texts                      # concatenated …
    cdef const uint8_t *data              # … and their address
    cdef Slot *slots
    cdef uint64_t mask
    cdef readonly Py_ssize_t count  # Number of distinct strings.

    cdef void put(self, const uint8_t *at, Py_ssize_t length, int64_t position) noexcept nogil
    cdef bint contains(self, const uint8_t *at, Py_ssize_t length) noexcept nogil
