"""Columns: converts records to columns, without a Python object for each record (see columns.pxd).

Computes the sizes first, then fills each column in one loop of `column_fill`.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from firearrow._native.columnar.arrow_export cimport ArrowArray, ArrowBatch, begin_array, new_buffer
from firearrow._native.columnar.column_fill cimport (
    HOST_TEXT_BYTES_MAX, OFFSET_MAX, choose, repeat_text, write_hosts, write_i32, write_i64, write_offsets,
    write_texts, write_times,
)
from firearrow._native.columnar.property_pairs cimport Pair, find_pairs, pairs_at_most
from firearrow._native.columnar.record_spans cimport Spans
from firearrow._native.base.text cimport is_utf8
from firearrow._native.store.files.layout cimport SYS_COMPRESSED
from firearrow._native.store.log.record cimport RECORD_OK, RecordView, Text, record_of

from firearrow._native.store.log.record import RecordError

cdef int64_t NO_LIMIT = 0x7FFFFFFFFFFFFFFF
cdef enum:
    FINE = 0
    ODD = 1                                     # its properties must be repaired or its body opened
    CHANGED = 2
    TOO_MANY = 3
    NO_MEMORY = 4

cdef RecordView SHAPE
cdef const char *HERE = <const char *> &SHAPE

cdef enum:                                      # ways to fill a column; strings from TOPICS on
    NUMBERS
    WIDE_NUMBERS
    TIMES
    PAIRS
    TOPICS
    BODIES
    HOSTS
    SAME                                        # the same string for all
    VALUES                                      # of one property

FIELDS = {
    "topic": (TOPICS, <const char *> &SHAPE.topic - HERE),
    "queueId": (NUMBERS, <const char *> &SHAPE.queue_id - HERE),
    "queueOffset": (WIDE_NUMBERS, <const char *> &SHAPE.queue_offset - HERE),
    "brokerName": (SAME, 0),
    "storeTimestamp": (TIMES, <const char *> &SHAPE.store_time - HERE),
    "bornTimestamp": (TIMES, <const char *> &SHAPE.born_time - HERE),
    "body": (BODIES, <const char *> &SHAPE.body - HERE),
    "properties": (PAIRS, 0),
    "flag": (NUMBERS, <const char *> &SHAPE.flag - HERE),
    "sysFlag": (NUMBERS, <const char *> &SHAPE.sys_flag - HERE),
    "reconsumeTimes": (NUMBERS, <const char *> &SHAPE.reconsume_times - HERE),
    "bornHost": (HOSTS, <const char *> &SHAPE.born_host - HERE),
    "storeHost": (HOSTS, <const char *> &SHAPE.store_host - HERE),
    "bodyCrc": (NUMBERS, <const char *> &SHAPE.crc - HERE),
    "physicalOffset": (WIDE_NUMBERS, <const char *> &SHAPE.physical_offset - HERE),
    "preparedTransactionOffset": (WIDE_NUMBERS, <const char *> &SHAPE.prepared_offset - HERE),
}


def bodies_last(numbered):
    """Sort key: bodies evict everything else from the CPU cache, so other columns are filled first."""
    return numbered[1] == "body"


cdef void *allocate(int64_t count, size_t item) except NULL:
    cdef void *memory = malloc(max(count, 1) * item)
    if memory is NULL:
        raise MemoryError()
    return memory


@cython.final
cdef class Columns:
    """Records of `spans` from `first` on: at most `count_max`, until they reach `bytes_max`; at least one.

    `opener` gets each record with a compressed body, decoded, and returns the body as it was sent; None:
    bodies stay as they are stored. Without `properties` no batch can have any. Strings are UTF-8; bad
    bytes are replaced by U+FFFD as Python does. One thread at a time; releases the GIL.

    RecordError: the bytes have changed since the records were found. OverflowError: a column would need
    more than 2 GiB; use fewer records.
    """

    def __cinit__(self):
        self.views = NULL
        self.pairs = NULL
        self.ends = NULL

    def __dealloc__(self):
        free(self.views)
        free(self.pairs)
        free(self.ends)

    def __init__(
        self, Spans spans not None, Py_ssize_t first=0, *, opener=None, bint properties=True,
        int64_t count_max=NO_LIMIT, int64_t bytes_max=NO_LIMIT,
    ):
        # type: (Spans, int, Callable[[Record], bytes] | None, bool, int, int) -> None
        cdef Py_ssize_t capacity
        cdef bint opening = opener is not None
        cdef int state = ODD
        if self.views is not NULL:
            raise TypeError("Columns are made once")
        if first < 0 or first > spans.count or count_max < 1 or bytes_max < 1:
            raise ValueError(
                f"no {count_max} records and {bytes_max} bytes from record {first} of {spans.count}"
            )
        capacity = min(count_max, spans.count - first)
        self.spans = spans
        self.first = first
        self.keep_alive = []
        self.views = <RecordView *> allocate(capacity, sizeof(RecordView))
        if properties:
            self.ends = <int32_t *> allocate(capacity + 1, sizeof(int32_t))
            self.ends[0] = 0
        while state == ODD:
            with nogil:
                state = self.prepare(capacity, bytes_max, opening)
            if state == ODD:
                self.settle(opener)
        self.raise_for(state)

    def __len__(self):
        # type: (...) -> int
        return self.count

    cdef int prepare(self, Py_ssize_t capacity, int64_t bytes_max, bint opening) noexcept nogil:
        """Parse records until there are enough, or the last one is ODD: `settle` must run first."""
        cdef RecordView *view
        cdef int state = FINE
        while state == FINE and self.count < capacity and self.size < bytes_max:
            self.spans.prefetch(self.first + self.count)
            view = &self.views[self.count]
            if self.spans.view(self.first + self.count, view) != RECORD_OK:
                return CHANGED
            self.count += 1
            self.size += view.size
            if self.ends is not NULL:
                state = self.find_last()
            if state == FINE and opening and view.sys_flag & SYS_COMPRESSED:
                state = ODD
        return state

    cdef int find_last(self) noexcept nogil:
        """Find the pairs of the last parsed record; ODD: its properties are not UTF-8."""
        cdef Text *text = &self.views[self.count - 1].properties
        cdef int32_t before = self.ends[self.count - 1]
        cdef int state = self.ensure_capacity(before + pairs_at_most(text))
        cdef bint ascii = True
        if state == FINE:
            self.ends[self.count] = before + <int32_t> find_pairs(text, self.pairs + before, &ascii)
            if not ascii and not is_utf8(text.at, text.length):
                return ODD
        return state

    cdef int ensure_capacity(self, int64_t count) noexcept nogil:
        cdef int64_t capacity = max(2 * self.capacity, count, 64)
        cdef void *larger
        if count <= self.capacity:
            return FINE
        if count > OFFSET_MAX:
            return TOO_MANY
        larger = realloc(self.pairs, capacity * sizeof(Pair))
        if larger is NULL:
            return NO_MEMORY
        self.pairs = <Pair *> larger
        self.capacity = capacity
        return FINE

    cdef int settle(self, object opener) except -1:
        """Repair and open the last parsed record."""
        cdef RecordView *view = &self.views[self.count - 1]
        if self.ends is not NULL and not is_utf8(view.properties.at, view.properties.length):
            self.repair(&view.properties)
            self.raise_for(self.find_last())
        if opener is not None and view.sys_flag & SYS_COMPRESSED:
            body = opener(record_of(view))
            self.size += len(body) - view.body.length
            self.replace_value(&view.body, body)
        return 0

    cdef int raise_for(self, int state) except -1:
        if state == CHANGED:
            at = self.spans.base + self.spans.positions[self.first + self.count]
            raise RecordError(f"the record at {at} changed while it was read")
        if state == TOO_MANY:
            raise OverflowError(
                f"properties of {self.count} records are too many for one batch: take fewer records"
            )
        if state == NO_MEMORY:
            raise MemoryError()
        return 0

    cdef int replace_value(self, Text *text, bytes instead) except -1:
        self.keep_alive.append(instead)
        text.at = <const uint8_t *> PyBytes_AS_STRING(instead)
        text.length = PyBytes_GET_SIZE(instead)
        return 0

    cdef int repair(self, Text *text) except -1:
        raw = PyBytes_FromStringAndSize(<const char *> text.at, text.length)
        return self.replace_value(text, raw.decode("utf-8", "replace").encode())

    cdef int repair_topics(self) except -1:
        cdef Py_ssize_t index = 0
        while True:
            with nogil:
                index = next_bad_topic(self.views, index, self.count)
            if index == self.count:
                return 0
            self.repair(&self.views[index].topic)

    def batch(self, fields, str broker_name not None=""):
        # type: (Sequence[str | bytes], str) -> ArrowBatch
        """One column for each field, with the types of spark_tools/arrow/columns.py. A str names a column;
        bytes name a property, whose value is a string.

        A column has a validity buffer only if it has nulls: a time outside the years 1 to 9999, or a
        property that a record lacks. In `properties` each name occurs once in a record, with its last
        value. KeyError: no such column.
        """
        cdef ArrowBatch batch = ArrowBatch.__new__(ArrowBatch)
        cdef bytes broker = broker_name.encode()
        cdef Py_ssize_t index, at
        cdef int kind
        cdef int64_t state
        cdef Text word
        if not begin_array(&batch.array, self.count, 1, len(fields)):
            raise MemoryError()
        for index, field in sorted(enumerate(fields), key=bodies_last):
            kind, at = (VALUES, 0) if isinstance(field, bytes) else FIELDS[field]
            word = text_of(field if kind == VALUES else broker)
            if self.ends is NULL and (kind == VALUES or kind == PAIRS):
                raise ValueError("these Columns were made without properties")
            if kind == TOPICS:
                self.repair_topics()
            with nogil:
                state = self.fill(batch.array.children[index], kind, at, &word)
            if state > OFFSET_MAX:
                name = field.decode() if kind == VALUES else field
                raise OverflowError(
                    f"{name}: {state} bytes in one batch of {self.count} records: take fewer records"
                )
            self.raise_for(<int> state)
        return batch

    cdef int64_t fill(self, ArrowArray *to, int kind, Py_ssize_t at, const Text *word) noexcept nogil:
        """FINE, NO_MEMORY, or the bytes needed if they exceed OFFSET_MAX; so do all `fill` functions."""
        if not begin_array(to, self.count, 3 if kind >= TOPICS else 2, 1 if kind == PAIRS else 0):
            return NO_MEMORY
        if kind == NUMBERS or kind == WIDE_NUMBERS:
            return self.fill_numbers(to, kind == WIDE_NUMBERS, at)
        if kind == TIMES:
            return self.fill_times(to, at)
        if kind == PAIRS:
            return self.fill_pairs(to)
        if kind == HOSTS:
            return self.fill_hosts(to, at)
        if kind == SAME:
            return fill_same(to, word)
        if kind == VALUES:
            return self.fill_values(to, word)
        return fill_texts(to, <const char *> self.views + at, sizeof(RecordView))

    cdef int fill_numbers(self, ArrowArray *to, bint wide, Py_ssize_t at) noexcept nogil:
        cdef void *numbers = new_buffer(to, 1, self.count * (sizeof(int64_t) if wide else sizeof(int32_t)))
        if numbers is NULL:
            return NO_MEMORY
        if wide:
            write_i64(self.views, self.count, at, <int64_t *> numbers)
        else:
            write_i32(self.views, self.count, at, <int32_t *> numbers)
        return FINE

    cdef int fill_times(self, ArrowArray *to, Py_ssize_t at) noexcept nogil:
        cdef uint8_t *bits = <uint8_t *> new_buffer(to, 0, (self.count + 7) // 8)
        cdef void *times = new_buffer(to, 1, self.count * sizeof(int64_t))
        if bits is NULL or times is NULL:
            return NO_MEMORY
        set_valid(to, write_times(self.views, self.count, at, <int64_t *> times, bits))
        return FINE

    cdef int64_t fill_hosts(self, ArrowArray *to, Py_ssize_t at) noexcept nogil:
        cdef Text *found = <Text *> malloc(max(self.count, 1) * (sizeof(Text) + HOST_TEXT_BYTES_MAX))
        cdef int64_t state
        if found is NULL:
            return NO_MEMORY
        write_hosts(self.views, self.count, at, <uint8_t *> (found + self.count), found)
        state = fill_texts(to, <const char *> found, sizeof(Text))
        free(found)
        return state

    cdef int64_t fill_values(self, ArrowArray *to, const Text *name) noexcept nogil:
        cdef uint8_t *bits = <uint8_t *> new_buffer(to, 0, (self.count + 7) // 8)
        cdef Text *found = <Text *> malloc(max(self.count, 1) * sizeof(Text))
        cdef int64_t state = NO_MEMORY
        if bits is not NULL and found is not NULL:
            set_valid(to, choose(self.pairs, self.ends, self.count, name, found, bits))
            state = fill_texts(to, <const char *> found, sizeof(Text))
        free(found)
        return state

    cdef int64_t fill_pairs(self, ArrowArray *to) noexcept nogil:
        cdef const char *first = <const char *> self.pairs
        cdef int32_t count = self.ends[self.count]
        cdef ArrowArray *pairs = to.children[0]
        cdef void *ends = new_buffer(to, 1, (self.count + 1) * sizeof(int32_t))
        cdef int64_t state
        if ends is NULL or not begin_array(pairs, count, 1, 2):
            return NO_MEMORY
        if not begin_array(pairs.children[0], count, 3, 0) or not begin_array(pairs.children[1], count, 3, 0):
            return NO_MEMORY
        memcpy(ends, self.ends, (self.count + 1) * sizeof(int32_t))
        state = fill_texts(pairs.children[0], first, sizeof(Pair))
        return state if state != FINE else fill_texts(pairs.children[1], first + sizeof(Text), sizeof(Pair))


cdef Text text_of(bytes raw):
    """Borrows `raw`."""
    cdef Text text
    text.at = <const uint8_t *> PyBytes_AS_STRING(raw)
    text.length = PyBytes_GET_SIZE(raw)
    return text


cdef void set_valid(ArrowArray *to, Py_ssize_t valid) noexcept nogil:
    """`valid` rows are not null; if all are, drop the validity bits."""
    to.null_count = to.length - valid
    if to.null_count == 0:
        free(<void *> to.buffers[0])
        to.buffers[0] = NULL


cdef int64_t fill_texts(ArrowArray *to, const char *first, Py_ssize_t stride) noexcept nogil:
    """From Texts, the first at `first`, each `stride` bytes after the previous one."""
    cdef int32_t *starts = <int32_t *> new_buffer(to, 1, (to.length + 1) * sizeof(int32_t))
    cdef int64_t total
    cdef char *data
    if starts is NULL:
        return NO_MEMORY
    total = write_offsets(first, stride, to.length, starts)
    if total > OFFSET_MAX:
        return total
    data = <char *> new_buffer(to, 2, total)
    if data is NULL:
        return NO_MEMORY
    write_texts(first, stride, to.length, starts, data)
    return FINE


cdef int64_t fill_same(ArrowArray *to, const Text *text) noexcept nogil:
    cdef int64_t total = to.length * text.length
    cdef int32_t *starts
    cdef char *data
    if total > OFFSET_MAX:
        return total
    starts = <int32_t *> new_buffer(to, 1, (to.length + 1) * sizeof(int32_t))
    data = <char *> new_buffer(to, 2, total)
    if starts is NULL or data is NULL:
        return NO_MEMORY
    repeat_text(text, to.length, starts, data)
    return FINE


cdef Py_ssize_t next_bad_topic(RecordView *views, Py_ssize_t index, Py_ssize_t count) noexcept nogil:
    """The first record from `index` on whose topic is not UTF-8; `count` if there is none."""
    while index < count and is_utf8(views[index].topic.at, views[index].topic.length):
        index += 1
    return index
