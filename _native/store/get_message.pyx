"""Which records of a queue a pull gets (see get_message.pxd)."""

import os
from dataclasses import dataclass
from enum import IntEnum

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t

from firearrow._native.base.clock cimport nanoseconds
from firearrow._native.base.endian cimport get_i32, get_i64
from firearrow._native.store.recovery.entry_repair cimport repair_entry
from firearrow._native.base.memory cimport copy_far
from firearrow._native.store.files.layout cimport (
    AT_QUEUE_ID, AT_QUEUE_OFFSET, BATCH_ENTRY_BYTES, ENTRY_AT_SIZE, ENTRY_AT_TAGS, ENTRY_BYTES,
    PRE_BLANK_SIZE, RECORD_FIXED_BYTES,
)
from firearrow._native.store.log.batch_consume_queue cimport (
    count_at, find_entry, first_offset, is_batch, offset_at, search, visible_offset,
)
from firearrow._native.store.log.queue_check cimport matches
from firearrow._native.store.log.dispatcher cimport multi_entries
from firearrow._native.store.log.record cimport Properties, RECORD_OK, RecordView, scan_properties

cdef enum:
    MAX_BYTES = 134217728
    ACCEPT_NS = 50000000               # a filter holds up the loop for so long, and one record more


class GetStatus(IntEnum):
    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8


cdef enum:
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3


@dataclass(slots=True)
class GetResult:
    """Result of `get`. `body`: complete records in sequence; `next_offset`: after the last entry scanned;
    `far_behind`: the last entry examined is farther from the end of the log than counts as in memory (Apache
    suggests a slave)."""
    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    count: int
    body: bytes
    far_behind: bool


def empty_result(status, next_offset, low, high):
    return GetResult(status, next_offset, low, high, 0, b"", False)


cdef object get_message(
    CommitLog log, ConsumeQueue queue, const Limits *limits, int64_t offset, int64_t max_count,
    int64_t max_bytes, object tags, object accept,
):
    cdef Scan scan
    cdef int64_t messages
    cdef int64_t low, high, end
    if queue is None:
        return empty_result(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    low, high, end = first_offset(queue), visible_offset(queue), offset_at(queue, queue.end_entry)
    if high == 0 and not 0 < offset <= end:
        return empty_result(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    if offset < low:
        return empty_result(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if high <= offset <= end:  # past `high`: seen before the last power cut, or at the master
        return empty_result(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
    if offset > high:
        return empty_result(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
    scan.picked = <PickedRecord *> PyMem_Malloc(
        min(max(max_count, 1), <int64_t> PICKED_MAX) * sizeof(PickedRecord)
    )
    if scan.picked is NULL:
        raise MemoryError()
    try:
        if is_batch(queue):
            messages = pick_batches(
                log, queue, limits, offset, min(max(max_count, 1), <int64_t> PICKED_MAX), max_bytes, tags,
                accept, &scan,
            )
        else:
            messages = pick(
                log, queue, limits, offset, min(max(max_count, 1), <int64_t> PICKED_MAX), max_bytes, NULL, 0,
                tags, accept, &scan,
            )
        if scan.status == MESSAGE_WAS_REMOVING:
            # the start of the log has moved, and the cleaner has not reached this queue yet
            queue.correct_min(log.min_offset)
            low = first_offset(queue)
            if offset < low:
                return empty_result(GetStatus.OFFSET_TOO_SMALL, low, low, high)
        far_behind = scan.last_physical >= 0 and log.written - scan.last_physical > limits.in_memory_bytes
        return GetResult(
            GetStatus(scan.status), scan.next_offset, low, high, messages, copied(&scan), far_behind
        )
    finally:
        PyMem_Free(scan.picked)


cdef int pick(
    CommitLog log, ConsumeQueue queue, const Limits *limits, int64_t offset, int64_t max_count,
    int64_t max_bytes, const int32_t *codes, Py_ssize_t codes_count, object tags, object accept, Scan *scan,
) except -1:
    cdef int64_t run, n, physical, window, until = 0
    cdef int32_t size, code
    cdef const uint8_t *entry = queue.entries_at(offset, &run)
    cdef const uint8_t *record
    cdef int64_t total_max = min(max(max_bytes, <int64_t> 100), <int64_t> MAX_BYTES)
    scan.count = scan.bytes = 0
    scan.next_offset = offset
    scan.last_physical = -1
    scan.status = NO_MATCHED_MESSAGE
    if entry is NULL:
        scan.status = OFFSET_FOUND_NULL
        scan.next_offset = (offset * ENTRY_BYTES // queue.file_bytes + 1) * queue.file_bytes // ENTRY_BYTES
        return 0
    window = max(limits.filter_bytes, max_count * ENTRY_BYTES) // ENTRY_BYTES
    run = min(run, queue.visible - offset, window)
    if accept is not None:
        until = nanoseconds() + ACCEPT_NS
    for n in range(run):
        physical = get_i64(entry)
        size = get_i32(entry + ENTRY_AT_SIZE)
        if is_full(
            limits, scan, scan.count, 1, size, log.written - physical <= limits.in_memory_bytes, max_count,
            total_max,
        ):
            break
        scan.next_offset = offset + n + 1
        scan.last_physical = physical
        code = <int32_t> get_i64(entry + ENTRY_AT_TAGS)
        if has_code(code, codes, codes_count) and (tags is None or code in tags):
            record = record_bytes(log, queue, offset + n, offset + n, physical, &size)
            if record is NULL:
                if scan.count == 0:
                    scan.status = MESSAGE_WAS_REMOVING
                    if is_gone(log, queue, offset + n, physical):
                        break  # the client learns of it before it gets later records
            elif accept is None or accept(PyMemoryView_FromMemory(<char *> record, size, PyBUF_READ)):
                scan.picked[scan.count].at = record
                scan.picked[scan.count].size = size
                scan.count += 1
                scan.bytes += size
                scan.status = FOUND
            elif scan.count == 0:
                scan.status = NO_MATCHED_MESSAGE
        elif scan.count == 0:
            scan.status = NO_MATCHED_MESSAGE
        if until and nanoseconds() > until:
            break  # the client goes on from there, as after the end of the window
        entry += ENTRY_BYTES
    return <int> scan.count


cdef int pick_batches(
    CommitLog log, ConsumeQueue queue, const Limits *limits, int64_t offset, int64_t max_count,
    int64_t max_bytes, object tags, object accept, Scan *scan,
) except -1:
    """As `pick`, in a batch queue: whole records, first the one that has the message at `offset`. Returns the
    number of messages."""
    cdef int64_t messages = 0, entry, end, run, count, physical, window, until = 0
    cdef int32_t size
    cdef const uint8_t *at
    cdef const uint8_t *record
    cdef int64_t total_max = min(max(max_bytes, <int64_t> 100), <int64_t> MAX_BYTES)
    scan.count = scan.bytes = 0
    scan.last_physical = -1
    scan.status = NO_MATCHED_MESSAGE
    entry = sound_entry(log, queue, offset)
    # the offsets of lost messages may come before an entry
    scan.next_offset = offset if entry < queue.visible else visible_offset(queue)
    window = max(limits.filter_bytes // BATCH_ENTRY_BYTES, max_count)
    if accept is not None:
        until = nanoseconds() + ACCEPT_NS
    queue.entries_at(entry, &run)  # those of one file
    end = min(entry + run, queue.visible)
    while entry < end and scan.count < PICKED_MAX:
        at = queue.entry_at(entry)
        if at is NULL or scan.next_offset - offset >= window:
            break
        count = sound_count(log, queue, entry)
        physical, size = get_i64(at), get_i32(at + ENTRY_AT_SIZE)
        if is_full(
            limits, scan, messages, count, size, log.written - physical <= limits.in_memory_bytes, max_count,
            total_max,
        ):
            break
        scan.next_offset = max(scan.next_offset, end_of(queue, entry, count))
        scan.last_physical = physical
        if tags is None or <int32_t> get_i64(at + ENTRY_AT_TAGS) in tags:
            record = record_bytes(log, queue, entry, offset_at(queue, entry), physical, &size)
            if record is NULL:
                if scan.count == 0:
                    scan.status = MESSAGE_WAS_REMOVING
                    if is_gone(log, queue, entry, physical):
                        break
            elif accept is None or accept(PyMemoryView_FromMemory(<char *> record, size, PyBUF_READ)):
                scan.picked[scan.count].at = record
                scan.picked[scan.count].size = size
                scan.count += 1
                scan.bytes += size
                scan.status = FOUND
                messages += count
            elif scan.count == 0:
                scan.status = NO_MATCHED_MESSAGE
        elif scan.count == 0:
            scan.status = NO_MATCHED_MESSAGE
        if until and nanoseconds() > until:
            break
        entry += 1
    return <int> messages


cdef int64_t sound_entry(CommitLog log, ConsumeQueue queue, int64_t offset) except -2:
    """The entry of a message in a batch queue, or of the first one after it. A damaged entry may have misled
    the search: it is repaired, or left out if its record is not nearby."""
    cdef int64_t entry = find_entry(queue, offset), other, before
    cdef int32_t size = 0
    if entry < queue.end_entry and offset_at(queue, entry) <= offset:
        return entry
    for other in (entry - 1, entry):
        if queue.min_entry <= other < queue.end_entry and not matches(log, queue, other, True):
            log.refused += 1
            if repair_entry(log, queue, other, &size) is not NULL:
                return find_entry(queue, offset)
            before = search(queue, queue.min_entry, other, offset)
            return before if before < other else search(queue, other + 1, queue.end_entry, offset)
    return entry


cdef int64_t sound_count(CommitLog log, ConsumeQueue queue, int64_t entry) except -1:
    """How many messages an entry is of; 0: it is damaged, and its record is not nearby. One that does not end
    where the next begins may be damaged: it is repaired."""
    cdef int64_t count = count_at(queue, entry)
    cdef int32_t size = 0
    if entry + 1 < queue.end_entry and offset_at(queue, entry + 1) == offset_at(queue, entry) + count:
        return count
    if matches(log, queue, entry, True):
        return count
    log.refused += 1
    return 0 if repair_entry(log, queue, entry, &size) is NULL else count_at(queue, entry)


cdef int64_t end_of(ConsumeQueue queue, int64_t entry, int64_t count) except -1:
    """The queue offset after an entry of `count` messages; of a damaged one (0) where the next begins."""
    return offset_at(queue, entry) + count if count else offset_at(queue, entry + 1)


cdef inline bint has_code(int32_t code, const int32_t *codes, Py_ssize_t count) noexcept nogil:
    """Whether `code` is among the codes, or there are none."""
    cdef Py_ssize_t n
    for n in range(count):
        if codes[n] == code:
            return True
    return count == 0


cdef inline bint is_full(
    const Limits *limits, const Scan *scan, int64_t messages, int64_t more, int32_t size, bint in_memory,
    int64_t max_count, int64_t max_bytes,
) noexcept nogil:
    """Whether a response with `messages` is full for `more` in one record; the first record always fits."""
    if messages == 0:
        return False
    if messages + more > max_count or scan.bytes + size > max_bytes:
        return True
    if in_memory:
        return scan.bytes + size > limits.bytes_in_memory or messages > limits.count_in_memory - 1
    return scan.bytes + size > limits.bytes_on_disk or messages > limits.count_on_disk - 1


cdef inline const uint8_t *record_bytes(
    CommitLog log, ConsumeQueue queue, int64_t entry, int64_t offset, int64_t physical, int32_t *size
) except? NULL:
    """The record that an entry points to, with its queue offset; a wrong entry is repaired if its record is
    nearby. NULL without an exception if the record is deleted or damaged. OSError."""
    cdef int64_t available = 0
    cdef const uint8_t *at
    if size[0] == PRE_BLANK_SIZE or is_gone(log, queue, entry, physical):
        return NULL
    if size[0] >= RECORD_FIXED_BYTES and log.start() <= physical <= log.written - size[0]:
        at = staged_last(log, physical, size[0], log.bytes_at(physical, &available))
        if at is not NULL and size[0] <= available and get_i32(at) == size[0] and (
            get_i64(at + AT_QUEUE_OFFSET) == offset and get_i32(at + AT_QUEUE_ID) == queue.queue_id
            or is_also_for(log, queue, entry, physical)
        ) and (physical >= log.trusted or is_whole(log, queue, entry, physical)):
            return at
    log.refused += 1
    return repair_entry(log, queue, entry, size)


cdef inline const uint8_t *staged_last(
    CommitLog log, int64_t physical, int64_t size, const uint8_t *mapped
) noexcept:
    """The staged copy of a record of the last write batch, while empty_result new is staged, so that the
    pulls it wakes cause no page fault in new pages; otherwise `mapped`."""
    if (
        log.staging_bytes
        or log.staging is NULL
        or physical < log.staging_base
        or physical + size > log.written
    ):
        return mapped
    return log.staging + (physical - log.staging_base)


cdef bint is_gone(CommitLog log, ConsumeQueue queue, int64_t entry, int64_t physical) except -1:
    """Whether the entry's record was deleted with the start of the log: then so was the one before it."""
    cdef uint8_t before[ENTRY_BYTES]
    if not 0 <= physical < log.start():
        return False
    return entry <= queue.min_entry or not queue.look(entry - 1, before) or get_i64(before) < log.start()


cdef bint is_also_for(CommitLog log, ConsumeQueue queue, int64_t entry, int64_t physical) except -1:
    """Whether the record also belongs to this entry (INNER_MULTI_DISPATCH)."""
    cdef RecordView view
    cdef Properties properties
    if log.look(physical, False, &view) != RECORD_OK:
        return False
    scan_properties(&view.properties, &properties)
    return (os.fsencode(queue.topic), entry) in multi_entries(&properties)


cdef bint is_whole(CommitLog log, ConsumeQueue queue, int64_t entry, int64_t physical) except -1:
    """Full check of a record that was not read since the store was opened: damaged ones are not delivered."""
    cdef RecordView view
    if log.look(physical, True, &view) != RECORD_OK:
        return False
    return matches(log, queue, entry, False) or is_also_for(log, queue, entry, physical)


cdef bytes copied(const Scan *scan):
    cdef bytes body = PyBytes_FromStringAndSize(NULL, scan.bytes)
    copy_picked(scan, <uint8_t *> PyBytes_AS_STRING(body))
    return body


cdef void copy_picked(const Scan *scan, uint8_t *to) noexcept nogil:
    """Copy the records; adjacent ones with one call."""
    cdef int64_t n = 0, size
    cdef const uint8_t *at
    while n < scan.count:
        at, size = scan.picked[n].at, 0
        while n < scan.count and scan.picked[n].at == at + size:
            size += scan.picked[n].size
            n += 1
        copy_far(to, at, size)
        to += size
