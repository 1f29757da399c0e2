"""Columns of records (see columns.pxd): sizes first, then one loop of fills a column, without an object for a record."""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from firearrow._native.bulk.fills cimport (
    OFFSET_MAX, choose, fa_prefetch, text_at, write_hosts, write_i32, write_i64, write_offsets, write_texts, write_times,
)
from firearrow._native.bulk.hosts cimport HOST_TEXT_BYTES_MAX
from firearrow._native.bulk.pairs cimport Pair, find_pairs, pairs_at_most
from firearrow._native.bulk.spans cimport Spans
from firearrow._native.bulk.utf8 cimport is_utf8
from firearrow._native.store.bytes cimport get_i32
from firearrow._native.store.layout cimport AT_SIZE, SYS_COMPRESSED
from firearrow._native.store.record cimport RECORD_OK, RecordView, Text, record_of

from firearrow._native.store.record import RecordError

cdef int64_t NO_LIMIT = 0x7FFFFFFFFFFFFFFF
cdef enum:
    AHEAD = 6                                   # records whose bytes are asked for before they are wanted
    LINE_BYTES = 64
    ALL_SEEN = 0
    OPEN_THIS = 1
    CHANGED = 2

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
cdef Py_ssize_t PROPERTIES_AT = <const char *> &SHAPE.properties - HERE


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
        self, Spans spans not None, Py_ssize_t first=0, *, opener=None, int64_t count_max=NO_LIMIT,
        int64_t bytes_max=NO_LIMIT,
    ):
        cdef Py_ssize_t room
        cdef bint opening = opener is not None
        cdef int state = OPEN_THIS
        if self.views is not NULL:
            raise TypeError("Columns are made once")
        if first < 0 or first > spans.count or count_max < 1 or bytes_max < 1:
            raise ValueError(f"no {count_max} records and {bytes_max} bytes from record {first} of {spans.count}")
        room = min(count_max, spans.count - first)
        self.spans = spans
        self.first = first
        self.held = []
        self.views = <RecordView *> taken(room, sizeof(RecordView))
        while state == OPEN_THIS:
            with nogil:
                state = self.look(room, bytes_max, opening)
            if state == OPEN_THIS:
                self.open_last(opener)
        if state == CHANGED:
            place = spans.base + spans.positions[first + self.count]
            raise RecordError(f"the record at {place} changed while it was read")

    def __len__(self):
        return self.count

    cdef int look(self, Py_ssize_t room, int64_t bytes_max, bint opening) noexcept nogil:
        """Fills views until there is enough, or a body is to be opened first: that of the last view."""
        cdef RecordView *view
        while self.count < room and self.size < bytes_max:
            approach(self.spans, self.first + self.count)
            view = &self.views[self.count]
            if self.spans.view(self.first + self.count, view) != RECORD_OK:
                return CHANGED
            self.count += 1
            self.size += view.size
            if opening and view.sys_flag & SYS_COMPRESSED:
                return OPEN_THIS
        return ALL_SEEN

    cdef int open_last(self, object opener) except -1:
        cdef RecordView *view = &self.views[self.count - 1]
        cdef bytes body = opener(record_of(view))
        self.held.append(body)
        self.size += PyBytes_GET_SIZE(body) - view.body.length
        view.body.at = <const uint8_t *> PyBytes_AS_STRING(body)
        view.body.length = PyBytes_GET_SIZE(body)
        return 0

    cdef int repair(self, Py_ssize_t at) except -1:
        """The text at that place of each view: UTF-8 from here on."""
        cdef Py_ssize_t index = 0
        cdef Text *text
        cdef bytes good
        while True:
            with nogil:
                index = next_bad(self.views, index, self.count, at)
            if index == self.count:
                return 0
            text = text_at(<const char *> &self.views[index], at)
            raw = PyBytes_FromStringAndSize(<const char *> text.at, text.length)
            good = raw.decode("utf-8", "replace").encode()
            self.held.append(good)
            text.at = <const uint8_t *> PyBytes_AS_STRING(good)
            text.length = PyBytes_GET_SIZE(good)

    cdef int find(self) except -1:
        """All properties, once."""
        cdef Py_ssize_t index
        cdef int64_t room = 0, found = 0
        if self.pairs is not NULL:
            return 0
        self.repair(PROPERTIES_AT)
        for index in range(self.count):
            room += pairs_at_most(&self.views[index].properties)
        if room > OFFSET_MAX:
            raise OverflowError(f"properties of {self.count} records are too many for one batch: take fewer records")
        if self.ends is NULL:
            self.ends = <int32_t *> taken(self.count + 1, sizeof(int32_t))
        self.pairs = <Pair *> taken(room, sizeof(Pair))
        self.ends[0] = 0
        with nogil:
            for index in range(self.count):
                found += find_pairs(&self.views[index].properties, self.pairs + found)
                self.ends[index + 1] = <int32_t> found
        return 0

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
            self.repair(TOPIC_AT)
            self.topics_checked = True
        return self.texts(<const char *> self.views + TOPIC_AT, sizeof(RecordView), self.count, "topic")

    def body(self):
        return self.texts(<const char *> self.views + (<const char *> &SHAPE.body - HERE), sizeof(RecordView), self.count, "body")

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

    def value(self, bytes name not None):
        cdef Text wanted
        cdef Text *found
        cdef bytearray validity = fresh((self.count + 7) // 8)
        cdef uint8_t *bits = <uint8_t *> PyByteArray_AS_STRING(validity)
        wanted.at = <const uint8_t *> PyBytes_AS_STRING(name)
        wanted.length = PyBytes_GET_SIZE(name)
        self.find()
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
        self.find()
        offsets = PyByteArray_FromStringAndSize(<const char *> self.ends, (self.count + 1) * sizeof(int32_t))
        total = self.ends[self.count]
        first = <const char *> self.pairs
        return (
            offsets,
            self.texts(first, sizeof(Pair), total, "properties"),
            self.texts(first + sizeof(Text), sizeof(Pair), total, "properties"),
        )


cdef inline void approach(Spans spans, Py_ssize_t index) noexcept nogil:
    """Asks for the head of a record some way ahead, and for the end, where topic and properties are, of a nearer one."""
    cdef const unsigned char *record
    if index + AHEAD < spans.count:
        record = spans.data + spans.positions[index + AHEAD]
        fa_prefetch(record)
        fa_prefetch(record + LINE_BYTES)
    if index + AHEAD // 2 < spans.count:
        record = spans.data + spans.positions[index + AHEAD // 2]
        record += get_i32(record + AT_SIZE)
        fa_prefetch(record - LINE_BYTES)
        fa_prefetch(record - 2 * LINE_BYTES)
        fa_prefetch(record - 3 * LINE_BYTES)


cdef Py_ssize_t next_bad(RecordView *views, Py_ssize_t index, Py_ssize_t count, Py_ssize_t at) noexcept nogil:
    """The first record from `index` on whose text is no UTF-8; `count` if there is none."""
    cdef Text *text
    while index < count:
        text = text_at(<const char *> &views[index], at)
        if not is_utf8(text.at, text.length):
            break
        index += 1
    return index
