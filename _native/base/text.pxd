# `put_decimal` writes a number as decimal digits, `is_utf8` validates UTF-8. Both borrow the pointer. Any
# thread. Valid sequences:
#
# 0xxxxxxx | 110xxxxx 10xxxxxx | 1110xxxx 10xxxxxx 10xxxxxx | 11110xxx 10xxxxxx 10xxxxxx 10xxxxxx
# The shortest form only, no surrogates (ED A0..BF), nothing above U+10FFFF (F4 90).

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdint cimport uint8_t


cdef enum:
    DECIMAL_BYTES_MAX = 20        # of an i64 with its sign


cdef inline uint8_t *put_decimal(uint8_t *to, int64_t value) noexcept nogil:
    """Returns the end; needs up to DECIMAL_BYTES_MAX bytes."""
    cdef uint8_t digits[DECIMAL_BYTES_MAX]
    cdef int count = 0
    cdef uint64_t left = <uint64_t> value if value >= 0 else -<uint64_t> value
    if value < 0:
        to[0] = c"-"
        to += 1
    while True:
        digits[count] = <uint8_t> (c"0" + left % 10)
        count += 1
        left //= 10
        if left == 0:
            break
    while count > 0:                  # few digits: cheaper than a call of memcpy
        count -= 1
        to[0] = digits[count]
        to += 1
    return to


cdef bint is_utf8(const uint8_t *at, Py_ssize_t length) noexcept nogil
