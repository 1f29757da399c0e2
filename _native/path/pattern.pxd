# Pattern: how a connection writes the headers of its sends. Only five values change from one to the next:
# request number, topic, queue, born time and properties. The bytes between them are compared, not parsed. A
# header that does not match is parsed as a whole, and becomes the pattern if its request was taken.
#
# JSON form only; the binary one is as fast to parse. Ownership: it owns a copy of the bytes between the
# values, at most LITERALS_MAX; results of `read` are borrowed from the frame. Thread: the loop's.

cimport cython
from libc.stdint cimport int32_t, uint8_t

from firearrow._native.path.completion cimport CompletedProperties
from firearrow._native.path.fields cimport SEND_VALUES, SendFields
from firearrow._native.path.propertypattern cimport PropertiesTemplate
from firearrow._native.wire.frame cimport Frame

cdef enum:
    LITERALS_MAX = 1024

cdef struct TemplateField:
    int32_t before                # bytes between the last value and this one
    int32_t which                 # of the values


@cython.final
cdef class HeaderTemplate:
    cdef uint8_t literals[LITERALS_MAX]
    cdef TemplateField gaps[SEND_VALUES]
    cdef int count                # of gaps; 0: nothing is known
    cdef int32_t tail_bytes           # bytes after the last value
    cdef SendFields fields        # of the last header; its values are invalid
    cdef PropertiesTemplate properties

    cdef void prefetch(self) noexcept nogil
    cdef void remember(self, const Frame *frame, const SendFields *fields) noexcept nogil
    cdef bint read(
        self, const Frame *frame, SendFields *fields, uint8_t *buffer, CompletedProperties *done
    ) noexcept nogil
