# NameCounters: counts messages and bytes by name. A name is an owner's number and some bytes, which are
# copied; their pointer is never NULL, even for no bytes.
#
# With a limit the table stays small whatever is added: when it is full, the half with the fewest messages
# moves to `rest`. The count of a name is a lower bound then; all counts and `rest` together are exact.
# Without a limit the numbers of rows never change.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef struct NameRow:
    uint64_t hash
    int64_t owner
    uint8_t *at                # owned
    int32_t length
    int64_t messages, bytes


@cython.final
cdef class NameCounters:
    cdef NameRow *rows
    cdef int32_t *table        # number of a row + 1, 0 free
    cdef Py_ssize_t count, capacity, limit, last
    cdef readonly int64_t rest_messages, rest_bytes
    cdef readonly bint pruned  # Some names were dropped: counts are lower bounds.

    cdef Py_ssize_t number_of(self, int64_t owner, const uint8_t *at, Py_ssize_t length) except -1
    cdef Py_ssize_t make(self, uint64_t hash, int64_t owner, const uint8_t *at, Py_ssize_t length) except -1
    cdef int grow(self) except -1
    cdef int prune(self) except -1
    cdef void index(self) noexcept
    cdef object text(self, Py_ssize_t number)
    cdef int record(self, int64_t owner, const uint8_t *at, Py_ssize_t length, int64_t bytes) except -1
