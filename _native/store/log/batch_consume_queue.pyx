"""Entries and offsets of batch queues (see batch_consume_queue.pxd)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp

from firearrow._native.base.endian cimport get_i16, get_i32, get_i64, put_i16, put_i32, put_i64
from firearrow._native.store.files.layout cimport (
    BATCH_AT_BASE, BATCH_AT_COMPACTED, BATCH_AT_COUNT, BATCH_AT_RESERVED, BATCH_AT_STORE_TIME,
    BATCH_COUNT_MAX, ENTRY_AT_SIZE, ENTRY_AT_TAGS, PRE_BLANK_SIZE, SYS_INNER_BATCH,
)
from firearrow._native.store.files.segment cimport Segment
from firearrow._native.store.log.record cimport PropertyScan, begin, ends_property, has_value

from firearrow._native.base.durable_files import fsync_dir

cdef enum:
    DIGITS_MAX = 18


cdef const uint8_t *memory_of(ConsumeQueue queue, int64_t entry) except? NULL:
    """Borrowed memory of an entry, also of a reserved one; NULL without an exception if it does not exist."""
    cdef Segment file = queue.file_of(entry) if entry < queue.next_entry else None
    if file is None:
        return NULL
    queue.ensure_mapped(file)
    return file.map + (entry * queue.entry_bytes - file.base)


cdef int64_t base_at(ConsumeQueue queue, int64_t entry) except -1:
    cdef const uint8_t *at = memory_of(queue, entry)
    if at is not NULL:
        return max(get_i64(at + BATCH_AT_BASE), <int64_t> 0)
    at = memory_of(queue, entry - 1)
    if at is NULL:
        return 0
    return max(get_i64(at + BATCH_AT_BASE) + get_i16(at + BATCH_AT_COUNT), <int64_t> 0)


cdef int64_t count_at(ConsumeQueue queue, int64_t entry) except -1:
    """How many messages an entry is of; 0: it does not exist. OSError."""
    cdef const uint8_t *at = memory_of(queue, entry)
    return 0 if at is NULL else max(<int64_t> get_i16(at + BATCH_AT_COUNT), <int64_t> 0)


cdef int64_t find_entry(ConsumeQueue queue, int64_t offset) except -2:
    """The first entry that ends after the offset."""
    if offset < first_offset(queue):
        return -1
    return search(queue, queue.min_entry, queue.end_entry, offset)


cdef int64_t search(ConsumeQueue queue, int64_t low, int64_t high, int64_t offset) except -1:
    """By binary search: the first of the entries [low, high) that ends after the offset; `high`: none."""
    cdef int64_t middle
    cdef const uint8_t *at
    while low < high:
        middle = (low + high) // 2
        at = memory_of(queue, middle)
        if at is not NULL and get_i64(at + BATCH_AT_BASE) + get_i16(at + BATCH_AT_COUNT) > offset:
            high = middle
        else:
            low = middle + 1
    return low


cdef int64_t store_time_of(ConsumeQueue queue, int64_t entry) except -2:
    """Store time (ms) of the entry's record; -1 if it does not exist."""
    cdef const uint8_t *at = memory_of(queue, entry) if queue.min_entry <= entry < queue.visible else NULL
    return -1 if at is NULL else max(get_i64(at + BATCH_AT_STORE_TIME), <int64_t> -1)


cdef int64_t queue_store_time(CommitLog log, ConsumeQueue queue, int64_t offset) except -2:
    """Store time (ms) of a message of either kind of queue; -1 if it does not exist."""
    cdef int64_t entry
    if not is_batch(queue):
        return queue.store_time(log, offset)
    entry = find_entry(queue, offset)
    return store_time_of(queue, entry) if entry >= 0 and base_at(queue, entry) <= offset else -1


cdef int64_t entry_by_time(ConsumeQueue queue, int64_t timestamp_ms, bint upper) except -1:
    """The first entry stored at or after a time (`upper`: the last one at or before it), within the queue."""
    cdef int64_t low = queue.min_entry, high = queue.visible, middle, stored
    while low < high:
        middle = (low + high) // 2
        stored = store_time_of(queue, middle)
        if stored < timestamp_ms or (upper and stored == timestamp_ms):
            low = middle + 1
        else:
            high = middle
    return max(low - 1, queue.min_entry) if upper else low


cdef void put_batch(uint8_t *entry, int64_t store_time, int64_t base, int64_t count) noexcept nogil:
    """Write what a batch queue's entry has after the first 20 bytes."""
    put_i64(entry + BATCH_AT_STORE_TIME, store_time)
    put_i64(entry + BATCH_AT_BASE, base)
    put_i16(entry + BATCH_AT_COUNT, <short> count)
    put_i32(entry + BATCH_AT_COMPACTED, -1)
    put_i32(entry + BATCH_AT_RESERVED, 0)


cdef int copy_entries(CommitLog log, ConsumeQueue plain, ConsumeQueue batch) except -1:
    """Give an empty batch queue the entries of a plain one, and sync it: the topic was found to have batch
    queues after messages had been stored. OSError."""
    cdef int64_t entry
    cdef const uint8_t *at
    cdef list changed = batch.changed
    batch.changed = None                      # it is synced here, before the plain queue is deleted
    for entry in range(plain.min_entry, plain.end_entry):
        at = plain.entry_at(entry)
        if at is NULL or get_i32(at + ENTRY_AT_SIZE) == PRE_BLANK_SIZE or get_i64(at) < log.start():
            continue
        put_batch(batch.slot_at(batch.end_entry), max(plain.store_time(log, entry), <int64_t> 0), entry, 1)
        batch.append(get_i64(at), get_i32(at + ENTRY_AT_SIZE), get_i64(at + ENTRY_AT_TAGS))
        batch.visible += entry < plain.visible
    if batch.sync():
        for folder in batch.folders():
            fsync_dir(folder)
    batch.changed = changed
    return 0


cdef int64_t inner_number(const Text *properties, bytes name) noexcept:
    """The value of a property that is a whole number; -1 if it is missing or something else."""
    cdef const uint8_t *at = properties.at
    cdef const uint8_t *end = properties.at + properties.length
    cdef PropertyScan scan
    cdef int64_t found = -1
    begin(&scan, at)
    while at <= end:
        if at == end or ends_property(&scan, at):
            if (
                has_value(&scan, at) and scan.value - 1 - scan.name == PyBytes_GET_SIZE(name)
                and memcmp(scan.name, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)) == 0
            ):
                found = number_in(scan.value, at)
            begin(&scan, at + 1)
        at += 1
    return found


cdef int64_t number_in(const uint8_t *at, const uint8_t *end) noexcept nogil:
    cdef int64_t value = 0
    if not 0 < end - at <= DIGITS_MAX:
        return -1
    while at < end:
        if not c'0' <= at[0] <= c'9':
            return -1
        value = 10 * value + at[0] - c'0'
        at += 1
    return value


cdef int64_t messages_of(const RecordView *view) noexcept:
    """How many messages a record of a batch queue has; 0: it is an inner batch whose numbers are wrong."""
    cdef int64_t count
    if not view.sys_flag & SYS_INNER_BATCH:
        return 1
    count = inner_number(&view.properties, b"INNER_NUM")
    if not 0 < count <= BATCH_COUNT_MAX or inner_number(&view.properties, b"INNER_BASE") != view.queue_offset:
        return 0
    return count
