"""The items of a batch body, read in place (see batch_items.pxd)."""

from libc.stdint cimport int32_t

from firearrow._native.base.endian cimport get_i16, get_i32
from firearrow._native.store.log.record cimport Text, record_bytes

cdef enum:
    HEAD_BYTES = 20
    ITEM_BYTES_MIN = 22
    AT_FLAG = 12
    AT_BODY_BYTES = 16


cdef int64_t items_bytes(const uint8_t *at, Py_ssize_t length, Message *message, int *count) noexcept nogil:
    """The sum of all record sizes; -1: the batch is empty, truncated, too long, or its lengths do not
    match."""
    cdef const uint8_t *end = at + length
    cdef int64_t total = 0
    cdef int32_t size, body_bytes, properties_bytes
    count[0] = 0
    while at < end:
        if end - at < ITEM_BYTES_MIN or count[0] == ITEMS_MAX:
            return -1
        size = get_i32(at)
        body_bytes = get_i32(at + AT_BODY_BYTES)
        if not ITEM_BYTES_MIN <= size <= end - at or not 0 <= body_bytes <= size - ITEM_BYTES_MIN:
            return -1
        properties_bytes = get_i16(at + HEAD_BYTES + body_bytes)
        if properties_bytes < 0 or ITEM_BYTES_MIN + body_bytes + properties_bytes != size:
            return -1
        message.body.length, message.properties.length = body_bytes, properties_bytes
        total += record_bytes(message)
        count[0] += 1
        at += size
    return total if count[0] > 0 else -1


cdef const uint8_t *item_at(const uint8_t *at, Message *message) noexcept nogil:
    """Set the message's body, properties and flag from the item; returns the next item."""
    cdef int32_t body_bytes = get_i32(at + AT_BODY_BYTES)
    message.flag = get_i32(at + AT_FLAG)
    message.body = Text(at=at + HEAD_BYTES, length=body_bytes)
    message.properties = Text(
        at=at + HEAD_BYTES + body_bytes + 2, length=get_i16(at + HEAD_BYTES + body_bytes)
    )
    return at + get_i32(at)
