# PropertyPattern: which properties the last send of a connection had, and in which order. Where the next one
# has the same, their names are compared and their values copied: nothing is unescaped, nothing looked for.
#
# Only of the form in which clients write them in JSON, `name\u0001value\u0002`, and of values in ASCII
# without an escape. Another form is learned when it has come twice in a row: two forms in turn cost a look at
# the names, not a learning each. Owns a copy of the names; what `take` finds lies in `room`. Thread: the
# loop's.

cimport cython
from libc.stdint cimport int32_t, uint8_t

from firearrow._native.path.completion cimport Completed
from firearrow._native.wire.json cimport Span

cdef enum:
    PROPERTIES_MAX = 16
    NAMES_BYTES_MAX = 512

cdef struct Name:
    int32_t length
    int32_t meaning


@cython.final
cdef class PropertyPattern:
    # the names one behind the other, each with the separator behind it
    cdef uint8_t literals[NAMES_BYTES_MAX]
    cdef Name names[PROPERTIES_MAX]
    cdef int count                            # of names; 0: nothing is known
    cdef bint is_ended                        # by a separator behind the last value
    cdef bint is_doubted                      # the last properties had another form

    cdef void call_for(self) noexcept nogil
    cdef void learn(self, const Span *given, const Completed *done) noexcept nogil
    cdef const uint8_t *take(
        self, const uint8_t *at, const uint8_t *end, uint8_t *room, Completed *done
    ) noexcept nogil
