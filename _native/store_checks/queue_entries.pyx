"""Counts the entries of a consume queue file and compares them with their records. Reads only; any thread."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from firearrow._native.base.endian cimport get_i32, get_i64
from firearrow._native.store_checks.raw_findings cimport LOST_RECORD, QUEUE_GAP, QUEUE_ORDER, RawFindings
from firearrow._native.store.files.layout cimport ENTRY_AT_SIZE, ENTRY_BYTES, PRE_BLANK_SIZE
from firearrow._native.store.log.record cimport RECORD_OK, RecordView, check_record

from collections import namedtuple

# type: Window = bytes | bytearray | memoryview | mmap
# type: class EntriesResult(NamedTuple):
# type:     """What a file of a queue holds. Offsets are queue offsets, -1: none."""
# type:
# type:     first: int
# type:     """The first entry that points to `log_from` or higher."""
# type:     end: int
# type:     """After the last entry that was written, or is a blank."""
# type:     written: int
# type:     within: int
# type:     """Entries that point into the log."""
# type:     gone: int
# type:     """… before the start of the log."""
# type:     beyond: int
# type:     """… past the end of the log."""
# type:     lowest: int
# type:     highest: int
# type:     """Physical offsets of the entries within, -1: none."""


cdef int64_t SIZE_MAX = 0x7FFFFFFF

EntriesResult = namedtuple("EntriesResult", "first end written within gone beyond lowest highest")


def count_entries(
    window not None, int64_t first, int64_t log_from, int64_t log_to, RawFindings findings not None,
    int owner=-1,
):
    # type: (Window, int, int, int, RawFindings, int) -> EntriesResult
    """Count the entries of a queue's file, the first of which has queue offset `first`.

    Unwritten entries before written ones are QUEUE_GAP, physical offsets that decrease are QUEUE_ORDER."""
    cdef const uint8_t[::1] rows = memoryview(window).cast("B")
    cdef int64_t count = rows.shape[0] // ENTRY_BYTES
    cdef int64_t n, offset, before = -1, empty_from = -1, following
    cdef int64_t end = -1, start = -1, lowest = -1, highest = -1
    cdef int64_t written = 0, within = 0, gone = 0, beyond = 0
    cdef const uint8_t *entry
    cdef int32_t size
    for n in range(count):
        entry = &rows[n * ENTRY_BYTES]
        size = get_i32(entry + ENTRY_AT_SIZE)
        if size == PRE_BLANK_SIZE:
            end = first + n + 1
            continue
        if size == 0:
            empty_from = n if empty_from < 0 else empty_from
            continue
        offset = get_i64(entry)
        if empty_from >= 0:
            while empty_from < n:
                if get_i32(&rows[empty_from * ENTRY_BYTES + ENTRY_AT_SIZE]) == 0:
                    findings.add(QUEUE_GAP, owner, first + empty_from, -1, ENTRY_BYTES, -1)
                empty_from += 1
            empty_from = -1
        written += 1
        end = first + n + 1
        gone += offset < log_from
        beyond += offset >= log_to
        if log_from <= offset < log_to:
            within += 1
            lowest = offset if lowest < 0 else min(lowest, offset)
            highest = max(highest, offset)
            if start < 0:
                start = first + n
        if offset < before:
            findings.add(QUEUE_ORDER, owner, first + n, offset, size, before)
            continue
        following = next_physical_offset(&rows[0], n, count)
        if following >= before and following < offset:
            findings.add(QUEUE_ORDER, owner, first + n, offset, size, following)
        else:
            before = offset
    return EntriesResult(start, end, written, within, gone, beyond, lowest, highest)


cdef int64_t next_physical_offset(const uint8_t *entries, int64_t n, int64_t count) noexcept nogil:
    """The physical offset in the next entry; the largest value if that was not written."""
    if n + 1 < count and get_i32(entries + (n + 1) * ENTRY_BYTES + ENTRY_AT_SIZE) not in (0, PRE_BLANK_SIZE):
        return get_i64(entries + (n + 1) * ENTRY_BYTES)
    return 0x7FFFFFFFFFFFFFFF


def check_entries(
    window not None, int64_t first, log not None, *, int64_t base, int64_t until, bytes topic not None,
    int32_t queue_id, bint is_lmq, RawFindings findings not None, int owner=-1,
):
    # type: (Window, int, Window, int, int, bytes, int, bool, RawFindings, int) -> int
    """Compare entries that point into [`base`, `until`) with the records of that segment; returns how many.

    Those that do not fit are LOST_RECORD.

    `is_lmq`: the queue points to records of other queues, so only physical offset and size are compared."""
    cdef const uint8_t[::1] rows = memoryview(window).cast("B")
    cdef const uint8_t[::1] records = memoryview(log).cast("B")
    cdef int64_t length = min(<int64_t> records.shape[0], until - base)
    cdef const uint8_t *name = <const uint8_t *> <const char *> topic
    cdef Py_ssize_t name_length = len(topic)
    cdef int64_t n, position, compared = 0
    cdef int32_t size
    cdef RecordView view
    cdef bint fits
    for n in range(rows.shape[0] // ENTRY_BYTES):
        position = get_i64(&rows[n * ENTRY_BYTES]) - base
        size = get_i32(&rows[n * ENTRY_BYTES + ENTRY_AT_SIZE])
        if size == 0 or size == PRE_BLANK_SIZE or not 0 <= position < length:
            continue
        compared += 1
        fits = check_record(&records[position], length - position, SIZE_MAX, False, &view) == RECORD_OK
        fits = fits and view.size == size and view.physical_offset == base + position and (is_lmq or (
            view.queue_offset == first + n and view.queue_id == queue_id and view.topic.length == name_length
            and memcmp(view.topic.at, name, name_length) == 0
        ))
        if not fits:
            findings.add(LOST_RECORD, owner, first + n, base + position, size, -1)
    return compared


def list_entries(
    window not None, int64_t first, *, int64_t offset_from, int64_t offset_to, RawFindings findings not None,
    int owner=-1,
):
    # type: (Window, int, int, int, RawFindings, int) -> int
    """How many entries point into [`offset_from`, `offset_to`), where there are no records: each is
    LOST_RECORD."""
    cdef const uint8_t[::1] rows = memoryview(window).cast("B")
    cdef int64_t n, offset, listed = 0
    cdef int32_t size
    for n in range(rows.shape[0] // ENTRY_BYTES):
        offset, size = get_i64(&rows[n * ENTRY_BYTES]), get_i32(&rows[n * ENTRY_BYTES + ENTRY_AT_SIZE])
        if size != 0 and size != PRE_BLANK_SIZE and offset_from <= offset < offset_to:
            listed += 1
            findings.add(LOST_RECORD, owner, first + n, offset, size, -1)
    return listed
