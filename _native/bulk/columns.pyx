"""Columns of records (see columns.pxd): sizes first, then one loop of fills a column, without an object for a record."""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc

from firearrow._native.bulk.fills cimport (
    OFFSET_MAX, choose, text_at, write_hosts, write_i32, write_i64, write_offsets, write_texts, write_times,
)
from firearrow._native.bulk.hosts cimport HOST_TEXT_BYTES_MAX
from firearrow._native.bulk.pairs cimport Pair, find_pairs, pairs_at_most
from firearrow._native.bulk.spans cimport Spans
from firearrow._native.bulk.utf8 cimport is_utf8
from firearrow._native.store.layout cimport SYS_COMPRESSED
from firearrow._native.store.record cimport RECORD_OK, RecordView, Text, record_of

from firearrow._native.store.record import RecordError

cdef int64_t NO_LIMIT = 0x7FFFFFFFFFFFFFFF
cdef enum:
    FINE = 0
    ODD = 1                                     # its properties are to be repaired, or its body opened
    CHANGED = 2
    TOO_MANY = 3
    NO_MEMORY = 4

cdef RecordView SHAPE
cdef const char *HERE = <const char *> &SHAPE
I32_AT = {
    "queueId": <const char *> &SHAPE.queue_id - HERE,
    "flag": <const char *> &SHAPE.flag - HERE,
    "sysFlag": <const char *> &SHAPE.sys_flag - HERE,
    "reconsumeTimes": <const char *> &SHAPE.reconsume_times - HERE,
    "bodyCrc": <const char *> &SHAPE.crc - HERE,
}
I64_AT = {
    "queueOffset": <const char *> &SHAPE.queue_offset - HERE,
    "physicalOffset": <const char *> &SHAPE.physical_offset - HERE,
    "preparedTransactionOffset": <const char *> &SHAPE.prepared_offset - HERE,
}
TIME_AT = {
    "storeTimestamp": <const char *> &SHAPE.store_time - HERE,
    "bornTimestamp": <const char *> &SHAPE.born_time - HERE,
}
HOST_AT = {
    "bornHost": <const char *> &SHAPE.born_host - HERE,
    "storeHost": <const char *> &SHAPE.store_host - HERE,
}
cdef Py_ssize_t TOPIC_AT = <const char *> &SHAPE.topic - HERE
cdef Py_ssize_t BODY_AT = <const char *> &SHAPE.body - HERE


cdef bytearray fresh(int64_t size):
    return PyByteArray_FromStringAndSize(NULL, size)


cdef void *taken(int64_t count, size_t item) except NULL:
    cdef void *memory = malloc(max(count, 1) * item)
    if memory is NULL:
        raise MemoryError()
    return memory


@cython.final
cdef class Columns:
    def __cinit__(self):
        self.views = NULL
        self.pairs = NULL
        self.ends = NULL

    def __dealloc__(self):
        free(self.views)
        free(self.pairs)
        free(self.ends)

    def __init__(
        self, Spans spans not None, Py_ssize_t first=0, *, opener=None, bint properties=True, int64_t count_max=NO_LIMIT,
        int64_t bytes_max=NO_LIMIT,
    ):
        cdef Py_ssize_t room
        cdef bint opening = opener is not None
        cdef int state = ODD
        if self.views is not NULL:
            raise TypeError("Columns are made once")
        if first < 0 or first > spans.count or count_max < 1 or bytes_max < 1:
            raise ValueError(f"no {count_max} records and {bytes_max} bytes from record {first} of {spans.count}")
        room = min(count_max, spans.count - first)
        self.spans = spans
        self.first = first
        self.held = []
        self.views = <RecordView *> taken(room, sizeof(RecordView))
        if properties:
            self.ends = <int32_t *> taken(room + 1, sizeof(int32_t))
            self.ends[0] = 0
        while state == ODD:
            with nogil:
                state = self.look(room, bytes_max, opening)
            if state == ODD:
                self.settle(opener)
        self.refuse(state)

    def __len__(self):
        return self.count

    cdef int look(self, Py_ssize_t room, int64_t bytes_max, bint opening) noexcept nogil:
        """Looks into records until there are enough, or the last one is odd: then `settle` goes first."""
        cdef RecordView *view
        cdef int state = FINE
        while state == FINE and self.count < room and self.size < bytes_max:
            self.spans.ahead(self.first + self.count)
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
        """The pairs of the record looked into last; ODD: its properties are no UTF-8."""
        cdef Text *text = &self.views[self.count - 1].properties
        cdef int32_t before = self.ends[self.count - 1]
        cdef int state = self.make_room(before + pairs_at_most(text))
        cdef bint ascii = True
        if state == FINE:
            self.ends[self.count] = before + <int32_t> find_pairs(text, self.pairs + before, &ascii)
            if not ascii and not is_utf8(text.at, text.length):
                return ODD
        return state

    cdef int make_room(self, int64_t count) noexcept nogil:
        cdef int64_t room = max(2 * self.room, count, 64)
        cdef void *larger
        if count <= self.room:
            return FINE
        if count > OFFSET_MAX:
            return TOO_MANY
        larger = realloc(self.pairs, room * sizeof(Pair))
        if larger is NULL:
            return NO_MEMORY
        self.pairs = <Pair *> larger
        self.room = room
        return FINE

    cdef int settle(self, object opener) except -1:
        """Makes the record looked into last an ordinary one."""
        cdef RecordView *view = &self.views[self.count - 1]
        if self.ends is not NULL and not is_utf8(view.properties.at, view.properties.length):
            self.repair(&view.properties)
            self.refuse(self.find_last())
        if opener is not None and view.sys_flag & SYS_COMPRESSED:
            body = opener(record_of(view))
            self.size += len(body) - view.body.length
            self.hold(&view.body, body)
        return 0

    cdef int refuse(self, int state) except -1:
        if state == CHANGED:
            place = self.spans.base + self.spans.positions[self.first + self.count]
            raise RecordError(f"the record at {place} changed while it was read")
        if state == TOO_MANY:
            raise OverflowError(f"properties of {self.count} records are too many for one batch: take fewer records")
        if state == NO_MEMORY:
            raise MemoryError()
        return 0

    cdef int hold(self, Text *text, bytes instead) except -1:
        self.held.append(instead)
        text.at = <const uint8_t *> PyBytes_AS_STRING(instead)
        text.length = PyBytes_GET_SIZE(instead)
        return 0

    cdef int repair(self, Text *text) except -1:
        raw = PyBytes_FromStringAndSize(<const char *> text.at, text.length)
        return self.hold(text, raw.decode("utf-8", "replace").encode())

    cdef int repair_topics(self) except -1:
        cdef Py_ssize_t index = 0
        while True:
            with nogil:
                index = next_bad_topic(self.views, index, self.count)
            if index == self.count:
                return 0
            self.repair(&self.views[index].topic)

    cdef tuple texts(self, const char *first, Py_ssize_t stride, Py_ssize_t count, str name):
        """Offsets and bytes of `count` Texts, the first at `first`, each `stride` behind the one before."""
        cdef int64_t total
        cdef bytearray offsets = fresh((count + 1) * sizeof(int32_t))
        cdef int32_t *starts = <int32_t *> PyByteArray_AS_STRING(offsets)
        cdef bytearray data
        cdef char *to
        with nogil:
            total = write_offsets(first, stride, count, starts)
        if total > OFFSET_MAX:
            raise OverflowError(f"{name}: {total} bytes in one batch of {self.count} records: take fewer records")
        data = fresh(total)
        to = PyByteArray_AS_STRING(data)
        with nogil:
            write_texts(first, stride, count, starts, to)
        return offsets, data

    def numbers(self, str name not None):
        cdef bint wide = name in I64_AT
        cdef Py_ssize_t at = I64_AT[name] if wide else I32_AT[name]
        cdef bytearray column = fresh(self.count * (sizeof(int64_t) if wide else sizeof(int32_t)))
        cdef char *to = PyByteArray_AS_STRING(column)
        with nogil:
            if wide:
                write_i64(self.views, self.count, at, <int64_t *> to)
            else:
                write_i32(self.views, self.count, at, <int32_t *> to)
        return column

    def times(self, str name not None):
        cdef Py_ssize_t at = TIME_AT[name]
        cdef bytearray column = fresh(self.count * sizeof(int64_t))
        cdef bytearray validity = fresh((self.count + 7) // 8)
        cdef int64_t *to = <int64_t *> PyByteArray_AS_STRING(column)
        cdef uint8_t *bits = <uint8_t *> PyByteArray_AS_STRING(validity)
        cdef Py_ssize_t there
        with nogil:
            there = write_times(self.views, self.count, at, to, bits)
        return (None if there == self.count else validity), column

    def topic(self):
        if not self.topics_checked:
            self.repair_topics()
            self.topics_checked = True
        return self.texts(<const char *> self.views + TOPIC_AT, sizeof(RecordView), self.count, "topic")

    def body(self):
        return self.texts(<const char *> self.views + BODY_AT, sizeof(RecordView), self.count, "body")

    def hosts(self, str name not None):
        cdef Py_ssize_t at = HOST_AT[name]
        cdef Text *found = <Text *> taken(self.count, sizeof(Text))
        cdef uint8_t *written = NULL
        try:
            written = <uint8_t *> taken(self.count, HOST_TEXT_BYTES_MAX)
            with nogil:
                write_hosts(self.views, self.count, at, written, found)
            return self.texts(<const char *> found, sizeof(Text), self.count, name)
        finally:
            free(written)
            free(found)

    cdef int need_pairs(self) except -1:
        if self.ends is NULL:
            raise ValueError("these Columns were made without properties")
        return 0

    def value(self, bytes name not None):
        cdef Text wanted
        cdef Text *found
        cdef bytearray validity = fresh((self.count + 7) // 8)
        cdef uint8_t *bits = <uint8_t *> PyByteArray_AS_STRING(validity)
        wanted.at = <const uint8_t *> PyBytes_AS_STRING(name)
        wanted.length = PyBytes_GET_SIZE(name)
        self.need_pairs()
        found = <Text *> taken(self.count, sizeof(Text))
        try:
            with nogil:
                choose(self.pairs, self.ends, self.count, &wanted, found, bits)
            return validity, *self.texts(<const char *> found, sizeof(Text), self.count, name.decode())
        finally:
            free(found)

    def properties(self):
        cdef bytearray offsets
        cdef Py_ssize_t total
        cdef const char *first
        self.need_pairs()
        offsets = PyByteArray_FromStringAndSize(<const char *> self.ends, (self.count + 1) * sizeof(int32_t))
        total = self.ends[self.count]
        first = <const char *> self.pairs
        return (
            offsets,
            self.texts(first, sizeof(Pair), total, "properties"),
            self.texts(first + sizeof(Text), sizeof(Pair), total, "properties"),
        )


cdef Py_ssize_t next_bad_topic(RecordView *views, Py_ssize_t index, Py_ssize_t count) noexcept nogil:
    """The first record from `index` on whose topic is no UTF-8; `count` if there is none."""
    while index < count and is_utf8(views[index].topic.at, views[index].topic.length):
        index += 1
    return index
