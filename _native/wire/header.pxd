# A header scanned in place, JSON or binary form: no Python object is made, fields point into the window.
#
# Every pointer is borrowed from the frame and dies with it. A Span of kind SPAN_ESCAPED still has its JSON escapes;
# `unescape` writes it out (never longer than it is). Members that nobody knows are skipped, nested ones to a depth of
# DEPTH_MAX. Ext values may be strings, numbers, true or false (their text counts, as signatures do); null is as absent.

from libc.stdint cimport int32_t, uint8_t

from firearrow._native.wire.limits cimport FIELDS_MAX

cdef enum SpanKind:
    SPAN_ABSENT = 0
    SPAN_RAW = 1
    SPAN_ESCAPED = 2

cdef struct Span:
    const uint8_t *at
    int32_t length
    int32_t kind

cdef struct Field:
    Span key
    Span value

cdef enum:
    HEADER_OK = 0
    HEADER_BAD_JSON = -1
    HEADER_BAD_TYPE = -2          # a member has another type than the protocol says
    HEADER_BAD_BINARY = -3        # an inner length does not fit
    HEADER_TOO_MANY_FIELDS = -4
    HEADER_TOO_DEEP = -5

cdef struct Header:
    int32_t code
    int32_t language
    int32_t version
    int32_t opaque
    int32_t flag
    Span remark
    int32_t fields
    Field field[FIELDS_MAX]

cdef int scan_header(const uint8_t *at, Py_ssize_t length, int serializer, Header *header) noexcept nogil
cdef Py_ssize_t unescape(const uint8_t *at, Py_ssize_t length, uint8_t *to) noexcept nogil
cdef str header_fault(int reason)
