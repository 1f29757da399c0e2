"""Finds gaps in the log and fills them (see log_salvage.pxd). Knows no queue."""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memchr, memset

from firearrow._native.base.endian cimport get_i32, get_i64
from firearrow._native.store.log.commit_log cimport blank_record
from firearrow._native.base.hash cimport body_crc
from firearrow._native.store.files.layout cimport (
    AT_MAGIC, AT_PHYSICAL_OFFSET, MAGIC_V1, MAGIC_V2, RECORD_FIXED_BYTES, SYS_ROLLBACK,
)
from firearrow._native.store.log.record cimport Message, RECORD_OK, Text, encode_record
from firearrow._native.store.files.segment cimport Segment

FILLER_TOPIC = b"DAMAGED"
cdef enum:
    MAGIC_FIRST = 0xDA
    HEAD_BYTES = 36                       # up to and including a record's own offset
    FILLER_BYTES_MAX = 1 << 20
    NO_QUEUE_OFFSET = -1                  # matches no entry


# ---- find the next valid record ----

cdef int64_t next_valid_record(CommitLog log, int64_t at, RecordView *view) except -2:
    """The first valid record after the invalid one at `at`, in its segment or a later one; -1 if there is
    none. OSError."""
    cdef Segment segment
    cdef int64_t found, start = at + RECORD_FIXED_BYTES
    for segment in log.segments:
        if segment.base + segment.size <= start:
            continue
        found = find_in_segment(log, segment, max(start, segment.base), view)
        if found >= 0:
            return found
    return -1


cdef int64_t find_in_segment(CommitLog log, Segment segment, int64_t start, RecordView *view) except -2:
    cdef int64_t data, hole, found
    cdef int64_t position = start - segment.base
    number = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while position < segment.size:
            try:
                data = os.lseek(number, position, os.SEEK_DATA)
            except OSError:  # only a hole is left
                return -1
            hole = min(os.lseek(number, data, os.SEEK_HOLE), segment.size)
            found = find_between(log, segment, data, hole, view)
            if found >= 0:
                return found
            position = hole
    finally:
        os.close(number)
    return -1


cdef int64_t find_between(
    CommitLog log, Segment segment, int64_t low, int64_t high, RecordView *view
) except -2:
    """The first valid record in one data range of a sparse file; -1 if there is none. Reads nothing past it:
    on a full tmpfs that would be SIGBUS."""
    cdef int64_t at = low
    while True:
        segment.ensure_mapped(False)
        at = next_candidate(segment.map, segment.base, at, high - HEAD_BYTES)
        if at < 0:
            return -1
        if log.look(segment.base + at, True, view) == RECORD_OK:
            return segment.base + at
        at += 1


cdef int64_t next_candidate(const uint8_t *map, int64_t base, int64_t low, int64_t high) noexcept nogil:
    """The first position with the magic number of a record and its own offset; -1 if there is none."""
    cdef const uint8_t *at
    cdef int64_t position = low
    cdef int32_t magic
    while position < high:
        at = <const uint8_t *> memchr(map + position + AT_MAGIC, MAGIC_FIRST, high - position)
        if at is NULL:
            return -1
        position = at - AT_MAGIC - map
        magic = get_i32(at)
        if (
            (magic == MAGIC_V1 or magic == MAGIC_V2)
            and get_i64(map + position + AT_PHYSICAL_OFFSET) == base + position
        ):
            return position
        position += 1
    return -1


# ---- fill the gap ----

cdef int fill_gap(CommitLog log, int64_t at, int64_t end, int64_t store_time, object repair_log) except -1:
    """Fill the range from `at` to the valid record at `end`; `repair_log` reports it and keeps the old bytes.
    OSError."""
    cdef Segment segment
    cdef int64_t start, until
    copies = []
    for segment in log.segments:
        start, until = max(at, segment.base), min(end, segment.base + segment.size)
        if start >= until:
            continue
        copy = repair_log.save_copy(segment.path, start - segment.base, until - start)
        if copy is not None:
            copies.append(copy)
        if until == segment.base + segment.size:
            write(segment, start, blank_record(until - start))
        else:
            fill(segment, start, until, store_time)
    kept = f", a copy is in {', '.join(copies)}" if copies else ""
    repair_log.record(
        f"{log.folder} is damaged from {at} to {end}: the messages in these {end - at} bytes are lost{kept}"
    )
    return 0


cdef int fill(Segment segment, int64_t at, int64_t until, int64_t store_time) except -1:
    """Write filler records of at most 1 MiB; none leaves a rest that is too small for a record."""
    cdef int64_t size
    while at < until:
        size = until - at
        if size > FILLER_BYTES_MAX:
            if size - FILLER_BYTES_MAX >= RECORD_FIXED_BYTES:
                size = FILLER_BYTES_MAX
            else:
                size -= RECORD_FIXED_BYTES
        write(segment, at, filler(size, at, store_time))
        at += size
    return 0


cdef bytes filler(int64_t size, int64_t physical_offset, int64_t store_time):
    """A record of a rolled back transaction with a body of zeros."""
    cdef bytes nothing = bytes(max(size, 20)), to = PyBytes_FromStringAndSize(NULL, size)
    cdef const uint8_t *zeros = <const uint8_t *> PyBytes_AS_STRING(nothing)
    cdef bytes topic = FILLER_TOPIC[:size - RECORD_FIXED_BYTES]
    cdef Message message
    memset(&message, 0, sizeof(Message))
    message.topic = Text(at=<const uint8_t *> PyBytes_AS_STRING(topic), length=len(topic))
    message.body = Text(at=zeros, length=size - RECORD_FIXED_BYTES - len(topic))
    message.properties = Text(at=zeros, length=0)
    message.born_host = message.store_host = Text(at=zeros, length=8)
    message.crc = body_crc(zeros, message.body.length)
    message.sys_flag = SYS_ROLLBACK
    message.queue_offset = NO_QUEUE_OFFSET
    message.physical_offset = physical_offset
    message.born_time = message.store_time = store_time
    encode_record(&message, size, <uint8_t *> PyBytes_AS_STRING(to))
    return to


cdef int write(Segment segment, int64_t at, bytes data) except -1:
    """Write and sync. OSError."""
    cdef int status
    segment.open_file(False, True)
    status = segment.write_at(at - segment.base, <const uint8_t *> PyBytes_AS_STRING(data), len(data))
    if status == 0:
        status = segment.sync_data()
    if status < 0:
        raise OSError(-status, os.strerror(-status), segment.path)
    return 0
