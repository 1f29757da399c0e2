# What parts properties in a text, 0x01 behind a name and 0x02 behind a value, found eight bytes at a time.
#
#   marks = marks_of(eight)             the high bit of each byte that is 0, 1 or 2: who looks tells which
#   first_byte(marks)                   its index among the eight; `marks &= marks - 1` is the next one
#   ends_piece(piece, at)               report a marked byte; True: the piece ends there, the caller takes it
#                                       and calls `begin` for the next one
#   has_value(piece, end)               it is `name 0x01 value`; the name may be empty

from libc.stdint cimport uint8_t, uint64_t

from firearrow._native.store.files.layout cimport NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

cdef extern from *:
    """
    #define fa_lowest_bit(bits) __builtin_ctzll(bits)
    #define FA_HIGH_BITS 0x8080808080808080ULL
    #define FA_THREES 0x0303030303030303ULL
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "eight bytes at a time, the first the lowest");
    """
    int fa_lowest_bit(uint64_t bits) noexcept nogil
    const uint64_t HIGH_BITS "FA_HIGH_BITS", THREES "FA_THREES"


cdef struct Piece:                    # what is between two separators, as far as it was seen
    const uint8_t *name
    const uint8_t *value              # NULL: no 0x01 yet


cdef inline uint64_t marks_of(uint64_t eight) noexcept nogil:
    return ~((eight | HIGH_BITS) - THREES) & ~eight & HIGH_BITS


cdef inline int first_byte(uint64_t marks) noexcept nogil:
    return fa_lowest_bit(marks) >> 3


cdef inline void begin(Piece *piece, const uint8_t *at) noexcept nogil:
    piece.name = at
    piece.value = NULL


cdef inline bint ends_piece(Piece *piece, const uint8_t *at) noexcept nogil:
    if at[0] == NAME_VALUE_SEPARATOR and piece.value is NULL:
        piece.value = at + 1
    return at[0] == PROPERTY_SEPARATOR


cdef inline bint has_value(const Piece *piece, const uint8_t *end) noexcept nogil:
    return piece.value is not NULL and piece.value != end
