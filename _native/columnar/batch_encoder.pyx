"""Encodes stored records as bodies of batch requests, without a Python object for each record (see
batch_encoder.pxd)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.base.endian cimport put_i16, put_i32
from firearrow._native.columnar.property_edits cimport PropertyEdits, EditPlan, edited_bytes_max, write_edited
from firearrow._native.columnar.record_spans cimport Spans
from firearrow._native.base.memory cimport copy_far
from firearrow._native.store.files.layout cimport PROPERTIES_BYTES_MAX, SYS_COMPRESSED
from firearrow._native.store.log.record cimport RECORD_OK, RecordView

from collections import namedtuple

import firearrow._native.columnar.property_edits as edits_module
# type: from firearrow._native.columnar.property_edits import PropertyEdits as PropertyEdits
# type: from firearrow._native.columnar.property_edits import REPLAY_BROKER as REPLAY_BROKER
# type: from firearrow._native.columnar.property_edits import REPLAY_JOB as REPLAY_JOB
# type: from firearrow._native.columnar.property_edits import REPLAY_OFFSET as REPLAY_OFFSET
# type: from firearrow._native.columnar.property_edits import REPLAY_QUEUE as REPLAY_QUEUE
# type: from firearrow._native.columnar.property_edits import REPLAY_TOPIC as REPLAY_TOPIC
from firearrow._native.columnar.property_edits import (  # re-exported
    REPLAY_BROKER, REPLAY_JOB, REPLAY_OFFSET, REPLAY_QUEUE, REPLAY_TOPIC,  # no-cython-lint
)
from firearrow._native.store.log.record import RecordError

# type: class Batch(NamedTuple):
# type:     """Records [first, next) as the body of one request.
# type:
# type:     `sys_flag`: the compression bits that all of them share.
# type:     """
# type:
# type:     body: bytes
# type:     count: int  # type: ignore[assignment]
# type:     next: int
# type:     sys_flag: int
# type:     born_ms: int
# type:     """Born time of the first record: a batch has only one."""
# type: class Single(NamedTuple):
# type:     flag: int
# type:     body: bytes
# type:     properties: bytes
# type:     sys_flag: int
# type:     """Compression bits only."""
# type:     reconsume_times: int
# type:     born_ms: int

globals()["PropertyEdits"] = edits_module.PropertyEdits  # a cimported class is not a name of the module

cdef extern from "Python.h":
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *text, Py_ssize_t size) except NULL
    char *start_of "PyBytes_AS_STRING"(PyObject *text) noexcept
    int _PyBytes_Resize(PyObject **text, Py_ssize_t size) except -1

BATCH_BYTES_MAX = (4 << 20) - (256 << 10)  # type: int
"""What a broker accepts in one request (4 MiB), less a margin: a FireArrow broker counts whole records."""
BATCH_COUNT_MAX = 1024  # type: int
"""A FireArrow broker takes at most this many items on its fast path."""
Batch = namedtuple("Batch", "body count next sys_flag born_ms")
Single = namedtuple("Single", "flag body properties sys_flag reconsume_times born_ms")

cdef int32_t KEPT = SYS_COMPRESSED | 0x700    # whether and how it is compressed
cdef enum:
    WRITTEN = 1
    CHANGED = -1
    TOO_LONG = -2


class BatchError(ValueError):
    """A record cannot be sent with these edits; the message names its queue offset."""
    pass


cdef uint8_t *put_item(const EditPlan *plan, const RecordView *view, uint8_t *to) noexcept nogil:
    """Write one item; returns its end, NULL: its properties are too long."""
    cdef uint8_t *properties = to + ITEM_OVER_BYTES + view.body.length
    cdef uint8_t *end = write_edited(plan, view, properties)
    if end - properties > PROPERTIES_BYTES_MAX:
        return NULL
    put_i32(to, <int32_t> (end - to))
    put_i32(to + 4, 0)
    put_i32(to + 8, 0)
    put_i32(to + ITEM_AT_FLAG, view.flag)
    put_i32(to + ITEM_AT_BODY_BYTES, <int32_t> view.body.length)
    copy_far(to + ITEM_HEAD_BYTES, view.body.at, view.body.length)
    put_i16(properties - 2, <short> (end - properties))
    return end


cdef Py_ssize_t item_bytes_max(const EditPlan *plan, const RecordView *view) noexcept nogil:
    return ITEM_OVER_BYTES + view.body.length + edited_bytes_max(plan, view)


cdef Py_ssize_t capacity_for(
    Spans spans, Py_ssize_t first, Py_ssize_t stop, const EditPlan *plan, Py_ssize_t bytes_max
) noexcept nogil:
    """The buffer size for a batch of at most `bytes_max`: up to one record more than fits."""
    cdef RecordView view
    cdef Py_ssize_t capacity = 0
    cdef Py_ssize_t index
    for index in range(first, stop):
        spans.prefetch(index)
        if spans.view(index, &view) != RECORD_OK:
            break
        capacity += item_bytes_max(plan, &view)
        if capacity > bytes_max:
            break
    return capacity


cdef int put_items(
    Spans spans, Py_ssize_t *next, Py_ssize_t stop, const EditPlan *plan, Py_ssize_t bytes_max,
    uint8_t *start,
    Py_ssize_t capacity, uint8_t **end, int32_t sys_flag,
) noexcept nogil:
    """Write records that fit and have the same compression; advances `next` and `end`. A result other than
    WRITTEN refers to record `next`."""
    cdef RecordView view
    cdef uint8_t *to = start
    cdef Py_ssize_t first = next[0]
    while next[0] < stop:
        if spans.view(next[0], &view) != RECORD_OK:
            return CHANGED
        if view.sys_flag & KEPT != sys_flag or item_bytes_max(plan, &view) > capacity - (to - start):
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
    Spans spans not None, Py_ssize_t first, PropertyEdits edits not None, *,
    Py_ssize_t bytes_max=BATCH_BYTES_MAX,
    Py_ssize_t count_max=BATCH_COUNT_MAX,
):
    # type: (...) -> Batch
    """Encode as many records from `first` on as fit and have the same compression; at least one, even if
    it is too large.

    IndexError: there is no record `first`. BatchError: the properties of a record exceed 32,767 bytes.
    RecordError: the bytes of a record have changed since it was found.
    """
    cdef RecordView view
    cdef Py_ssize_t next = first
    cdef Py_ssize_t stop = min(spans.count, first + max(count_max, 1))
    cdef Py_ssize_t capacity
    cdef uint8_t *start
    cdef uint8_t *end
    cdef int state
    cdef PyObject *body
    spans.checked(first, &view)
    with nogil:
        capacity = capacity_for(spans, first, stop, &edits.plan, bytes_max)
    body = new_bytes(NULL, capacity)
    start = end = <uint8_t *> start_of(body)
    with nogil:
        state = put_items(
            spans, &next, stop, &edits.plan, bytes_max, start, capacity, &end, view.sys_flag & KEPT
        )
    _PyBytes_Resize(&body, end - start)
    items = <object> body
    Py_DECREF(items)
    if next == first:
        raise fault_of(spans, next, state)
    return Batch(items, next - first, next, view.sys_flag & KEPT, view.born_time)


cdef object fault_of(Spans spans, Py_ssize_t index, int state):
    cdef int64_t physical_offset = spans.base + spans.positions[index]
    if state != TOO_LONG:
        return RecordError(f"the record at {physical_offset} changed while it was read")
    return BatchError(
        f"the record at {physical_offset}, queue offset {spans.queue_offset(index)}: with what is to be put, "
        f"its properties have over {PROPERTIES_BYTES_MAX} bytes: put less, or leave the message out"
    )


def single(Spans spans not None, Py_ssize_t index, PropertyEdits edits not None):
    # type: (...) -> Single
    """Encode one record for a separate request. Errors as of batch_body."""
    cdef RecordView view
    cdef Py_ssize_t length
    spans.checked(index, &view)
    text = PyBytes_FromStringAndSize(NULL, edited_bytes_max(&edits.plan, &view))
    start = <uint8_t *> PyBytes_AS_STRING(text)
    length = write_edited(&edits.plan, &view, start) - start
    if length > PROPERTIES_BYTES_MAX:
        raise fault_of(spans, index, TOO_LONG)
    body = PyBytes_FromStringAndSize(<const char *> view.body.at, view.body.length)
    return Single(view.flag, body, text[:length], view.sys_flag & KEPT, view.reconsume_times, view.born_time)
