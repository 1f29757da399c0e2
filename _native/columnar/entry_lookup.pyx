"""Finds the records that consume queue entries point to (see entry_lookup.pxd)."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from firearrow._native.base.endian cimport get_i32, get_i64
from firearrow._native.columnar.record_spans cimport (
    HEADS_AHEAD, STRINGS_AHEAD, Spans, of_window, prefetch_head, prefetch_strings,
)
from firearrow._native.store.files.layout cimport ENTRY_AT_SIZE, ENTRY_AT_TAGS, ENTRY_BYTES
from firearrow._native.store.log.record cimport RECORD_OK, RecordView, check_record

from firearrow._native.store.log.record import RecordError

# type: from firearrow._native.columnar.record_spans import Window


cdef enum:
    LINEAR_CODES_MAX = 8          # up to this many tags codes are compared one by one
    ADDRESSES_BELOW = -2147483648  # a tags code below is an address in consumequeue_ext

cdef int64_t SIZE_MAX = 0x7FFFFFFF
cdef int64_t NO_LIMIT = 0x7FFFFFFFFFFFFFFF


def from_entries(
    window,  # type: Window
    entries,  # type: Window
    *,
    int64_t base,
    int64_t first,
    frozenset tags=None,  # type: frozenset[int] | None
    int64_t bytes_max=NO_LIMIT,
    tuple queue=None,  # type: tuple[str, int] | None
    bint is_lmq=False,
):
    # type: (...) -> tuple[Spans, int]
    """Find the records of consume queue entries (20 bytes each, big-endian): (records, entries used).

    `first`: queue offset of the first entry. Stops at an entry outside the window [base, base + length),
    at `bytes_max` bytes of records, and before an entry that points to no whole record of its size,
    position and queue offset. RecordError: that is the first entry; the message names its queue offset.

    Entries whose tags code is not in `tags` are skipped without a read of the log. A code is Java's hash
    of the tag; an address into an extension file states nothing about the tag.

    `queue`: topic and number that the records must hold. `is_lmq`: entries of an LMQ (%LMQ%…), whose
    records hold the queue and the queue offset of another queue.
    """
    cdef Spans spans = of_window(window, base)
    cdef const uint8_t[::1] rows = memoryview(entries).cast("B")
    cdef Py_ssize_t count = rows.shape[0] // ENTRY_BYTES, used = 0
    cdef EntryQuery query
    cdef bytes topic = b"" if queue is None else queue[0].encode("utf-8", "surrogateescape")
    query.codes = NULL
    query.is_lmq = is_lmq
    query.topic = NULL if queue is None else <const uint8_t *> <const char *> topic
    query.topic_bytes = len(topic)
    query.queue_id = -1 if queue is None else queue[1]
    if count == 0:
        return spans, 0
    try:
        if tags is not None:
            fill_codes(&query, tags)
        with nogil:
            count = choose(spans, &rows[0], count, &query, bytes_max)
            used = look_up(spans, &rows[0], count, first, &query)
    finally:
        free(<void *> query.codes)
    if used < 0:
        raise RecordError(f"queue offset {first}: no such record at {get_i64(&rows[0])}")
    return spans, used


cdef int fill_codes(EntryQuery *query, frozenset tags) except -1:
    cdef Py_ssize_t n = 0
    cdef int64_t *codes = <int64_t *> malloc(max(1, len(tags)) * sizeof(int64_t))
    if codes is NULL:
        raise MemoryError()
    query.codes = codes
    for code in sorted(tags):
        codes[n] = code
        n += 1
    query.code_count = n
    return 0


cdef bint is_selected(int64_t code, const EntryQuery *query) noexcept nogil:
    cdef Py_ssize_t low = 0, high = query.code_count, middle
    if code < ADDRESSES_BELOW:
        return True
    if high <= LINEAR_CODES_MAX:
        for low in range(high):
            if query.codes[low] == code:
                return True
        return False
    while low < high:
        middle = (low + high) // 2
        if query.codes[middle] < code:
            low = middle + 1
        else:
            high = middle
    return low < query.code_count and query.codes[low] == code


cdef Py_ssize_t choose(
    Spans spans, const uint8_t *rows, Py_ssize_t count, const EntryQuery *query, int64_t bytes_max
) except -1 nogil:
    """Returns how many entries reach `bytes_max` of records; `positions` gets the numbers of the selected
    ones."""
    cdef const uint8_t *entry
    cdef Py_ssize_t index
    for index in range(count):
        entry = rows + index * ENTRY_BYTES
        if query.codes is NULL or is_selected(get_i64(entry + ENTRY_AT_TAGS), query):
            if spans.bytes >= bytes_max:
                return index
            spans.add(index, max(0, get_i32(entry + ENTRY_AT_SIZE)))
    return count


cdef Py_ssize_t look_up(
    Spans spans, const uint8_t *rows, Py_ssize_t count, int64_t first, const EntryQuery *query
) noexcept nogil:
    """Returns the entries used; -1: the first one is wrong.

    Replaces the numbers of entries (see choose), from the first on, by the positions of their records.
    """
    cdef Py_ssize_t selected = spans.count, index, done
    cdef int64_t *numbers = spans.positions
    cdef const uint8_t *entry
    cdef int64_t position
    spans.count = spans.bytes = 0
    for done in range(selected):
        if done + HEADS_AHEAD < selected:
            prefetch_entry(spans, rows, numbers[done + HEADS_AHEAD], numbers[done + STRINGS_AHEAD])
        index = numbers[done]
        entry = rows + index * ENTRY_BYTES
        position = get_i64(entry) - spans.base
        if position < 0 or position >= spans.length:
            return index
        if not is_record(spans, position, get_i32(entry + ENTRY_AT_SIZE), first + index, query):
            return index if index else -1
        spans.positions[done] = position
        spans.count = done + 1
        spans.bytes += get_i32(entry + ENTRY_AT_SIZE)
    return count


cdef inline void prefetch_entry(Spans spans, const uint8_t *rows, int64_t far, int64_t near) noexcept nogil:
    cdef int64_t position = get_i64(rows + far * ENTRY_BYTES) - spans.base
    if 0 <= position < spans.length:
        prefetch_head(spans.data + position)
    prefetch_strings(spans.data, spans.length, get_i64(rows + near * ENTRY_BYTES) - spans.base)


cdef inline bint is_record(
    Spans spans, int64_t position, int32_t size, int64_t queue_offset, const EntryQuery *query
) noexcept nogil:
    cdef RecordView view
    if (
        check_record(spans.data + position, spans.length - position, SIZE_MAX, False, &view) != RECORD_OK
        or view.size != size
        or view.physical_offset != spans.base + position
    ):
        return False
    if query.is_lmq:
        return True
    return view.queue_offset == queue_offset and (
        query.topic is NULL
        or (
            view.queue_id == query.queue_id
            and view.topic.length == query.topic_bytes
            and memcmp(view.topic.at, query.topic, query.topic_bytes) == 0
        )
    )
