# UniqueIds: ids of sent messages, in upper-case hex: prefix (address, process, salt), ms since the local
# month began, counter.
#
# Owner: a client, or a broker for messages that came without an id. Any thread.

from libc.stdint cimport int64_t, uint16_t

cdef enum:
    PREFIX_MAX = 44               # address 16, process 2, salt 4 bytes, in hex
    UNIQUE_ID_MAX = 56

cdef class UniqueIds:
    cdef char prefix[PREFIX_MAX]
    cdef readonly Py_ssize_t length  # Characters of an id.
    cdef int64_t month_start, month_end
    cdef uint16_t counter

    cpdef str next(self)
    cpdef str at(self, int64_t now_ms)
    cdef void write(self, char *to, int64_t now_ms) noexcept
    cdef void roll_over_month(self, int64_t now_ms) noexcept
