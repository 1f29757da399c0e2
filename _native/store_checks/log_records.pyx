"""Survey: checks the records of a range of the log in one pass (see log_records.pxd)."""

from cpython.mem cimport PyMem_Free
from libc.string cimport memchr, memcmp, memset

from firearrow._native.base.memory cimport prefetch_read
from firearrow._native.base.endian cimport get_i32, get_i64
from firearrow._native.store_checks.raw_findings cimport BAD_CRC, NO_ENTRY, WRONG_ENTRY, WRONG_TAGS
from firearrow._native.columnar.record_spans cimport CACHE_LINE
from firearrow._native.base.hash cimport body_crc, index_hash, java_hash_more
from firearrow._native.store.log.key_index cimport keys_of
from firearrow._native.store.files.layout cimport (
    AT_MAGIC, AT_SIZE, ENTRY_AT_SIZE, ENTRY_AT_TAGS, ENTRY_BYTES, PRE_BLANK_SIZE, SYS_PREPARED, SYS_ROLLBACK,
    SYS_TRANSACTION,
)
from firearrow._native.store.log.record cimport (
    RECORD_BAD_MAGIC, RECORD_BAD_SIZE, RECORD_BLANK, RECORD_CUT, RECORD_OK, check_record, scan_properties,
)
from firearrow._native.base.vector cimport grown

from collections import namedtuple

from firearrow._native.columnar.record_spans import End

# type: class SurveyedQueue(NamedTuple):
# type:     """A queue as the records of a range describe it. `low`, `high`: offsets of entries to be matched,
# type:     -1: none."""
# type:
# type:     number: int
# type:     topic: bytes
# type:     queue_id: int
# type:     messages: int
# type:     bytes: int
# type:     first_ms: int
# type:     last_ms: int
# type:     fitting: int
# type:     """Settled records whose entry points to them."""
# type:     low: int
# type:     high: int
# type:     is_lmq: bool
# type:     """Has entries for records of other queues, by INNER_MULTI_DISPATCH, and no messages itself."""


cdef int64_t SIZE_MAX = 0x7FFFFFFF
cdef int64_t HOUR_MS = 3600000
cdef int64_t EXT_ADDRESS_MAX = -2147483649   # tags codes at or below are addresses of consumequeue_ext
cdef enum:
    DIGITS_MAX = 18
    PORT_BYTES = 4

SurveyedQueue = namedtuple(
    "SurveyedQueue", "number topic queue_id messages bytes first_ms last_ms fitting low high is_lmq"
)
TORN = {  # type: dict[int, str]
    0: "its physical offset is not its position in the log",
    RECORD_CUT: "it is truncated",
    RECORD_BAD_MAGIC: "its magic number is not that of a record",
    RECORD_BAD_SIZE: "its lengths do not add up",
}
"""What `Survey.torn` means, in words."""


cdef inline bint begins(
    const uint8_t *at, Py_ssize_t length, const char *prefix, Py_ssize_t prefix_length
) noexcept nogil:
    return length >= prefix_length and memcmp(at, prefix, prefix_length) == 0


cdef inline bint is_schedule(const RecordView *view) noexcept nogil:
    return view.topic.length == 19 and begins(view.topic.at, 19, b"SCHEDULE_TOPIC_XXXX", 19)


cdef bint dispatches_to_lmq(const RecordView *view) noexcept nogil:
    """Retries, dead letters, system topics and what is delayed are not dispatched to LMQs."""
    return not (
        begins(view.topic.at, view.topic.length, b"%RETRY%", 7)
        or begins(view.topic.at, view.topic.length, b"%DLQ%", 5)
        or begins(view.topic.at, view.topic.length, b"rmq_sys_", 8) or is_schedule(view)
    )


cdef int64_t digits(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    """The decimal number, -1: it is not a number."""
    cdef int64_t value = 0
    cdef Py_ssize_t n
    if not 0 < length <= DIGITS_MAX:
        return -1
    for n in range(length):
        if not c'0' <= at[n] <= c'9':
            return -1
        value = value * 10 + at[n] - c'0'
    return value


cdef inline const uint8_t *part_end(const uint8_t *at, const uint8_t *end, int separator) noexcept nogil:
    cdef const uint8_t *found = <const uint8_t *> memchr(at, separator, end - at) if at < end else NULL
    return end if found is NULL else found


cdef class Survey:
    """Checks and counts the records of a range of the log; see log_records.pxd. One thread."""

    def __cinit__(
        self, *, bint check_crc=True, bint with_keys=True, delays_ms=(),
        Py_ssize_t names_max=8192, Py_ssize_t rows_max=1 << 20, Py_ssize_t keys_max=1 << 21,
        Py_ssize_t findings_max=1000, deletions=(),
    ):
        # type: (bool, bool, Sequence[int], int, int, int, int, Mapping[bytes, tuple[int, int]]) -> None
        """`delays_ms`: of the delay levels, from 1 on; empty: not known, so that any time of delivery
        counts that is not before the record was stored. `deletions`: topic → end of the log and time (ms)
        when it was deleted."""
        self.check_crc, self.with_keys = check_crc, with_keys
        self.delays_ms = tuple(delays_ms)
        self.deletions = dict(deletions)
        self.findings = RawFindings(findings_max)
        self.tags, self.hosts = NameCounters(names_max), NameCounters(names_max)
        self.hours = NameCounters(names_max)
        self.topics, self.queue_names = NameCounters(), NameCounters()
        self.rows_max, self.keys_max = max(1, rows_max), max(1, keys_max)

    def __dealloc__(self):
        cdef Py_ssize_t n
        for n in range(self.queues_capacity):
            PyMem_Free(self.known[n].rows)
        PyMem_Free(self.known)
        PyMem_Free(self.keys)

    def walk(self, window not None, int64_t start, int64_t stop, *, int64_t base):
        # type: (bytes | bytearray | memoryview | mmap, int, int, int) -> tuple[int, End]
        """Check the records from position `start` that begin before `stop`: (next position, why it ended).

        End.LIMIT before `stop`: `rows_max` or `keys_max` was reached; match, settle and `clear` first.
        End.TORN: `torn` states why. A record with a bad CRC is a finding, and the walk continues.
        """
        cdef const uint8_t[::1] data_view = memoryview(window).cast("B")
        cdef int64_t length = data_view.shape[0]
        cdef int64_t at = start
        cdef const uint8_t *data = &data_view[0] if length else NULL
        cdef RecordView view
        cdef int state
        if start < 0:
            raise ValueError(f"a walk cannot start at {start}")
        stop = min(stop, length)
        while at < stop and self.rows_count < self.rows_max and self.keys_count < self.keys_max:
            state = check_record(data + at, length - at, SIZE_MAX, False, &view)
            if state == RECORD_BLANK:
                return at + view.size, End.BLANK
            if state != RECORD_OK or view.physical_offset != base + at:
                if (
                    length - at < 8
                    or (get_i32(data + at + AT_SIZE) == 0 and get_i32(data + at + AT_MAGIC) == 0)
                ):
                    return at, End.UNWRITTEN
                self.torn = 0 if state == RECORD_OK else state
                return at, End.TORN
            if at + 2 * <int64_t> view.size < length:
                prefetch_read(data + at + view.size)
                prefetch_read(data + at + 2 * <int64_t> view.size - CACHE_LINE)
            if self.check_crc and view.body.length and body_crc(view.body.at, view.body.length) != view.crc:
                self.findings.add(BAD_CRC, -1, self.records, view.physical_offset, view.size, view.crc)
            self.add_record(&view)
            at += view.size
        return at, End.LIMIT

    cdef int add_record(self, const RecordView *view) except -1:
        """Count a record and note the entries and keys that must exist for it."""
        cdef Properties properties
        cdef Py_ssize_t number
        cdef QueueRows *queue
        cdef int transaction = view.sys_flag & SYS_TRANSACTION
        scan_properties(&view.properties, &properties)
        number = self.queue_of(view.topic.at, view.topic.length, view.queue_id)
        queue = &self.known[number]
        if queue.messages == 0 or view.store_time < queue.first_ms:
            queue.first_ms = view.store_time
        queue.last_ms = max(queue.last_ms, view.store_time)
        queue.messages += 1
        queue.bytes += view.size
        self.records += 1
        self.log_bytes += view.size
        if properties.tags.length:
            self.tags.record(queue.topic, properties.tags.at, properties.tags.length, view.size)
        self.hosts.record(0, view.born_host.at, view.born_host.length - PORT_BYTES, view.size)
        self.hours.record(view.store_time // HOUR_MS, view.topic.at, 0, view.size)  # no name but the hour
        if transaction == SYS_PREPARED or transaction == SYS_ROLLBACK:
            self.half += 1
        else:
            self.add_entries(number, view, &properties)
        if self.with_keys and transaction != SYS_ROLLBACK:
            self.add_keys(self.known[number].topic_hash, view, &properties)
        return 0

    cdef int add_entries(
        self, Py_ssize_t number, const RecordView *view, const Properties *properties
    ) except -1:
        cdef int64_t code = self.code_of(view, properties)
        self.add_row(number, view, view.queue_offset, code)
        if properties.multi_offsets.length and properties.multi_names.length and dispatches_to_lmq(view):
            self.add_lmq_entries(view, properties, code)
        return 0

    cdef int add_lmq_entries(
        self, const RecordView *view, const Properties *properties, int64_t code,
    ) except -1:
        """INNER_MULTI_DISPATCH names queues, INNER_MULTI_QUEUE_OFFSET the entry in each."""
        cdef const uint8_t *name = properties.multi_names.at
        cdef const uint8_t *names_end = name + properties.multi_names.length
        cdef const uint8_t *entry = properties.multi_offsets.at
        cdef const uint8_t *entries_end = entry + properties.multi_offsets.length
        cdef const uint8_t *name_end
        cdef const uint8_t *entry_end
        cdef int64_t queue_offset
        cdef Py_ssize_t number
        while name < names_end and entry < entries_end:
            name_end, entry_end = part_end(name, names_end, 44), part_end(entry, entries_end, 44)
            queue_offset = digits(entry, entry_end - entry)
            if queue_offset >= 0 and name < name_end:
                number = self.queue_of(
                    name, name_end - name, 0 if begins(name, name_end - name, b"%LMQ%", 5) else view.queue_id
                )
                self.known[number].is_lmq = True
                self.add_row(number, view, queue_offset, code)
            name, entry = name_end + 1, entry_end + 1
        return 0

    cdef int add_keys(
        self, int32_t topic_hash, const RecordView *view, const Properties *properties
    ) except -1:
        """`topic#key` of the unique key and each of KEYS, and `topic#T#tag`."""
        cdef const uint8_t *at = properties.keys.at
        cdef const uint8_t *end = at + properties.keys.length
        cdef const uint8_t *stop
        if properties.unique_key.length:
            self.add_key(
                java_hash_more(topic_hash, properties.unique_key.at, properties.unique_key.length), view,
                False,
            )
        while properties.keys.length and at < end:
            stop = part_end(at, end, 32)
            if stop > at:
                self.add_key(java_hash_more(topic_hash, at, stop - at), view, False)
            at = stop + 1
        if properties.tags.length:
            topic_hash = java_hash_more(topic_hash, b"T#", 2)
            self.add_key(java_hash_more(topic_hash, properties.tags.at, properties.tags.length), view, True)
        return 0

    cdef int add_key(self, int32_t hash, const RecordView *view, bint tag) except -1:
        cdef KeyRow *row
        self.keys = <KeyRow *> grown(self.keys, &self.keys_capacity, self.keys_count, sizeof(KeyRow))
        row = &self.keys[self.keys_count]
        row.physical_offset, row.record = view.physical_offset, self.records - 1
        row.hash, row.tag, row.found = index_hash(hash), tag, False
        self.keys_count += 1
        self.tags_expected += tag
        self.keys_expected += not tag
        return 0

    cdef int add_row(
        self, Py_ssize_t number, const RecordView *view, int64_t queue_offset, int64_t code
    ) except -1:
        cdef QueueRows *queue = &self.known[number]
        cdef Row *row
        queue.rows = <Row *> grown(queue.rows, &queue.capacity, queue.count, sizeof(Row))
        row = &queue.rows[queue.count]
        row.queue_offset, row.physical_offset = queue_offset, view.physical_offset
        row.code, row.seen = code, -1
        row.size, row.state = view.size, ROW_OPEN
        if view.physical_offset < queue.deleted_below and view.store_time <= queue.deleted_ms:
            row.state = ROW_DELETED
        if queue.count == 0 or queue_offset < queue.low:
            queue.low = queue_offset
        queue.high = queue_offset if queue.count == 0 else max(queue.high, queue_offset)
        queue.count += 1
        self.rows_count += 1
        return 0

    cdef Py_ssize_t queue_of(self, const uint8_t *topic, Py_ssize_t length, int32_t queue_id) except -1:
        cdef Py_ssize_t known = self.queue_names.count
        cdef Py_ssize_t number = self.queue_names.number_of(queue_id, topic, length)
        cdef Py_ssize_t capacity = self.queues_capacity
        cdef QueueRows *queue
        if number < known:
            return number
        self.known = <QueueRows *> grown(self.known, &self.queues_capacity, number, sizeof(QueueRows))
        if self.queues_capacity > capacity:
            memset(&self.known[capacity], 0, (self.queues_capacity - capacity) * sizeof(QueueRows))
        queue = &self.known[number]
        queue.topic = <int32_t> self.topics.number_of(0, topic, length)
        queue.queue_id = queue_id
        queue.topic_hash = keys_of(topic, length)
        queue.any_delay = not self.delays_ms and topic[:length] == b"SCHEDULE_TOPIC_XXXX"
        queue.deleted_below, queue.deleted_ms = self.deletions.get(topic[:length], (0, 0))
        return number

    cdef int64_t code_of(self, const RecordView *view, const Properties *properties) except? -1:
        """Java's hash of the whole TAGS value; in the schedule topic the time of delivery, or the time of
        storing if the delay levels are not known."""
        cdef int64_t level
        if properties.delay.length and is_schedule(view):
            level = digits(properties.delay.at, properties.delay.length)
            if level > 0 and not self.delays_ms:
                return view.store_time
            if level > 0:
                level = min(level, <int64_t> len(self.delays_ms))
                return view.store_time + (<int64_t> self.delays_ms[level - 1] if level > 0 else 1000)
        return java_hash_more(0, properties.tags.at, properties.tags.length)

    # ---- comparison with the queues ----

    def queues(self):
        # type: (...) -> list[SurveyedQueue]
        cdef Py_ssize_t n
        cdef QueueRows *queue
        found = []
        for n in range(self.queue_names.count):
            queue = &self.known[n]
            found.append(SurveyedQueue(
                n, self.queue_names.text(n), queue.queue_id, queue.messages, queue.bytes, queue.first_ms,
                queue.last_ms, queue.fitting, queue.low if queue.count else -1,
                queue.high if queue.count else -1, queue.is_lmq,
            ))
        return found

    def topic_names(self):
        # type: (...) -> list[bytes]
        return [self.topics.text(n) for n in range(self.topics.count)]

    def match(self, Py_ssize_t number, window not None, int64_t first):
        # type: (int, bytes | bytearray | memoryview | mmap, int) -> None
        """Compare rows of queue `number` with the entries of a file, the first of which has queue offset
        `first`."""
        cdef const uint8_t[::1] data_view = memoryview(window).cast("B")
        cdef int64_t entries = data_view.shape[0] // ENTRY_BYTES
        if not 0 <= number < self.queue_names.count:
            raise IndexError(f"queue {number} of {self.queue_names.count}")
        if entries:
            match_rows(&self.known[number], &data_view[0], first, entries)

    def settle(self, Py_ssize_t number, int64_t trimmed_below=0, int64_t begin=0):
        # type: (...) -> None
        """Turn rows that did not fit into findings; of records below `trimmed_below` the entries may be
        deleted.

        Records below `begin` are older than the queue: they are of a deleted topic with its name.
        """
        cdef QueueRows *queue
        cdef Py_ssize_t n
        cdef Row *row
        if not 0 <= number < self.queue_names.count:
            raise IndexError(f"queue {number} of {self.queue_names.count}")
        queue = &self.known[number]
        for n in range(queue.count):
            row = &queue.rows[n]
            queue.fitting += row.state == ROW_FITS or row.state == ROW_TAGS
            if row.state == ROW_OPEN and row.physical_offset < trimmed_below:
                continue
            if row.state == ROW_DELETED or (
                row.physical_offset < begin and (row.state == ROW_OPEN or row.state == ROW_OTHER)
            ):
                self.deleted += 1
                continue
            if row.state != ROW_FITS:
                self.findings.add(
                    NO_ENTRY if row.state == ROW_OPEN
                    else WRONG_ENTRY if row.state == ROW_OTHER else WRONG_TAGS,
                    <int> number, row.queue_offset, row.physical_offset, row.size, row.seen,
                )
        self.rows_count -= queue.count
        queue.count = 0

    def clear(self):
        # type: (...) -> None
        """Drop rows and keys; counts stay."""
        cdef Py_ssize_t n
        for n in range(self.queue_names.count):
            self.known[n].count = 0
        self.rows_count = self.keys_count = 0


cdef void match_rows(QueueRows *queue, const uint8_t *entries, int64_t first, int64_t count) noexcept nogil:
    cdef Py_ssize_t n
    cdef int64_t at, physical_offset, code
    cdef int32_t size
    cdef const uint8_t *entry
    cdef Row *row
    for n in range(queue.count):
        row = &queue.rows[n]
        at = row.queue_offset - first
        if not 0 <= at < count:
            continue
        entry = entries + at * ENTRY_BYTES
        physical_offset, size = get_i64(entry), get_i32(entry + ENTRY_AT_SIZE)
        code = get_i64(entry + ENTRY_AT_TAGS)
        if size == 0 or size == PRE_BLANK_SIZE:
            continue
        if physical_offset != row.physical_offset or size != row.size:
            if row.state != ROW_DELETED:
                row.state, row.seen = ROW_OTHER, physical_offset
        elif code != row.code and code > EXT_ADDRESS_MAX and not (queue.any_delay and code >= row.code):
            row.state, row.seen = ROW_TAGS, code
        else:
            row.state = ROW_FITS
