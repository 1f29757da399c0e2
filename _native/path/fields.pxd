# Ext fields read in place: whole numbers, yes or no, texts. What is not in the plain form that clients write
# is left to the complete handlers, so a `False` here never means more than "not mine". Borrows all, keeps
# nothing.

from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.wire.header cimport Header
from firearrow._native.wire.json cimport Span

cdef enum:
    # what differs between the sends of a connection, as it stands in the header
    OPAQUE_VALUE, TOPIC_VALUE, QUEUE_VALUE, BORN_VALUE, PROPERTIES_VALUE, SEND_VALUES

cdef struct SendFields:
    Span value[SEND_VALUES]
    int64_t queue_id, born_ms
    int32_t opaque, sys_flag, flag, reconsume_times
    bint batch, oneway

cdef struct PullFields:
    Span group, topic, expression, expression_type
    int64_t queue_id, queue_offset, wanted, flags, commit_offset, suspend_ms, version

cdef bint send_fields(const Header *header, bint long_names, SendFields *found) noexcept nogil
cdef bint pull_fields(const Header *header, PullFields *found) noexcept nogil
cdef bint whole_number(const Span *span, int64_t low, int64_t high, int64_t *value) noexcept nogil
cdef bint is_ascii(const uint8_t *at, Py_ssize_t length) noexcept nogil
