# Ext fields decoded in place: whole numbers, booleans, strings. Values that are not in the plain form that
# clients write go to the complete handlers, so False always means "not handled here", never "invalid".
# Borrows the header, keeps nothing. Any thread.

from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.wire.header cimport Header
from firearrow._native.wire.json cimport Span

cdef enum:
    # the values that differ between the sends of a connection, as in the header
    OPAQUE_VALUE, TOPIC_VALUE, QUEUE_VALUE, BORN_VALUE, PROPERTIES_VALUE, SIGNATURE_VALUE, SEND_VALUES

cdef struct SendFields:
    Span value[SEND_VALUES]
    int64_t queue_id, born_ms
    int32_t opaque, sys_flag, flag, reconsume_times, kind   # kind: a RequestKind, set by the Sender
    bint batch, oneway

cdef struct PullFields:
    Span group, topic, expression, expression_type
    int64_t queue_id, queue_offset, max_messages, flags, commit_offset, suspend_ms, version

cdef bint send_fields(const Header *header, bint long_names, SendFields *found) noexcept nogil
cdef bint pull_fields(const Header *header, PullFields *found) noexcept nogil
cdef bint whole_number(const Span *span, int64_t low, int64_t high, int64_t *value) noexcept nogil
cdef bint is_ascii(const uint8_t *at, Py_ssize_t length) noexcept nogil
