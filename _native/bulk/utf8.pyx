"""UTF-8 checked without decoding it (see utf8.pxd): eight ASCII bytes at a time, then by the first byte of a letter."""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

cdef uint64_t HIGH_BITS = 0x8080808080808080U


cdef bint is_utf8(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    cdef const uint8_t *end = at + length
    cdef uint64_t eight
    cdef Py_ssize_t step
    while at < end:
        while end - at >= 8:
            memcpy(&eight, at, 8)
            if eight & HIGH_BITS:
                break
            at += 8
        while at < end and at[0] < 0x80:
            at += 1
        if at == end:
            return True
        step = letter_bytes(at, end - at)
        if step == 0:
            return False
        at += step
    return True


cdef inline bint goes_on(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


cdef Py_ssize_t letter_bytes(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    """Bytes of the letter beyond ASCII that starts here; 0 if none does."""
    cdef uint8_t first = at[0]
    if 0xC2 <= first <= 0xDF:
        return 2 if length >= 2 and goes_on(at[1]) else 0
    if 0xE0 <= first <= 0xEF:
        if length < 3 or not (goes_on(at[1]) and goes_on(at[2])):
            return 0
        return 0 if (first == 0xE0 and at[1] < 0xA0) or (first == 0xED and at[1] >= 0xA0) else 3
    if 0xF0 <= first <= 0xF4:
        if length < 4 or not (goes_on(at[1]) and goes_on(at[2]) and goes_on(at[3])):
            return 0
        return 0 if (first == 0xF0 and at[1] < 0x90) or (first == 0xF4 and at[1] >= 0x90) else 4
    return 0


def valid(const uint8_t[::1] text not None):
    return is_utf8(&text[0], text.shape[0]) if text.shape[0] else True
