from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc

from firearrow._native.store.bytes cimport get_i32, get_i64
from firearrow._native.store.layout cimport (
    AT_MAGIC, AT_SIZE, ENTRY_AT_SIZE, ENTRY_AT_TAGS, ENTRY_BYTES,
)
from firearrow._native.store.record cimport (
    RECORD_BAD_CRC, RECORD_BLANK, RECORD_OK, RecordView, check_record, record_of,
)

from enum import IntEnum

from firearrow._native.store.record import RecordError

cdef int64_t SIZE_MAX = 0x7FFFFFFF
cdef int64_t NO_LIMIT = 0x7FFFFFFFFFFFFFFF


class End(IntEnum):
    LIMIT = 0
    BLANK = 1
    UNWRITTEN = 2
    TORN = 3
    BAD_CRC = 4


cdef class Spans:
    def __cinit__(self):
        self.positions = NULL

    def __init__(self):
        raise TypeError("made by walk, from_entries and from_answer")

    def __dealloc__(self):
        free(self.positions)

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t index):
        cdef RecordView found
        self.checked(index, &found)
        return record_of(&found)

    cdef void add(self, int64_t position, int64_t size) except *:
        cdef Py_ssize_t room
        cdef int64_t *larger
        if self.count == self.room:
            room = max(64, self.room * 2)
            larger = <int64_t *> realloc(self.positions, room * sizeof(int64_t))
            if larger is NULL:
                raise MemoryError()
            self.positions = larger
            self.room = room
        self.positions[self.count] = position
        self.count += 1
        self.bytes += size

    cdef int view(self, Py_ssize_t index, RecordView *found) noexcept nogil:
        """RECORD_OK, or why not any more. The index is the caller's care."""
        cdef int64_t position = self.positions[index]
        return check_record(self.data + position, self.length - position, SIZE_MAX, False, found)

    cdef int checked(self, Py_ssize_t index, RecordView *found) except -1:
        if index < 0 or index >= self.count:
            raise IndexError(f"record {index} of {self.count}")
        if self.view(index, found) != RECORD_OK:
            raise RecordError(f"the record at {self.base + self.positions[index]} changed while it was read")
        return 0

    cdef Spans empty(self):
        """None of the records, on the same window."""
        cdef Spans spans = Spans.__new__(Spans)
        spans.window = self.window
        spans.data = self.data
        spans.length = self.length
        spans.base = self.base
        return spans

    def position(self, Py_ssize_t index):
        cdef RecordView found
        self.checked(index, &found)
        return self.positions[index]

    def size(self, Py_ssize_t index):
        cdef RecordView found
        self.checked(index, &found)
        return found.size

    def queue_offset(self, Py_ssize_t index):
        cdef RecordView found
        self.checked(index, &found)
        return found.queue_offset

    def store_ms(self, Py_ssize_t index):
        cdef RecordView found
        self.checked(index, &found)
        return found.store_time

    def sys_flag(self, Py_ssize_t index):
        cdef RecordView found
        self.checked(index, &found)
        return found.sys_flag

    def topic(self, Py_ssize_t index):
        cdef RecordView found
        self.checked(index, &found)
        return PyUnicode_DecodeUTF8(<const char *> found.topic.at, found.topic.length, "replace")

    def properties(self, Py_ssize_t index):
        cdef RecordView found
        self.checked(index, &found)
        return record_of(&found).properties

    def slice(self, Py_ssize_t start, Py_ssize_t stop):
        cdef Spans part = self.empty()
        cdef Py_ssize_t index
        for index in range(max(0, start), min(stop, self.count)):
            part.add(self.positions[index], get_i32(self.data + self.positions[index] + AT_SIZE))
        return part


cdef Spans of_window(object window, int64_t base):
    cdef Spans spans = Spans.__new__(Spans)
    spans.window = memoryview(window).cast("B")
    spans.length = spans.window.shape[0]
    spans.data = &spans.window[0] if spans.length else NULL
    spans.base = base
    return spans


def walk(
    window, int64_t start, int64_t stop, *, int64_t base=0, bint check_crc=False, int64_t count_max=NO_LIMIT,
    int64_t bytes_max=NO_LIMIT,
):
    cdef Spans spans = of_window(window, base)
    cdef int64_t at = start
    cdef RecordView view
    cdef int state
    if start < 0:
        raise ValueError(f"a walk cannot start at {start}")
    stop = min(stop, spans.length)
    while at < stop and spans.count < count_max and spans.bytes < bytes_max:
        state = check_record(spans.data + at, spans.length - at, SIZE_MAX, check_crc, &view)
        if state == RECORD_BLANK:
            return spans, at + view.size, End.BLANK
        if state == RECORD_BAD_CRC:
            return spans, at + view.size, End.BAD_CRC
        if state != RECORD_OK or view.physical_offset != base + at:
            return spans, at, End.UNWRITTEN if unwritten(spans, at) else End.TORN
        spans.add(at, view.size)
        at += view.size
    return spans, at, End.LIMIT


cdef bint unwritten(Spans spans, int64_t at) noexcept nogil:
    """Whether a record's head is all zeros, as files are reserved."""
    cdef int64_t left = spans.length - at
    return left < 8 or (get_i32(spans.data + at + AT_SIZE) == 0 and get_i32(spans.data + at + AT_MAGIC) == 0)


def from_entries(window, entries, *, int64_t base, int64_t first, frozenset tags=None):
    cdef Spans spans = of_window(window, base)
    cdef const uint8_t[::1] rows = memoryview(entries).cast("B")
    cdef Py_ssize_t count = rows.shape[0] // ENTRY_BYTES
    cdef Py_ssize_t index
    cdef const uint8_t *entry
    cdef int64_t place
    cdef int32_t size
    cdef RecordView view
    for index in range(count):
        entry = &rows[index * ENTRY_BYTES]
        place = get_i64(entry) - base
        size = get_i32(entry + ENTRY_AT_SIZE)
        if place < 0 or place >= spans.length:
            return spans, index
        if tags is not None and get_i64(entry + ENTRY_AT_TAGS) not in tags:
            continue
        if (
            check_record(spans.data + place, spans.length - place, SIZE_MAX, False, &view) != RECORD_OK
            or view.size != size
            or view.queue_offset != first + index
        ):
            raise RecordError(f"queue offset {first + index}: no such record at {base + place}")
        spans.add(place, size)
    return spans, count


def from_answer(body):
    cdef Spans spans = of_window(body, 0)
    cdef int64_t at = 0
    cdef RecordView view
    while at < spans.length:
        if check_record(spans.data + at, spans.length - at, SIZE_MAX, False, &view) != RECORD_OK:
            raise RecordError(f"no whole record {at} bytes into an answer of {spans.length}")
        spans.add(at, view.size)
        at += view.size
    return spans
