# Ids of sent messages: prefix (address, process, salt), ms since the month began, counter; in upper-case hex.
#
# The month is asked of a callable when it is over: local time is Python's business. Owner: a client; any thread.

from libc.stdint cimport int64_t, uint16_t

cdef enum:
    PREFIX_MAX = 44               # address 16, process 2, salt 4 bytes, in hex

cdef class UniqueIds:
    cdef char prefix[PREFIX_MAX]
    cdef Py_ssize_t prefix_length
    cdef object month_of
    cdef int64_t month_start, month_end
    cdef uint16_t counter

    cpdef str next(self)
    cpdef str at(self, int64_t now_ms)
