"""Truncates queues and index to what was synced before a crash (see untrusted_tail.pxd). Knows no records."""

from libc.stdint cimport int32_t, uint8_t

from firearrow._native.base.endian cimport get_i32, get_i64, put_i32, put_i64
from firearrow._native.store.log.key_index cimport IndexFile
from firearrow._native.store.files.layout cimport (
    ENTRY_AT_SIZE, ENTRY_BYTES, INDEX_AT_BEGIN_OFFSET, INDEX_AT_BEGIN_TIME, INDEX_AT_COUNT,
    INDEX_AT_END_OFFSET, INDEX_AT_END_TIME, INDEX_AT_SLOTS_USED, INDEX_ENTRY_AT_OFFSET,
    INDEX_ENTRY_AT_PREVIOUS, INDEX_ENTRY_AT_SECONDS, PRE_BLANK_SIZE,
)
from firearrow._native.store.files.segment cimport Segment, zero_tail

# ---- queues ----

cdef int truncate_unsynced_entries(ConsumeQueue queue, int64_t start) except -1:
    """Keep the entries of records below `start`; zero the rest. OSError."""
    cdef Segment file
    cdef int64_t low, high, middle
    if not queue.files:
        return 0
    file = queue.files[-1]
    low, high = queue.min_entry, (file.base + file.size) // queue.entry_bytes
    queue.end_entry = high
    while low < high:
        middle = (low + high) // 2
        if is_below(queue, middle, start) >= 0:
            low = middle + 1
        else:
            high = middle
    while low > queue.min_entry and not is_ordered(queue, low - 1, start):
        low -= 1
    end_at(queue, low)
    return 0


cdef int64_t is_below(ConsumeQueue queue, int64_t entry, int64_t start) except -2:
    """Offset of the entry's record if it is below `start`, 0 for a blank; otherwise -1."""
    cdef uint8_t at[ENTRY_BYTES]
    if not queue.look(entry, at) or get_i32(at + ENTRY_AT_SIZE) <= 0 or get_i64(at) < 0:
        return -1
    if get_i32(at + ENTRY_AT_SIZE) == PRE_BLANK_SIZE:
        return 0
    return get_i64(at) if get_i64(at) < start else -1


cdef bint is_ordered(ConsumeQueue queue, int64_t entry, int64_t start) except -1:
    """Whether entry and predecessor are in order: half an entry, at the edge of a sector, may look like one
    of a lower record."""
    cdef int64_t at = is_below(queue, entry, start)
    cdef int64_t before = is_below(queue, entry - 1, start) if entry > queue.min_entry else 0
    return at >= 0 and before >= 0 and (before < at or at == 0)


cdef int end_at(ConsumeQueue queue, int64_t entry) except -1:
    """Zero the entries from `entry` on. A file at offset 0 is kept, although it is empty then: on a full disk
    its blocks would be gone, and the entries that the log has could not be added again."""
    cdef Segment file
    while (
        queue.files
        and (<Segment> queue.files[-1]).base >= entry * queue.entry_bytes
        and (len(queue.files) > 1 or (entry == queue.min_entry and entry > 0))
    ):
        file = queue.files.pop()
        file.discard()
        queue.named = True
    if queue.files:
        file = queue.files[-1]
        file.open_file(False, True)
        try:
            zero_tail(file, entry * queue.entry_bytes - file.base)
        finally:
            file.release_fd()
        file.reserved = entry * queue.entry_bytes - file.base
        queue.tail_until = entry
    else:
        entry = queue.min_entry = 0
    queue.end_entry = queue.next_entry = queue.visible = queue.synced_entry = entry
    queue.max_physical = queue.last_end()
    queue.mark_dirty()
    return 0


# ---- index ----

cdef int64_t truncate_unsynced_keys(KeyIndex index, int64_t start) except -2:
    """Remove keys of records at or above `start`; returns from where keys must be added again: `start` or
    below. OSError."""
    cdef IndexFile file
    cdef int64_t number
    while index.files:
        file = index.files[-1]
        number = trusted_keys(file, start)
        if number > 1:
            remove_keys_from(file, number)
            index.dirty = True
            return start if not index.lost_keys else get_i64(file.entry(number - 1) + INDEX_ENTRY_AT_OFFSET)
        if file.count() <= 1 or not 0 <= get_i64(file.file.map + INDEX_AT_BEGIN_OFFSET):
            index.lost_keys = True  # unreadable header: it may also have held synced keys
        index.files.pop()
        index.discard(file)
    return 0 if index.lost_keys else start


cdef int64_t trusted_keys(IndexFile file, int64_t start) except -1:
    """The number after the last entry that is certainly of a record below `start`; 1 if there is none."""
    cdef int64_t low = 1, high = file.count(), middle
    while low < high:
        middle = (low + high) // 2
        if key_below(file, middle, start) >= 0:
            low = middle + 1
        else:
            high = middle
    while low > 1 and not key_is_ordered(file, low - 1, start):
        low -= 1
    return low


cdef int64_t key_below(IndexFile file, int64_t number, int64_t start) noexcept:
    """Offset of an entry's record if it is below `start`; otherwise, and for an unwritten entry, -1."""
    cdef const uint8_t *at = file.entry(number)
    if get_i32(at) == 0 and get_i64(at + INDEX_ENTRY_AT_OFFSET) == 0 and get_i64(at + 12) == 0:
        return -1
    if (
        get_i32(at) < 0
        or not 0 <= get_i64(at + INDEX_ENTRY_AT_OFFSET) < start
        or not 0 <= get_i32(at + INDEX_ENTRY_AT_PREVIOUS) < number
    ):
        return -1
    return get_i64(at + INDEX_ENTRY_AT_OFFSET)


cdef bint key_is_ordered(IndexFile file, int64_t number, int64_t start) noexcept:
    cdef int64_t at = key_below(file, number, start)
    cdef int64_t before = key_below(file, number - 1, start) if number > 1 else 0
    return at >= 0 and 0 <= before <= at


cdef int remove_keys_from(IndexFile file, int64_t number) except -1:
    """Remove the entries from `number` on: slots that point to them get the newest earlier entry, the header
    is updated."""
    cdef int64_t slot, older, missing = 0, used = 0
    cdef uint8_t *header = file.file.map
    cdef uint8_t *at
    for slot in range(file.slots):
        at = slot_at(file, slot)
        if not 0 <= get_i32(at) < number:
            put_i32(at, -1)
            missing += 1
        elif get_i32(at) > 0:
            used += 1
    older = number - 1
    while missing > 0 and older > 0:
        at = file.slot(get_i32(file.entry(older)))
        if get_i32(at) < 0:
            put_i32(at, <int32_t> older)
            missing -= 1
            used += 1
        older -= 1
    if missing > 0:
        for slot in range(file.slots):
            at = slot_at(file, slot)
            if get_i32(at) < 0:
                put_i32(at, 0)
    at = file.entry(1)
    put_i64(header + INDEX_AT_BEGIN_OFFSET, get_i64(at + INDEX_ENTRY_AT_OFFSET))
    at = file.entry(number - 1)
    put_i64(header + INDEX_AT_END_OFFSET, get_i64(at + INDEX_ENTRY_AT_OFFSET))
    put_i64(
        header + INDEX_AT_END_TIME,
        get_i64(header + INDEX_AT_BEGIN_TIME) + get_i32(at + INDEX_ENTRY_AT_SECONDS) * <int64_t> 1000,
    )
    put_i32(header + INDEX_AT_SLOTS_USED, <int32_t> used)
    put_i32(header + INDEX_AT_COUNT, <int32_t> number)
    file.dirty = True
    return 0


cdef inline uint8_t *slot_at(IndexFile file, int64_t slot) noexcept:
    return file.slot(<int32_t> slot)
