"""LagTable: how far each group is behind, and that as lines of the scrape (see lag_table.pxd)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_RawFree, PyMem_RawMalloc, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from firearrow._native.base.text cimport put_decimal
from firearrow._native.fastpath.topic_cache cimport Count
from firearrow._native.store.log.batch_consume_queue cimport queue_store_time, visible_offset
from firearrow._native.store.log.consume_queue cimport ConsumeQueue

cdef enum:
    RETRY_CHARS = 7                       # of %RETRY%
    FIXED_MAX = 192                       # bytes of a line beside name, common labels and the row's labels
    QUEUES_MAX = 65536


def label_value(str text not None):
    # type: (...) -> bytes
    """The text as the value of a label: escaped UTF-8."""
    if "\\" in text or '"' in text or "\n" in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text.encode("utf-8", "replace")


cdef class TopicQueues:
    pass


cdef class LagTable:
    """One snapshot of how far each group is behind, by topic and queue. At most `rows_max` rows are kept."""

    def __cinit__(
        self,
        StoreReader reader not None,
        *,
        int64_t now_ms,
        Py_ssize_t rows_max,
        dict read,  # type: Mapping[str, Mapping[str, object]] | None
        is_system_topic,  # type: Callable[[str], bool]
        is_system_group,  # type: Callable[[str], bool]
    ):
        # type: (...) -> None
        """`read`: group with members → the topics that they subscribe to. Other groups have rows of lags
        where they have lag; None: everywhere."""
        self.reader, self.log = reader, reader.log
        self.now_ms, self.rows_max, self.read = now_ms, rows_max, read
        self.is_system_topic, self.is_system_group = is_system_topic, is_system_group
        self.names, self.topics, self.groups, self.retries = [], {}, {}, set()

    def __dealloc__(self):
        PyMem_Free(self.rows)
        PyMem_Free(self.queue_rows)

    def add(
        self,
        list keys not None,  # type: list[str]
        Py_ssize_t start,
        Py_ssize_t end,
        dict committed not None,  # type: Mapping[str, dict[int, int]]
        dict pulled not None,  # type: Mapping[str, dict[int, int]]
        dict in_flight not None,  # type: Mapping[tuple[str, str], int]
        dict gets not None,  # type: Mapping[str, tuple[Count, Count]]
    ):
        # type: (...) -> None
        """Add the rows of `keys[start:end]` (`topic@group`). `committed`, `pulled`: key → queue → offset;
        `in_flight`: (group, topic) → popped messages that are not acknowledged; `gets`: key → messages
        and bytes that the group got. Loop thread."""
        cdef Py_ssize_t n
        for n in range(start, min(end, len(keys))):
            self.add_one(<str> keys[n], committed, pulled, in_flight, gets)

    cdef int add_one(
        self, str key, dict committed, dict pulled, dict in_flight, dict gets
    ) except -1:
        cdef TopicQueues topic
        cdef LagRow row
        cdef int64_t popped
        cdef Py_ssize_t queues = self.queue_count, beyond = self.beyond_queue_count
        offsets, got = committed.get(key), gets.get(key)
        if offsets is None and got is None:
            return 0
        name, _, group = key.partition("@")
        topic = self.topic_of(<str> name)
        memset(&row, 0, sizeof(row))
        row.has_offsets, row.has_gets = offsets is not None, got is not None
        if got is not None:
            row.values[GOT] = (<Count> (<tuple> got)[0]).value
            row.values[GOT_BYTES] = (<Count> (<tuple> got)[1]).value
        if offsets is not None:
            self.add_offsets(&row, topic, <dict> offsets, pulled.get(key))
        if in_flight:
            popped = in_flight.get((group, name), 0)
            row.values[LAG] += popped
            row.values[IN_FLIGHT] += popped
        if row.has_offsets and row.values[LAG] <= 0 and self.read is not None:
            subscribed = self.read.get(group)
            if subscribed is None or name not in subscribed:
                row.has_offsets = False
                self.queue_count, self.beyond_queue_count = queues, beyond
                if not row.has_gets:
                    return 0
        return self.keep(&row, topic, <str> group)

    cdef int add_offsets(self, LagRow *row, TopicQueues topic, dict offsets, pulls) except -1:
        cdef ConsumeQueue queue
        cdef int64_t taken, given, lag, age, ready_ms, visible
        for number, offset in offsets.items():
            queue = self.queue_of(topic, number)
            if queue is None:
                continue
            taken = given = offset
            if pulls is not None:
                given = max(taken, <int64_t> (<dict> pulls).get(number, offset))
            visible = visible_offset(queue)
            lag, age = max(visible - taken, <int64_t> 0), 0
            if lag > 0:
                age = self.age_of(topic, queue, taken)
                row.values[LAG] += lag
                row.values[LAG_MS] = max(row.values[LAG_MS], age)
                row.values[IN_FLIGHT] += min(given, visible) - taken
            if visible > given:
                row.values[READY] += visible - given
                ready_ms = age if given == taken else self.age_of(topic, queue, given)
                row.values[READY_MS] = max(row.values[READY_MS], ready_ms)
            self.add_queue_row(number, lag, age)
        return 0

    cdef int keep(self, LagRow *row, TopicQueues topic, str group) except -1:
        """Append the row, or add it to `beyond`."""
        cdef LagRow *larger
        cdef bytes label
        cdef int n
        if self.count >= self.rows_max - 1:
            self.beyond_count += 1
            for n in range(LAG_VALUES):
                if n in (LAG_MS, READY_MS):
                    self.beyond.values[n] = max(self.beyond.values[n], row.values[n])
                else:
                    self.beyond.values[n] += row.values[n]
            return 0
        if self.count == self.capacity:
            larger = <LagRow *> PyMem_Realloc(self.rows, max(2 * self.capacity, 256) * sizeof(LagRow))
            if larger is NULL:
                raise MemoryError()
            self.rows, self.capacity = larger, max(2 * self.capacity, 256)
        label, is_system = self.group_of(group)
        row.group, row.group_bytes = PyBytes_AS_STRING(label), <int32_t> PyBytes_GET_SIZE(label)
        row.is_retry, row.is_system = topic.is_retry, is_system or topic.is_system
        label = self.label_topic(topic, group) if topic.is_retry else topic.label
        row.topic, row.topic_bytes = PyBytes_AS_STRING(label), <int32_t> PyBytes_GET_SIZE(label)
        self.rows[self.count] = row[0]
        self.count += 1
        return 0

    cdef int add_queue_row(self, int32_t queue_id, int64_t lag, int64_t lag_ms) except -1:
        """A queue of the row that is being added."""
        cdef QueueRow *kept
        if self.queue_count >= self.rows_max - 1 or self.count >= self.rows_max - 1:
            self.beyond_queue_count += 1
            self.beyond_queues.lag += lag
            self.beyond_queues.lag_ms = max(self.beyond_queues.lag_ms, lag_ms)
            return 0
        if self.queue_count == self.queue_capacity:
            kept = <QueueRow *> PyMem_Realloc(
                self.queue_rows, max(2 * self.queue_capacity, 256) * sizeof(QueueRow)
            )
            if kept is NULL:
                raise MemoryError()
            self.queue_rows, self.queue_capacity = kept, max(2 * self.queue_capacity, 256)
        self.queue_rows[self.queue_count] = QueueRow(
            row=<int32_t> self.count, queue_id=queue_id, lag=lag, lag_ms=lag_ms
        )
        self.queue_count += 1
        return 0

    cdef TopicQueues topic_of(self, str topic):
        cdef TopicQueues found
        known = self.topics.get(topic)
        if known is None:
            known = found = TopicQueues.__new__(TopicQueues)
            found.topic, found.raw, found.queues = topic, topic.encode("utf-8", "replace"), []
            found.is_retry = topic.startswith("%RETRY%")
            found.is_system = self.is_system_topic(topic)
            found.label = self.kept_label(topic)
            self.topics[topic] = found
        return <TopicQueues> known

    cdef ConsumeQueue queue_of(self, TopicQueues topic, int32_t queue_id):
        cdef int32_t number
        if not 0 <= queue_id < QUEUES_MAX:
            return None
        for number in range(<int32_t> len(topic.queues), queue_id + 1):
            topic.queues.append(self.reader.dispatch.queue_of(topic.raw, number, False))
        return <ConsumeQueue> topic.queues[queue_id]

    cdef tuple group_of(self, str group):
        found = self.groups.get(group)
        if found is None:
            found = self.groups[group] = (self.kept_label(group), bool(self.is_system_group(group)))
        return <tuple> found

    cdef bytes label_topic(self, TopicQueues topic, str group):
        """A retry topic of POP goes by the name of its topic, as Apache has it, if no other row does."""
        cdef str rest = topic.topic[RETRY_CHARS:]
        if not rest.startswith(group) or rest[len(group):len(group) + 1] not in ("_", "+"):
            return topic.label
        origin = rest[len(group) + 1:]
        if (group, origin) in self.retries:
            return topic.label
        self.retries.add((group, origin))
        return self.kept_label(origin)

    cdef bytes kept_label(self, str text):
        label = label_value(text)
        self.names.append(label)
        return <bytes> label

    cdef int64_t age_of(self, TopicQueues topic, ConsumeQueue queue, int64_t entry) except -1:
        cdef KnownAge *known = &topic.ages[(entry * 5 + queue.queue_id) & (AGES_KEPT - 1)]
        cdef int64_t stored_ms
        if known.queue != <void *> queue or known.entry != entry:
            stored_ms = queue_store_time(self.log, queue, entry)
            known.queue, known.entry = <void *> queue, entry
            known.age = max(self.now_ms - stored_ms, <int64_t> 0) if stored_ms >= 0 else 0
        return known.age

    # ---- reading in Python ----

    def sums(self):
        # type: (...) -> tuple[int, ...]
        """Over all rows the values of `lines`: sums, and of ages the highest."""
        cdef Py_ssize_t n
        cdef int value
        cdef int64_t sums[LAG_VALUES]
        for value in range(LAG_VALUES):
            sums[value] = self.beyond.values[value]
            for n in range(self.count):
                if value in (LAG_MS, READY_MS):
                    sums[value] = max(sums[value], self.rows[n].values[value])
                else:
                    sums[value] += self.rows[n].values[value]
        return tuple([sums[value] for value in range(LAG_VALUES)])

    def rows_behind(self, int64_t least=1):
        # type: (...) -> list[tuple[str, str, bool, int, int]]
        """Group, topic, whether that is a retry topic, lag in messages and ms, of each row behind by
        `least`."""
        cdef Py_ssize_t n
        cdef const LagRow *row
        found = []
        for n in range(self.count):
            row = &self.rows[n]
            if row.values[LAG] >= least:
                found.append((
                    row.group[:row.group_bytes].decode("utf-8", "replace"),
                    row.topic[:row.topic_bytes].decode("utf-8", "replace"),
                    row.is_retry, row.values[LAG], row.values[LAG_MS],
                ))
        return found

    # ---- lines of the scrape ----

    def lines(self, int value, bytes name not None, bytes common not None, Py_ssize_t start, Py_ssize_t end):
        # type: (...) -> bytes
        """Lines of the scrape for these rows. `value`: 0 lag, 1 ready, 2 in flight, 3 age of the lag and 4
        of the ready ones in ms, 5 messages and 6 bytes got; `common`: the labels of every series. Any
        thread."""
        cdef Py_ssize_t n, size = 0
        cdef uint8_t *text
        cdef uint8_t *to
        cdef Line line = line_of(name, common)
        if not 0 <= value < LAG_VALUES:
            raise ValueError(f"the value must be 0 to {LAG_VALUES - 1}, not {value}")
        start, end = max(start, 0), min(end, self.count)
        if start >= end:
            return b""
        for n in range(start, end):
            size += line_bytes(&self.rows[n], &line)
        text = <uint8_t *> PyMem_RawMalloc(size)
        if text is NULL:
            raise MemoryError()
        try:
            with nogil:
                to = text
                for n in range(start, end):
                    if self.rows[n].has_gets if value >= GOT else self.rows[n].has_offsets:
                        to = put_line(to, &self.rows[n], &line, -1, self.rows[n].values[value], 0)
            return PyBytes_FromStringAndSize(<const char *> text, to - text)
        finally:
            PyMem_RawFree(text)

    def queue_lines(
        self, bint ages, bytes name not None, bytes common not None, Py_ssize_t start, Py_ssize_t end
    ):
        # type: (...) -> bytes
        """Lines of the scrape for these rows of queues: messages, or ages in seconds. Any thread."""
        cdef Py_ssize_t n, size = 0
        cdef uint8_t *text
        cdef uint8_t *to
        cdef const QueueRow *row
        cdef Line line = line_of(name, common)
        start, end = max(start, 0), min(end, self.queue_count)
        while end > start and self.queue_rows[end - 1].row >= self.count:
            end -= 1
        if start >= end:
            return b""
        for n in range(start, end):
            size += line_bytes(&self.rows[self.queue_rows[n].row], &line)
        text = <uint8_t *> PyMem_RawMalloc(size)
        if text is NULL:
            raise MemoryError()
        try:
            with nogil:
                to = text
                for n in range(start, end):
                    row = &self.queue_rows[n]
                    to = put_line(
                        to, &self.rows[row.row], &line, row.queue_id, row.lag_ms if ages else row.lag,
                        3 if ages else 0,
                    )
            return PyBytes_FromStringAndSize(<const char *> text, to - text)
        finally:
            PyMem_RawFree(text)

    def overflow(self):
        # type: (...) -> tuple[tuple[int, ...], tuple[int, int]]
        """The values of all rows that were not kept, and lag and age in ms of all queues that were not."""
        cdef int value
        rows = tuple([self.beyond.values[value] for value in range(LAG_VALUES)])
        return rows, (self.beyond_queues.lag, self.beyond_queues.lag_ms)


cdef struct Line:
    const char *name
    const char *common
    Py_ssize_t name_bytes, common_bytes


cdef Line line_of(bytes name, bytes common):
    return Line(
        name=PyBytes_AS_STRING(name), common=PyBytes_AS_STRING(common), name_bytes=PyBytes_GET_SIZE(name),
        common_bytes=PyBytes_GET_SIZE(common),
    )


cdef Py_ssize_t line_bytes(const LagRow *row, const Line *line) noexcept nogil:
    """The most that `put_line` writes."""
    return line.name_bytes + line.common_bytes + row.topic_bytes + row.group_bytes + FIXED_MAX


cdef uint8_t *put(uint8_t *to, const char *text, Py_ssize_t length) noexcept nogil:
    memcpy(to, text, length)
    return to + length


cdef uint8_t *put_line(
    uint8_t *to, const LagRow *row, const Line *line, int32_t queue_id, int64_t value, int decimals
) noexcept nogil:
    """`queue_id` -1: a whole topic. `decimals`: 3 writes milliseconds as seconds. Returns the end."""
    to = put(to, line.name, line.name_bytes)
    to = put(put(to, b"{", 1), line.common, line.common_bytes)
    to = put(put(to, b',consumer_group="', 17), row.group, row.group_bytes)
    to = put(to, b'",is_retry="true"', 17) if row.is_retry else put(to, b'",is_retry="false"', 18)
    to = put(to, b',is_system="true"', 17) if row.is_system else put(to, b',is_system="false"', 18)
    if queue_id >= 0:
        to = put(put_decimal(put(to, b',queue_id="', 11), queue_id), b'"', 1)
    to = put(put(put(to, b',topic="', 8), row.topic, row.topic_bytes), b'"} ', 3)
    if decimals == 0:
        to = put_decimal(to, value)
    else:
        to = put(put_decimal(to, value // 1000), b".", 1)
        to[0] = <uint8_t> (c"0" + value // 100 % 10)
        to[1] = <uint8_t> (c"0" + value // 10 % 10)
        to[2] = <uint8_t> (c"0" + value % 10)
        to += 3
    return put(to, b"\n", 1)
