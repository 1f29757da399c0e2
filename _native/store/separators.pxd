# What parts properties in a text, 0x01 behind a name and 0x02 behind a value, found eight bytes at a time.
#
#   marks = marks_of(eight)             the high bit of each byte that is 0, 1 or 2: who looks tells which
#   first_byte(marks)                   its place among the eight; `marks &= marks - 1` goes on to the next one

from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #define fa_lowest_bit(bits) __builtin_ctzll(bits)
    #define FA_HIGH_BITS 0x8080808080808080ULL
    #define FA_THREES 0x0303030303030303ULL
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "eight bytes are read at a time, the first the lowest");
    """
    int fa_lowest_bit(uint64_t bits) noexcept nogil
    const uint64_t HIGH_BITS "FA_HIGH_BITS", THREES "FA_THREES"


cdef inline uint64_t marks_of(uint64_t eight) noexcept nogil:
    return ~((eight | HIGH_BITS) - THREES) & ~eight & HIGH_BITS


cdef inline int first_byte(uint64_t marks) noexcept nogil:
    return fa_lowest_bit(marks) >> 3
