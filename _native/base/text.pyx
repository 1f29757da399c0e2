"""UTF-8 validation without decoding (see text.pxd): ASCII eight bytes at a time, then by leading bytes."""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy


cdef uint64_t HIGH_BITS = 0x8080808080808080U


cdef bint is_utf8(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    cdef const uint8_t *end = at + length
    cdef Py_ssize_t step
    if is_ascii(at, length):
        return True
    while at < end:
        if at[0] < 0x80:
            at += 1
            continue
        step = character_bytes(at, end - at)
        if step == 0:
            return False
        at += step
    return True


cdef bint is_ascii(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    cdef uint64_t eight, all_bits = 0
    cdef Py_ssize_t index = 0
    while index + 8 <= length:
        memcpy(&eight, at + index, 8)
        all_bits |= eight
        index += 8
    while index < length:
        all_bits |= at[index]
        index += 1
    return all_bits & HIGH_BITS == 0


cdef inline bint is_continuation(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


cdef Py_ssize_t character_bytes(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    """Length of the non-ASCII character that starts here; 0: invalid."""
    cdef uint8_t first = at[0]
    if 0xC2 <= first <= 0xDF:
        return 2 if length >= 2 and is_continuation(at[1]) else 0
    if 0xE0 <= first <= 0xEF:
        if length < 3 or not (is_continuation(at[1]) and is_continuation(at[2])):
            return 0
        return 0 if (first == 0xE0 and at[1] < 0xA0) or (first == 0xED and at[1] >= 0xA0) else 3
    if 0xF0 <= first <= 0xF4:
        if length < 4 or not (is_continuation(at[1]) and is_continuation(at[2]) and is_continuation(at[3])):
            return 0
        return 0 if (first == 0xF0 and at[1] < 0x90) or (first == 0xF4 and at[1] >= 0x90) else 4
    return 0


def valid(const uint8_t[::1] text not None):
    # type: (bytes | bytearray | memoryview) -> bool
    """Whether it is valid UTF-8, by the rules of Python's strict decoder."""
    return is_utf8(&text[0], text.shape[0]) if text.shape[0] else True
