# Message records: encode, check, decode. Borrows every pointer, keeps none. Any thread.
#
# `check_record` trusts nothing: it checks every length before use. The view is valid only if it returns
# RECORD_OK; `size` is also set for RECORD_BAD_CRC and for a blank (up to the end of the segment).
#
# Property separators (0x01 after a name, 0x02 after a value) are found eight bytes at a time:
#
# marks = marks_of(eight)             the high bit of each byte that is 0, 1 or 2; the caller checks which
# first_byte(marks)                   index of the first marked byte; `marks &= marks - 1` drops it
# ends_property(scan, at)             handle a marked byte; True: the property ends there, the caller takes
#                                     it and calls `begin` for the next one
# has_value(scan, end)                it is `name 0x01 value`; the name may be empty

from libc.stdint cimport uint8_t, uint64_t
from firearrow._native.store.files.layout cimport NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from libc.stdint cimport int32_t, int64_t, uint8_t


cdef extern from "base/platform.h" nogil:
    int fa_lowest_bit(uint64_t bits) noexcept

cdef extern from *:
    """
    #define FA_HIGH_BITS 0x8080808080808080ULL
    #define FA_THREES 0x0303030303030303ULL
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "eight bytes at a time, the first the lowest");
    """
    const uint64_t HIGH_BITS "FA_HIGH_BITS", THREES "FA_THREES"


cdef struct PropertyScan:                    # a property, as far as it was scanned
    const uint8_t *name
    const uint8_t *value              # NULL: no 0x01 yet


cdef inline uint64_t marks_of(uint64_t eight) noexcept nogil:
    return ~((eight | HIGH_BITS) - THREES) & ~eight & HIGH_BITS


cdef inline int first_byte(uint64_t marks) noexcept nogil:
    return fa_lowest_bit(marks) >> 3


cdef inline void begin(PropertyScan *scan, const uint8_t *at) noexcept nogil:
    scan.name = at
    scan.value = NULL


cdef inline bint ends_property(PropertyScan *scan, const uint8_t *at) noexcept nogil:
    if at[0] == NAME_VALUE_SEPARATOR and scan.value is NULL:
        scan.value = at + 1
    return at[0] == PROPERTY_SEPARATOR


cdef inline bint has_value(const PropertyScan *scan, const uint8_t *end) noexcept nogil:
    return scan.value is not NULL and scan.value != end


cdef enum RecordState:
    RECORD_OK = 1
    RECORD_BLANK = 2              # the segment ends here
    RECORD_CUT = -1               # truncated: fewer bytes than its size
    RECORD_BAD_MAGIC = -2
    RECORD_BAD_SIZE = -3          # the lengths do not add up
    RECORD_BAD_CRC = -4

cdef struct Text:
    const uint8_t *at
    Py_ssize_t length

cdef struct Message:              # to be encoded; the store fills in offsets and store time
    int32_t queue_id, flag, sys_flag, reconsume_times, crc
    int64_t queue_offset, physical_offset, born_time, store_time, prepared_offset
    Text born_host, store_host, body, topic, properties

cdef struct RecordView:           # a checked record; Text fields point into it
    int32_t size, queue_id, flag, sys_flag, crc, reconsume_times
    int64_t queue_offset, physical_offset, born_time, store_time, prepared_offset
    Text born_host, store_host, body, topic, properties

cdef struct Properties:           # the properties that the store itself needs; length 0: absent
    Text tags, keys, unique_key, delay, multi_names, multi_offsets, inner_count

cdef inline void clear(Properties *found) noexcept nogil:
    """Mark all as absent."""
    found.tags.length = found.keys.length = found.unique_key.length = found.delay.length = 0
    found.multi_names.length = found.multi_offsets.length = found.inner_count.length = 0


cdef Py_ssize_t record_bytes(const Message *message) noexcept nogil
cdef void encode_record(const Message *message, Py_ssize_t size, uint8_t *to) noexcept nogil
cdef int check_record(
    const uint8_t *at, Py_ssize_t available, Py_ssize_t size_max, bint check_crc, RecordView *view
) noexcept nogil
cdef bint has_its_crc(const RecordView *view) noexcept nogil
cdef void scan_properties(const Text *text, Properties *found) noexcept nogil
cdef int64_t store_time_at(const uint8_t *record) noexcept nogil
cdef object record_of(const RecordView *view)
cdef dict property_pairs(const uint8_t *at, Py_ssize_t length)
