# A message record: written into a window, checked, looked into. Borrows every pointer, keeps none. Any
# thread.
#
# `check_record` believes nothing: every length is compared with what is there before it is used. What it
# fills in is valid exactly when it answers RECORD_OK. `size` is also set for RECORD_BAD_CRC and for a blank
# (to the segment's end).

from libc.stdint cimport int32_t, int64_t, uint8_t

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
