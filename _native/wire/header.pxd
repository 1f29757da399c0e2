# Header: a command's header scanned in place, JSON or binary form. No Python object is made; fields point
# into the window.
#
# Ownership: every pointer is borrowed from the frame and invalid after it. Unknown members are skipped,
# nested ones to a depth of DEPTH_MAX. Ext values may be strings, numbers, true or false (their text counts,
# as in signatures); null means absent. Any thread.

from libc.stdint cimport int32_t, uint8_t

from firearrow._native.wire.json cimport Span
from firearrow._native.wire.limits cimport FIELDS_MAX

cdef struct Field:
    Span key
    Span value

cdef struct Header:
    int32_t code
    int32_t language
    int32_t version
    int32_t opaque
    Span opaque_text               # only of the JSON form
    int32_t flag
    Span remark
    int32_t fields
    Field field[FIELDS_MAX]

cdef int scan_header(const uint8_t *at, Py_ssize_t length, int serializer, Header *header) noexcept nogil
cdef str header_fault(int reason)
