# Writes numbers and strings at a pointer. The caller has reserved the capacity; each function returns the
# end of what it wrote. Inline: each module that cimports them compiles its own copies. Any thread.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from firearrow._native.base.endian cimport fa_swap32
from firearrow._native.wire.json cimport fa_copy_plain

cdef extern from *:
    """
    static const char fa_two_digits[] =
        "0001020304050607080910111213141516171819"
        "2021222324252627282930313233343536373839"
        "4041424344454647484950515253545556575859"
        "6061626364656667686970717273747576777879"
        "8081828384858687888990919293949596979899";
    """
    const char *fa_two_digits

cdef enum:
    # capacity for one: a sign and 20 bytes, which are always written
    DECIMAL_BYTES = 21
    HEXADECIMAL_BYTES = 16


cdef inline uint8_t *literal(uint8_t *to, const char *text, Py_ssize_t length) noexcept nogil:
    memcpy(to, text, length)
    return to + length


cdef inline uint8_t *decimal(uint8_t *to, long long value) noexcept nogil:
    cdef uint8_t digits[40]
    cdef int at = 20              # zeros follow
    cdef unsigned long long rest = <unsigned long long> value
    if value < 0:
        rest = 0 - rest
        to[0] = c'-'
        to += 1
    memset(digits + 20, 0, 20)
    while rest >= 100:
        at -= 2
        memcpy(digits + at, fa_two_digits + 2 * (rest % 100), 2)
        rest //= 100
    at -= 2
    memcpy(digits + at, fa_two_digits + 2 * rest, 2)
    at += rest < 10
    memcpy(to, digits + at, 20)   # a constant length: moves, not a call
    return to + 20 - at


cdef inline uint8_t *hexadecimal(uint8_t *to, uint64_t value) noexcept nogil:
    """16 digits."""
    return eight_digits(eight_digits(to, <uint32_t> (value >> 32)), <uint32_t> value)


cdef inline uint8_t *eight_digits(uint8_t *to, uint32_t value) noexcept nogil:
    """One digit a byte, the first in the lowest; digits from 10 on are letters."""
    cdef uint64_t digits = fa_swap32(value), letters
    digits = (digits | digits << 16) & 0x0000FFFF0000FFFFULL
    digits = (digits | digits << 8) & 0x00FF00FF00FF00FFULL
    digits = (digits >> 4 & 0x000F000F000F000FULL) | (digits & 0x000F000F000F000FULL) << 8
    letters = (digits + 0x0606060606060606ULL) >> 4 & 0x0101010101010101ULL
    digits += 0x3030303030303030ULL + letters * 7
    memcpy(to, &digits, 8)
    return to + 8


cdef inline uint8_t *quoted(uint8_t *to, const uint8_t *text, Py_ssize_t length) noexcept nogil:
    """A JSON string; control characters, quotes and backslashes are escaped. At most 6 * length + 2 bytes."""
    cdef const uint8_t *end = text + length
    cdef Py_ssize_t plain
    to[0] = c'"'
    to += 1
    while True:
        plain = fa_copy_plain(text, end, to)
        to += plain
        text += plain
        if text == end:
            to[0] = c'"'
            return to + 1
        to[0] = c'\\'
        if text[0] >= c' ':
            to[1] = text[0]
            to += 2
        else:
            memcpy(to + 1, b"u00", 3)
            to[4] = c'0' + (text[0] >> 4)
            to[5] = (c'0' if text[0] & 15 < 10 else c'a' - 10) + (text[0] & 15)
            to += 6
        text += 1
