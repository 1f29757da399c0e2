"""Spans: finds whole records in a log or in a pull response (see record_spans.pxd).

`entry_lookup` finds them by the entries of a queue.
"""

# type: Window = bytes | bytearray | memoryview | mmap

cimport cython
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr
from firearrow._native.base.endian cimport get_i32, get_i64
from firearrow._native.store.files.layout cimport (
    AT_MAGIC, AT_PHYSICAL_OFFSET, AT_SIZE, MAGIC_V1, MAGIC_V2, RECORD_FIXED_BYTES,
)
from firearrow._native.store.log.properties cimport values_of
from firearrow._native.store.log.record cimport (
    RECORD_BAD_CRC, RECORD_BLANK, RECORD_OK, RecordView, check_record, has_its_crc, record_of,
)
from enum import IntEnum
from firearrow._native.store.log.record import RecordError


cdef enum:
    LIKELY_AHEAD = 8
    BODIES_AHEAD = 2

cdef int64_t SIZE_MAX = 0x7FFFFFFF
cdef int64_t NO_LIMIT = 0x7FFFFFFFFFFFFFFF


class End(IntEnum):
    """Why a walk ended."""
    LIMIT = 0
    """`stop`, `count_max` or `bytes_max` was reached."""
    BLANK = 1
    """The segment ends here."""
    UNWRITTEN = 2
    """Zeros: nothing has been written here yet."""
    TORN = 3
    """The bytes are not a whole record, or its physical offset is wrong."""
    BAD_CRC = 4
    """The record's body does not match its crc; its size is known: `next_record` of it."""


cdef enum:
    END_LIMIT = 0
    END_BLANK = 1
    END_UNWRITTEN = 2
    END_TORN = 3
    END_BAD_CRC = 4


@cython.final
cdef class Spans:
    """Whole records in one window of bytes. `base`: physical offset of its first byte. Any thread."""

    def __cinit__(self):
        self.positions = NULL

    def __init__(self):
        raise TypeError("made by walk, from_answer and lookup.from_entries")

    def __dealloc__(self):
        free(self.positions)

    def __len__(self):
        # type: (...) -> int
        return self.count

    def __getitem__(self, Py_ssize_t index):
        # type: (...) -> Record
        """Decode the whole record; slow. IndexError. RecordError: the bytes have changed since it was found.
        """
        cdef RecordView found
        self.checked(index, &found)
        return record_of(&found)

    cdef int ensure_capacity(self, Py_ssize_t count) except -1 nogil:
        cdef int64_t *larger
        if count > self.capacity:
            larger = <int64_t *> realloc(self.positions, count * sizeof(int64_t))
            if larger is NULL:
                with gil:
                    raise MemoryError()
            self.positions = larger
            self.capacity = count
        return 0

    cdef int add(self, int64_t position, int64_t size) except -1 nogil:
        if self.count == self.capacity:
            self.ensure_capacity(max(64, self.capacity * 2))
        self.positions[self.count] = position
        self.count += 1
        self.bytes += size
        return 0

    cdef int view(self, Py_ssize_t index, RecordView *found) noexcept nogil:
        """RECORD_OK, or why it is no longer a record. The caller checks the index."""
        cdef int64_t position = self.positions[index]
        return check_record(self.data + position, self.length - position, SIZE_MAX, False, found)

    cdef void prefetch(self, Py_ssize_t index) noexcept nogil:
        """Prefetch records after `index`, which are read next."""
        if index + HEADS_AHEAD < self.count:
            prefetch_head(self.data + self.positions[index + HEADS_AHEAD])
            prefetch_strings(self.data, self.length, self.positions[index + STRINGS_AHEAD])

    cdef int checked(self, Py_ssize_t index, RecordView *found) except -1:
        if index < 0 or index >= self.count:
            raise IndexError(f"record {index} of {self.count}")
        if self.view(index, found) != RECORD_OK:
            raise RecordError(f"the record at {self.base + self.positions[index]} changed while it was read")
        return 0

    cdef Spans empty(self):
        """Spans without records on the same window."""
        cdef Spans spans = Spans.__new__(Spans)
        spans.buffer = self.buffer
        spans.window = self.window
        spans.data = self.data
        spans.length = self.length
        spans.base = self.base
        return spans

    def position(self, Py_ssize_t index):
        # type: (...) -> int
        """Where record `index` starts in the window."""
        cdef RecordView found
        self.checked(index, &found)
        return self.positions[index]

    def size(self, Py_ssize_t index):
        # type: (...) -> int
        cdef RecordView found
        self.checked(index, &found)
        return found.size

    def queue_id(self, Py_ssize_t index):
        # type: (...) -> int
        cdef RecordView found
        self.checked(index, &found)
        return found.queue_id

    def queue_offset(self, Py_ssize_t index):
        # type: (...) -> int
        cdef RecordView found
        self.checked(index, &found)
        return found.queue_offset

    def store_ms(self, Py_ssize_t index):
        # type: (...) -> int
        cdef RecordView found
        self.checked(index, &found)
        return found.store_time

    def sys_flag(self, Py_ssize_t index):
        # type: (...) -> int
        cdef RecordView found
        self.checked(index, &found)
        return found.sys_flag

    def topic(self, Py_ssize_t index):
        # type: (...) -> str
        cdef RecordView found
        self.checked(index, &found)
        return PyUnicode_DecodeUTF8(<const char *> found.topic.at, found.topic.length, "replace")

    def properties(self, Py_ssize_t index):
        # type: (...) -> dict[str, str]
        cdef RecordView found
        self.checked(index, &found)
        found.body.length = 0             # not copied
        return record_of(&found).properties

    def values(self, Py_ssize_t index, dict names not None):
        # type: (int, dict[builtins.bytes, str]) -> dict[str, str]
        """Properties whose names are in `names` (UTF-8 → the caller's name); of equal names the last."""
        cdef RecordView found
        self.checked(index, &found)
        return values_of(&found.properties, names)

    def record(self, Py_ssize_t index):
        # type: (...) -> memoryview
        """The record's bytes in the window, read-only; the memoryview keeps the window."""
        cdef RecordView found
        self.checked(index, &found)
        return self.buffer[self.positions[index] : self.positions[index] + found.size]

    def wrong_bodies(self):
        # type: (...) -> list[int]
        """Indexes of records whose bodies do not match their CRCs, in order."""
        cdef RecordView found
        cdef Py_ssize_t index
        cdef list wrong = []
        for index in range(self.count):
            self.prefetch(index)
            if index + BODIES_AHEAD < self.count:
                prefetch_body(self.data, self.length, self.positions[index + BODIES_AHEAD])
            if self.view(index, &found) != RECORD_OK or not has_its_crc(&found):
                wrong.append(index)
        return wrong

    def slice(self, Py_ssize_t start, Py_ssize_t stop):
        # type: (...) -> Spans
        """Records [start, stop) on the same window."""
        return self.take(range(max(0, start), min(stop, self.count)))

    def take(self, indexes):
        # type: (Iterable[int]) -> Spans
        """The records with these indexes, in the order given, on the same window. IndexError."""
        cdef Spans part = self.empty()
        cdef Py_ssize_t index
        for index in indexes:
            if index < 0 or index >= self.count:
                raise IndexError(f"record {index} of {self.count}")
            part.add(self.positions[index], get_i32(self.data + self.positions[index] + AT_SIZE))
        return part


cdef Spans of_window(object window, int64_t base):
    cdef Spans spans = Spans.__new__(Spans)
    spans.buffer = memoryview(window).cast("B").toreadonly()
    spans.window = spans.buffer
    spans.length = spans.window.shape[0]
    spans.data = &spans.window[0] if spans.length else NULL
    spans.base = base
    return spans


# ---- consecutive records -----------------------------------------------------------------------------------

def walk(
    window, int64_t start, int64_t stop, *, int64_t base=0, bint check_crc=False, int64_t count_max=NO_LIMIT,
    int64_t bytes_max=NO_LIMIT,
):
    # type: (Window, int, int, int, bool, int, int) -> tuple[Spans, int, End]
    """Find consecutive records from position `start` that begin before `stop`: (records, next position,
    why it ended).

    A record's physical offset must be `base` + its position. At BAD_CRC the next position is after that
    record, which is left out.
    """
    cdef Spans spans = of_window(window, base)
    cdef int64_t at = start
    cdef int end
    if start < 0:
        raise ValueError(f"a walk cannot start at {start}")
    with nogil:
        end = walk_records(spans, &at, min(stop, spans.length), check_crc, count_max, bytes_max)
    return spans, at, End(end)


cdef int walk_records(
    Spans spans, int64_t *next_at, int64_t stop, bint check_crc, int64_t count_max, int64_t bytes_max
) except -1 nogil:
    cdef RecordView view
    cdef int64_t at = next_at[0]
    cdef int state
    while at < stop and spans.count < count_max and spans.bytes < bytes_max:
        state = check_record(spans.data + at, spans.length - at, SIZE_MAX, check_crc, &view)
        if state == RECORD_BAD_CRC and view.physical_offset != spans.base + at:
            state = 0
        if state == RECORD_BLANK or state == RECORD_BAD_CRC:
            next_at[0] = at + view.size
            return END_BLANK if state == RECORD_BLANK else END_BAD_CRC
        if state != RECORD_OK or view.physical_offset != spans.base + at:
            next_at[0] = at
            return END_UNWRITTEN if unwritten(spans, at) else END_TORN
        spans.add(at, view.size)
        at += view.size
        prefetch_likely(spans, at, view.size)
    next_at[0] = at
    return END_LIMIT


cdef inline void prefetch_likely(Spans spans, int64_t at, int64_t size) noexcept nogil:
    """Prefetch where a later record is if all have the same size; most nearly do."""
    cdef int64_t far = at + LIKELY_AHEAD * size
    if far < spans.length - CACHE_LINE:
        prefetch_head(spans.data + far)


cdef bint unwritten(Spans spans, int64_t at) noexcept nogil:
    """Whether size and magic are zero: reserved, nothing written."""
    cdef int64_t left = spans.length - at
    return left < 8 or (get_i32(spans.data + at + AT_SIZE) == 0 and get_i32(spans.data + at + AT_MAGIC) == 0)


def find(window, int64_t start, int64_t stop, *, int64_t base=0):
    # type: (Window, int, int, int) -> int
    """Position of the first whole record that begins in [start, stop) and has the physical offset `base` +
    position; -1: none.

    Use it where a walk cannot continue: the bytes in between are not trusted. A message body can hold a false
    record for its position only if its producer knew the position beforehand."""
    cdef Spans spans = of_window(window, base)
    cdef int64_t at
    if start < 0:
        raise ValueError(f"nothing is found from {start}")
    with nogil:
        at = find_from(spans, start, min(stop, spans.length - RECORD_FIXED_BYTES + 1))
    return at


cdef int64_t find_from(Spans spans, int64_t at, int64_t stop) noexcept nogil:
    """Find the first byte of the magic, then check the whole record."""
    cdef const uint8_t *found
    cdef RecordView view
    cdef int32_t magic
    while at < stop:
        found = <const uint8_t *> memchr(spans.data + at + AT_MAGIC, 0xDA, stop - at)
        if found is NULL:
            return -1
        at = found - spans.data - AT_MAGIC
        magic = get_i32(found)
        if (
            (magic == MAGIC_V1 or magic == MAGIC_V2)
            and get_i64(spans.data + at + AT_PHYSICAL_OFFSET) == spans.base + at
            and check_record(spans.data + at, spans.length - at, SIZE_MAX, False, &view) == RECORD_OK
        ):
            return at
        at += 1
    return -1


# ---- pull response -----------------------------------------------------------------------------------------

def from_answer(body):
    # type: (Window) -> Spans
    """The records of a pull response. RecordError: the body does not consist of whole records."""
    cdef Spans spans = of_window(body, 0)
    cdef int64_t at
    with nogil:
        at = all_of(spans)
    if at < spans.length:
        raise RecordError(f"no whole record {at} bytes into an answer of {spans.length}")
    return spans


cdef int64_t all_of(Spans spans) except -1 nogil:
    """Add whole records; returns where they end."""
    cdef RecordView view
    cdef int64_t at = 0
    while (
        at < spans.length
        and check_record(spans.data + at, spans.length - at, SIZE_MAX, False, &view) == RECORD_OK
    ):
        spans.add(at, view.size)
        at += view.size
    return at
