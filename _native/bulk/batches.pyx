"""Bodies of batch requests from records as they lie in a window (see batches.pxd). No Python object for a record."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

from firearrow._native.bulk.spans cimport Spans
from firearrow._native.store.bytes cimport put_i16, put_i32
from firearrow._native.store.layout cimport PROPERTIES_BYTES_MAX, SYS_COMPRESSED
from firearrow._native.store.record cimport RECORD_OK, RecordView, Text

from collections import namedtuple

from firearrow._native.store.record import RecordError

cdef extern from "Python.h":
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *text, Py_ssize_t size) except NULL
    char *start_of "PyBytes_AS_STRING"(PyObject *text) noexcept
    int _PyBytes_Resize(PyObject **text, Py_ssize_t size) except -1

BATCH_BYTES_MAX = (4 << 20) - (256 << 10)
BATCH_COUNT_MAX = 1024
REPLAY_JOB, REPLAY_BROKER, REPLAY_TOPIC = "REPLAY_JOB", "REPLAY_BROKER", "REPLAY_TOPIC"
REPLAY_QUEUE, REPLAY_OFFSET = "REPLAY_QUEUE", "REPLAY_OFFSET"
REPLAYS = frozenset({REPLAY_JOB, REPLAY_BROKER, REPLAY_TOPIC, REPLAY_QUEUE, REPLAY_OFFSET})
BROKER_OWN = frozenset({
    "MSG_REGION", "TRACE_ON", "CLUSTER", "__CRC32#", "MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "REAL_TOPIC",
    "REAL_QID", "DELAY", "TIMER_DELAY_LEVEL", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS",
    "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "TRAN_MSG", "PGROUP",
    "__transactionId__", "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRAN_PREPARED_QUEUE_OFFSET",
    "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET",
})
Batch = namedtuple("Batch", "body count next sys_flag born_ms")
Single = namedtuple("Single", "flag body properties sys_flag reconsume_times born_ms")

cdef int32_t KEPT = SYS_COMPRESSED | 0x700    # compressed or not, and how
cdef enum:
    WRITTEN = 1
    CHANGED = -1
    TOO_LONG = -2


class BatchError(ValueError):
    pass


# ---- what is done to properties ----

cdef class Edits:
    def __cinit__(self, drop=BROKER_OWN, put=None, provenance=None):
        self.drop, self.put, self.texts = frozenset(drop), dict(put or {}), []
        self.provenance = None if provenance is None else (str(provenance[0]), str(provenance[1]))
        self.plan.dropped = NULL
        self.lay_names()
        self.lay_texts()

    def __dealloc__(self):
        PyMem_Free(self.plan.dropped)

    def __reduce__(self):
        return Edits, (self.drop, self.put, self.provenance)

    cdef int lay_names(self) except -1:
        """Sorted by the first byte: few are compared with each property."""
        cdef bytes name
        cdef int32_t index = 0
        wanted = self.drop | self.put.keys() | (frozenset() if self.provenance is None else REPLAYS)
        names = sorted(checked(text).encode() for text in wanted)
        if len(names) > NAMES_MAX:
            raise ValueError(f"{len(names)} properties to be dropped, at most {NAMES_MAX}")
        self.plan.dropped = <Name *> PyMem_Malloc((len(names) + 1) * sizeof(Name))
        if self.plan.dropped is NULL:
            raise MemoryError()
        for byte in range(257):
            while index < len(names) and names[index][0] < byte:
                index += 1
            self.plan.first[byte] = index
        for index, name in enumerate(names):
            self.plan.dropped[index] = Name(at=<const uint8_t *> PyBytes_AS_STRING(name), length=len(name))
        self.texts.append(names)
        return 0

    cdef int lay_texts(self) except -1:
        cdef bytes put = b"".join(prop(name, value) for name, value in self.put.items())
        cdef bytes origin = b""
        if self.provenance is not None:
            job, broker_name = self.provenance
            origin = prop(REPLAY_JOB, job) + prop(REPLAY_BROKER, broker_name) + REPLAY_TOPIC.encode() + b"\x01"
        if len(put) + len(origin) > PROPERTIES_BYTES_MAX:
            raise ValueError(f"properties to be put: {len(put) + len(origin)} bytes, at most {PROPERTIES_BYTES_MAX}")
        self.plan.put = Name(at=<const uint8_t *> PyBytes_AS_STRING(put), length=len(put))
        self.plan.origin = Name(at=<const uint8_t *> PyBytes_AS_STRING(origin), length=len(origin))
        self.texts += (put, origin)
        return 0


def checked(text):
    """A name or a value itself, if it can stand among properties."""
    if not text or "\x01" in text or "\x02" in text:
        raise ValueError(f"property {text!r}: empty, or with a byte 1 or 2, which separate properties")
    return text


def prop(name, value):
    return f"{checked(name)}\x01{checked(value)}\x02".encode()


# ---- properties of one record ----

cdef Py_ssize_t edited_bytes_max(const Plan *plan, const RecordView *view) noexcept nogil:
    """No more than this, whatever is dropped."""
    cdef Py_ssize_t size = view.properties.length + 1 + plan.put.length
    if plan.origin.length:
        size += plan.origin.length + view.topic.length + 2 * NUMBER_BYTES_MAX + sizeof("REPLAY_QUEUE") + sizeof("REPLAY_OFFSET") + 8
    return size


cdef uint8_t *put_edited(const Plan *plan, const RecordView *view, uint8_t *to) noexcept nogil:
    """Where it ends."""
    to = put_kept(plan, &view.properties, to)
    memcpy(to, plan.put.at, plan.put.length)
    to += plan.put.length
    return put_origin(plan, view, to) if plan.origin.length else to


cdef uint8_t *put_kept(const Plan *plan, const Text *text, uint8_t *to) noexcept nogil:
    """All that is not dropped, stretches of it at a time; ended by a 2 if something may follow."""
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = at + text.length
    cdef const uint8_t *kept = at
    cdef const uint8_t *stop
    cdef const uint8_t *start = to
    while at < end:
        stop = <const uint8_t *> memchr(at, 2, end - at)
        stop = end if stop is NULL else stop + 1
        if is_dropped(plan, at, stop):
            memcpy(to, kept, at - kept)
            to += at - kept
            kept = stop
        at = stop
    memcpy(to, kept, end - kept)
    to += end - kept
    if to > start and to[-1] != 2 and plan.put.length + plan.origin.length:
        to[0] = 2
        to += 1
    return to


cdef bint is_dropped(const Plan *plan, const uint8_t *at, const uint8_t *stop) noexcept nogil:
    """Whether the property [at, stop) has one of the names."""
    cdef int32_t index
    cdef const Name *name
    for index in range(plan.first[at[0]], plan.first[at[0] + 1]):
        name = &plan.dropped[index]
        if name.length < stop - at and at[name.length] == 1 and memcmp(at, name.at, name.length) == 0:
            return True
    return False


cdef uint8_t *put_origin(const Plan *plan, const RecordView *view, uint8_t *to) noexcept nogil:
    memcpy(to, plan.origin.at, plan.origin.length)
    to += plan.origin.length
    memcpy(to, view.topic.at, view.topic.length)
    to += view.topic.length
    memcpy(to, b"\x02REPLAY_QUEUE\x01", 14)
    to = put_number(view.queue_id, to + 14)
    memcpy(to, b"\x02REPLAY_OFFSET\x01", 15)
    to = put_number(view.queue_offset, to + 15)
    to[0] = 2
    return to + 1


cdef uint8_t *put_number(int64_t value, uint8_t *to) noexcept nogil:
    cdef uint8_t digits[NUMBER_BYTES_MAX]
    cdef int at = NUMBER_BYTES_MAX
    cdef unsigned long long left = value if value >= 0 else -<unsigned long long> value
    if value < 0:
        to[0] = c"-"
        to += 1
    while True:
        at -= 1
        digits[at] = c"0" + left % 10
        left //= 10
        if left == 0:
            break
    memcpy(to, digits + at, NUMBER_BYTES_MAX - at)
    return to + NUMBER_BYTES_MAX - at


# ---- items ----

cdef uint8_t *put_item(const Plan *plan, const RecordView *view, uint8_t *to) noexcept nogil:
    """Where it ends; NULL if its properties are too long."""
    cdef uint8_t *properties = to + ITEM_OVER_BYTES + view.body.length
    cdef uint8_t *end = put_edited(plan, view, properties)
    if end - properties > PROPERTIES_BYTES_MAX:
        return NULL
    put_i32(to, <int32_t> (end - to))
    put_i32(to + 4, 0)
    put_i32(to + 8, 0)
    put_i32(to + ITEM_AT_FLAG, view.flag)
    put_i32(to + ITEM_AT_BODY_BYTES, <int32_t> view.body.length)
    memcpy(to + ITEM_HEAD_BYTES, view.body.at, view.body.length)
    put_i16(properties - 2, <short> (end - properties))
    return end


cdef Py_ssize_t item_bytes_max(const Plan *plan, const RecordView *view) noexcept nogil:
    return ITEM_OVER_BYTES + view.body.length + edited_bytes_max(plan, view)


cdef Py_ssize_t room_for(Spans spans, Py_ssize_t first, Py_ssize_t stop, const Plan *plan, Py_ssize_t bytes_max) noexcept nogil:
    """What a batch of at most `bytes_max` may take while it is written: one record more than fits at the most."""
    cdef RecordView view
    cdef Py_ssize_t room = 0
    cdef Py_ssize_t index
    for index in range(first, stop):
        if spans.view(index, &view) != RECORD_OK:
            break
        room += item_bytes_max(plan, &view)
        if room > bytes_max:
            break
    return room


cdef int put_items(
    Spans spans, Py_ssize_t *next, Py_ssize_t stop, const Plan *plan, Py_ssize_t bytes_max, uint8_t *start,
    Py_ssize_t room, uint8_t **end, int32_t sys_flag,
) noexcept nogil:
    """Write what fits and is compressed alike; `next` and `end` move. Anything but WRITTEN is about record `next`."""
    cdef RecordView view
    cdef uint8_t *to = start
    cdef Py_ssize_t first = next[0]
    while next[0] < stop:
        if spans.view(next[0], &view) != RECORD_OK:
            return CHANGED
        if view.sys_flag & KEPT != sys_flag or item_bytes_max(plan, &view) > room - (to - start):
            break
        to = put_item(plan, &view, to)
        if to is NULL:
            return TOO_LONG
        if to - start > bytes_max and next[0] > first:
            break
        end[0] = to
        next[0] += 1
    return WRITTEN


def batch_body(
    Spans spans not None, Py_ssize_t first, Edits edits not None, *, Py_ssize_t bytes_max=BATCH_BYTES_MAX,
    Py_ssize_t count_max=BATCH_COUNT_MAX,
):
    cdef RecordView view
    cdef Py_ssize_t next = first
    cdef Py_ssize_t stop = min(spans.count, first + max(count_max, 1))
    cdef Py_ssize_t room
    cdef uint8_t *start
    cdef uint8_t *end
    cdef int state
    cdef PyObject *body
    spans.checked(first, &view)
    with nogil:
        room = room_for(spans, first, stop, &edits.plan, bytes_max)
    body = new_bytes(NULL, room)
    start = end = <uint8_t *> start_of(body)
    with nogil:
        state = put_items(spans, &next, stop, &edits.plan, bytes_max, start, room, &end, view.sys_flag & KEPT)
    _PyBytes_Resize(&body, end - start)
    items = <object> body
    Py_DECREF(items)
    if next == first:
        raise fault_of(spans, next, state)
    return Batch(items, next - first, next, view.sys_flag & KEPT, view.born_time)


cdef object fault_of(Spans spans, Py_ssize_t index, int state):
    cdef int64_t place = spans.base + spans.positions[index]
    if state != TOO_LONG:
        return RecordError(f"the record at {place} changed while it was read")
    return BatchError(
        f"the record at {place}, queue offset {spans.queue_offset(index)}: with what is to be put, its properties have "
        f"over {PROPERTIES_BYTES_MAX} bytes: put less, or leave the message out"
    )


def single(Spans spans not None, Py_ssize_t index, Edits edits not None):
    cdef RecordView view
    cdef Py_ssize_t length
    spans.checked(index, &view)
    text = PyBytes_FromStringAndSize(NULL, edited_bytes_max(&edits.plan, &view))
    length = put_edited(&edits.plan, &view, <uint8_t *> PyBytes_AS_STRING(text)) - <uint8_t *> PyBytes_AS_STRING(text)
    if length > PROPERTIES_BYTES_MAX:
        raise fault_of(spans, index, TOO_LONG)
    body = PyBytes_FromStringAndSize(<const char *> view.body.at, view.body.length)
    return Single(view.flag, body, text[:length], view.sys_flag & KEPT, view.reconsume_times, view.born_time)
