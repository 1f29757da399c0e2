"""Finds gaps in the log and fills them (see log_salvage.pxd). Knows no queue."""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memchr, memset

from firearrow._native.base.endian cimport get_i16, get_i32, get_i64
from firearrow._native.store.log.commit_log cimport blank_record
from firearrow._native.base.hash cimport body_crc
from firearrow._native.store.files.layout cimport (
    AT_BORN_HOST, AT_MAGIC, AT_PHYSICAL_OFFSET, AT_SYS_FLAG, HOST_V4_BYTES, HOST_V6_BYTES, MAGIC_V1, MAGIC_V2,
    RECORD_FIXED_BYTES, SYS_BORN_V6, SYS_ROLLBACK, SYS_STORE_V6,
)
from firearrow._native.store.log.record cimport Message, RECORD_BLANK, RECORD_OK, Text, encode_record
from firearrow._native.store.files.segment cimport Segment

FILLER_TOPIC = b"DAMAGED"
cdef enum:
    MAGIC_FIRST = 0xDA
    HEAD_BYTES = 36                       # up to and including a record's own offset
    FIXED_BYTES_MAX = 115                 # of a record with IPv6 addresses, before its texts
    TOPIC_BYTES_MAX = 260                 # with the lengths of the topic and the properties
    TEXTS_BYTES_MAX = 33028               # with the properties
    FILLER_BYTES_MAX = 1 << 20
    NO_QUEUE_OFFSET = -1                  # matches no entry


# ---- find the next valid record ----

cdef int64_t next_valid_record(CommitLog log, int64_t at, RecordView *view) except -2:
    """The first valid record after the invalid one at `at`, in its segment or a later one; -1 if there is
    none. OSError."""
    cdef Segment segment
    cdef int64_t found, start = stated_end(log, at)
    for segment in log.segments:
        if segment.base + segment.size <= start:
            continue
        found = find_in_segment(log, segment, max(start, segment.base), view)
        if found >= 0:
            return found
    return -1


cdef int64_t stated_end(CommitLog log, int64_t at) except -2:
    """Where the invalid record at `at` ends by its own lengths: its body may have bytes that look like
    records, as its sender chose them. If they are damaged, too: after the shortest record."""
    cdef int64_t available = 0, size, body_at, body_bytes, text_at, end
    cdef int64_t shortest = at + RECORD_FIXED_BYTES
    cdef const uint8_t *head = log.bytes_at(at, &available)
    cdef int32_t sys_flag, magic
    if head is NULL or available < FIXED_BYTES_MAX:
        return shortest
    if log.on_tmpfs and not log.has_data(at, FIXED_BYTES_MAX):
        return shortest
    size, magic, sys_flag = get_i32(head), get_i32(head + AT_MAGIC), get_i32(head + AT_SYS_FLAG)
    body_at = AT_BORN_HOST + 8 + 16
    body_at += HOST_V6_BYTES if sys_flag & SYS_BORN_V6 else HOST_V4_BYTES
    body_at += HOST_V6_BYTES if sys_flag & SYS_STORE_V6 else HOST_V4_BYTES
    body_bytes = get_i32(head + body_at - 4)
    if RECORD_FIXED_BYTES <= size <= available and (size == available or continues(log, at + size)):
        return at + size
    is_head = magic == MAGIC_V1 or magic == MAGIC_V2 or get_i64(head + AT_PHYSICAL_OFFSET) == at
    if not is_head or not 0 <= body_bytes <= available - body_at - TOPIC_BYTES_MAX:
        return shortest
    text_at = body_at + body_bytes
    if magic == MAGIC_V1 and (not log.on_tmpfs or log.has_data(at, text_at + TOPIC_BYTES_MAX)):
        end = at + text_at + texts_bytes(head + text_at, available - text_at)
        if end > at + text_at and continues(log, end):
            return end
    return at + size if 3 <= size - text_at <= TEXTS_BYTES_MAX and size <= available else shortest


cdef bint continues(CommitLog log, int64_t at) except -1:
    """Whether a record, or the rest of a segment, begins there."""
    cdef RecordView view
    cdef int state = log.look(at, True, &view)
    return state == RECORD_BLANK or (state == RECORD_OK and view.physical_offset == at)


cdef int64_t texts_bytes(const uint8_t *at, int64_t available) noexcept:
    """Bytes of topic and properties with their lengths; 0 if they are not within `available`."""
    cdef int64_t properties_at = 1 + at[0]
    if properties_at + 2 > available:
        return 0
    return properties_at + 2 + max(get_i16(at + properties_at), 0)


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
