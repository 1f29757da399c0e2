# A message record: written into a window, checked, looked into. Borrows every pointer, keeps none. Any
# thread.
#
# `check_record` believes nothing: every length is compared with what is there before it is used. What it
# fills in is valid exactly when it answers RECORD_OK. `size` is also set for RECORD_BAD_CRC and for a blank
# (to the segment's end).
# What parts properties in a text, 0x01 behind a name and 0x02 behind a value, found eight bytes at a time.
#
# marks = marks_of(eight)             the high bit of each byte that is 0, 1 or 2: who looks tells which
# first_byte(marks)                   its index among the eight; `marks &= marks - 1` is the next one
# ends_piece(piece, at)               report a marked byte; True: the piece ends there, the caller takes it
# and calls `begin` for the next one
# has_value(piece, end)               it is `name 0x01 value`; the name may be empty

from libc.stdint cimport uint8_t, uint64_t
from firearrow._native.store.files.layout cimport NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from libc.stdint cimport int32_t, int64_t, uint8_t


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


cdef enum RecordState:
    RECORD_OK = 1
    RECORD_BLANK = 2              # the segment ends here
    RECORD_CUT = -1               # fewer bytes there than its size says
    RECORD_BAD_MAGIC = -2
    RECORD_BAD_SIZE = -3          # the lengths do not add up
    RECORD_BAD_CRC = -4

cdef struct Text:
    const uint8_t *at
    Py_ssize_t length

cdef struct Message:              # what is written; offsets and the store time are filled in by the log
    int32_t queue_id, flag, sys_flag, reconsume_times, crc
    int64_t queue_offset, physical_offset, born_time, store_time, prepared_offset
    Text born_host, store_host, body, topic, properties

cdef struct RecordView:           # what was found; texts point into the record
    int32_t size, queue_id, flag, sys_flag, crc, reconsume_times
    int64_t queue_offset, physical_offset, born_time, store_time, prepared_offset
    Text born_host, store_host, body, topic, properties

cdef struct Properties:           # the values that the store itself needs; length 0 where absent
    Text tags, keys, unique_key, delay, multi_names, multi_offsets

cdef inline void clear(Properties *found) noexcept nogil:
    """All are absent."""
    found.tags.length = found.keys.length = found.unique_key.length = found.delay.length = 0
    found.multi_names.length = found.multi_offsets.length = 0


cdef Py_ssize_t record_bytes(const Message *message) noexcept nogil
cdef void encode_record(const Message *message, Py_ssize_t size, uint8_t *to) noexcept nogil
cdef int check_record(
    const uint8_t *at, Py_ssize_t available, Py_ssize_t size_max, bint check_crc, RecordView *view
) noexcept nogil
cdef bint has_its_crc(const RecordView *view) noexcept nogil
cdef void scan_properties(const Text *text, Properties *found) noexcept nogil
cdef int64_t store_time_at(const uint8_t *record) noexcept nogil
cdef object record_of(const RecordView *view)
