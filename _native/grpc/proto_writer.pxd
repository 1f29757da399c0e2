# Writes fields of protobuf's messages at a pointer. The caller has reserved the capacity; each function returns
# the end of what it wrote. Inline: each module that cimports them compiles its own copies. Any thread.

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from firearrow._native.store.log.record cimport Text

cdef enum:
    OK_BYTES = 8
    VARINT_BYTES = 10                     # capacity for one

cdef extern from *:
    """
    static const char fa_ok_status[] = "\\x08\\xa0\\x9c\\x01\\x12\\x02OK";
    """
    const char *OK_STATUS "fa_ok_status"  # a Status: code 20000, message "OK"


cdef inline Py_ssize_t varint_bytes(int64_t value) noexcept nogil:
    """Of a number from 0."""
    cdef Py_ssize_t count = 1
    while value >= 0x80:
        value >>= 7
        count += 1
    return count


cdef inline uint8_t *put_byte(uint8_t *to, uint8_t value) noexcept nogil:
    to[0] = value
    return to + 1


cdef inline uint8_t *put_varint(uint8_t *to, int64_t value) noexcept nogil:
    """A number from 0."""
    while value >= 0x80:
        to[0] = <uint8_t> (value & 0x7F | 0x80)
        to += 1
        value >>= 7
    to[0] = <uint8_t> value
    return to + 1


cdef inline uint8_t *put_key(uint8_t *to, int number, int kind) noexcept nogil:
    return put_varint(to, number << 3 | kind)


cdef inline uint8_t *put_text(uint8_t *to, int number, const Text *text) noexcept nogil:
    """A field of bytes, or of a message that is written already."""
    to = put_varint(put_key(to, number, 2), text.length)
    memcpy(to, text.at, text.length)
    return to + text.length


cdef inline uint8_t *put_number(uint8_t *to, int number, int64_t value) noexcept nogil:
    return put_varint(put_key(to, number, 0), value)


cdef inline uint8_t *put_status(uint8_t *to, int number) noexcept nogil:
    """A field with a Status that states success."""
    cdef Text status = Text(at=<const uint8_t *> OK_STATUS, length=OK_BYTES)
    return put_text(to, number, &status)


cdef inline uint8_t *put_ok(uint8_t *to) noexcept nogil:
    """Field 1, of each response."""
    return put_status(to, 1)
