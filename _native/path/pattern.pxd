# Pattern: how a connection writes the headers of its sends. From one to the next only five values change: the
# number of the request, topic, queue, birth and properties. What stands between them is compared and not read
# again. A header that does not fit is read as a whole, and is the pattern of the next if it was taken.
#
# Only of the JSON form; the binary one is as quick to read. Owns a copy of what stands between the values, of
# at most LITERALS_MAX bytes; what `read` finds is borrowed from the frame. Thread: the loop's.

cimport cython
from libc.stdint cimport int32_t, uint8_t

from firearrow._native.path.completion cimport Completed
from firearrow._native.path.fields cimport SEND_VALUES, SendFields
from firearrow._native.path.propertypattern cimport PropertyPattern
from firearrow._native.wire.frame cimport Frame

cdef enum:
    LITERALS_MAX = 1024

cdef struct Gap:
    int32_t before                # bytes between the last value and this one
    int32_t which                 # of the values


@cython.final
cdef class Pattern:
    cdef uint8_t literals[LITERALS_MAX]
    cdef Gap gaps[SEND_VALUES]
    cdef int count                # of gaps; 0: nothing is known
    cdef int32_t behind           # bytes behind the last value
    cdef SendFields fields        # of the last header; its values are gone
    cdef PropertyPattern properties

    cdef void call_for(self) noexcept nogil
    cdef void learn(self, const Frame *frame, const SendFields *fields) noexcept nogil
    cdef bint read(
        self, const Frame *frame, SendFields *fields, uint8_t *room, Completed *done
    ) noexcept nogil
