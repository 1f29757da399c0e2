"""RowEncoder: encodes rows of columns as messages (see row_encoder.pxd)."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memcpy

from firearrow._native.base.endian cimport get_i32, put_i16, put_i32
from firearrow._native.columnar.arrow_import cimport (
    ByteView, ListArray, ListArrayView, StringArray, items_at, text_at, values_bytes,
)
from firearrow._native.base.text cimport put_decimal
from firearrow._native.store.files.layout cimport (
    KEY_SEPARATOR, NAME_VALUE_SEPARATOR, PROPERTIES_BYTES_MAX, PROPERTY_SEPARATOR,
)

cdef extern from "Python.h":
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *raw, Py_ssize_t size) except NULL
    char *bytes_at "PyBytes_AS_STRING"(PyObject *raw) noexcept
    int resize_bytes "_PyBytes_Resize"(PyObject **raw, Py_ssize_t size) except -1

cdef enum:
    ITEM_FIXED_BYTES = 22
    ITEM_AT_FLAG = 12
    ITEM_AT_BODY_LENGTH = 16
    ITEM_AT_BODY = 20
    ID_DIGITS = 32
    ID_PREFIX_DIGITS = 20
    ID_BYTES_MAX = 10 + ID_DIGITS     # UNIQ_KEY, both separators
    NUMBER_DIGITS = 19
    ITEM_BYTES_MAX = (16 << 20) - (64 << 10)   # of a frame, less the bytes around it

cdef int64_t ID_NUMBERS = <int64_t> 1 << 48
cdef const uint8_t *ID_NAME = b"UNIQ_KEY"
cdef const uint8_t *HEX = b"0123456789ABCDEF"

FAULTS = {
    FAULT_SEPARATOR: "a property holds the byte 1 or 2, which separate properties on the wire",
    FAULT_LONG: f"its properties are over {PROPERTIES_BYTES_MAX} bytes",
    FAULT_LARGE: f"it is over {ITEM_BYTES_MAX} bytes, more than one request carries",
    FAULT_NO_BODY: "its body is null; send empty bytes or leave the row out",
}


cdef inline bint is_id_name(ByteView name) noexcept nogil:
    return name.length == 8 and memcmp(name.at, ID_NAME, 8) == 0


cdef inline void put_raw(uint8_t **at, ByteView text) noexcept nogil:
    memcpy(at[0], text.at, text.length)
    at[0] += text.length


cdef Fault put_text(uint8_t **at, ByteView text) noexcept nogil:
    if (
        memchr(text.at, NAME_VALUE_SEPARATOR, text.length) is not NULL
        or memchr(text.at, PROPERTY_SEPARATOR, text.length) is not NULL
    ):
        return FAULT_SEPARATOR
    put_raw(at, text)
    return FAULT_NONE


cdef Fault put_property(uint8_t **at, ByteView name, ByteView value) noexcept nogil:
    cdef Fault fault = put_text(at, name)
    if fault:
        return fault
    at[0][0] = NAME_VALUE_SEPARATOR
    at[0] += 1
    fault = put_text(at, value)
    at[0][0] = PROPERTY_SEPARATOR
    at[0] += 1
    return fault


cdef Fault put_words(uint8_t **at, const ListArrayView *view, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t count = items_at(view, row, &start)
    cdef Py_ssize_t index
    cdef bint separate = False
    cdef ByteView word
    for index in range(start, start + count):
        if not text_at(&view.items, index, &word):
            continue
        if separate:
            at[0][0] = KEY_SEPARATOR
            at[0] += 1
        if put_text(at, word):
            return FAULT_SEPARATOR
        separate = True
    return FAULT_NONE


cdef Fault put_value(uint8_t **at, const PropertySource *source, Py_ssize_t row) noexcept nogil:
    cdef ByteView text_view
    if source.kind == TEXT:
        text_at(&source.text, row, &text_view)
        return put_text(at, text_view) if text_view.length else FAULT_NONE
    if source.kind == WORDS:
        return put_words(at, &source.words, row)
    if source.kind == CONSTANT:
        put_raw(at, source.constant)
    elif source.numbers[row] >= 0:
        at[0] = put_decimal(at[0], source.numbers[row])
    return FAULT_NONE


cdef Fault put_from(uint8_t **at, const PropertySource *source, Py_ssize_t row, bint *has_id) noexcept nogil:
    """Write the whole property, or nothing if there is no value."""
    cdef uint8_t *start = at[0]
    cdef uint8_t *value
    cdef Fault fault
    put_raw(at, source.name)
    at[0][0] = NAME_VALUE_SEPARATOR
    at[0] += 1
    value = at[0]
    fault = put_value(at, source, row)
    if at[0] == value:
        at[0] = start
        return fault
    at[0][0] = PROPERTY_SEPARATOR
    at[0] += 1
    if source.is_id:
        has_id[0] = True
    return fault


cdef void put_id(uint8_t **at, ByteView prefix, int64_t number) noexcept nogil:
    """UNIQ_KEY: the prefix and the number as 12 hex digits."""
    cdef int shift
    memcpy(at[0], ID_NAME, 8)
    at[0][8] = NAME_VALUE_SEPARATOR
    at[0] += 9
    put_raw(at, prefix)
    for shift in range(44, -4, -4):
        at[0][0] = HEX[number >> shift & 15]
        at[0] += 1
    at[0][0] = PROPERTY_SEPARATOR
    at[0] += 1


cdef Py_ssize_t property_bytes_max(const PropertySource *source, Py_ssize_t row) noexcept nogil:
    """Upper bound of the bytes that are written for the property."""
    cdef Py_ssize_t start = 0, count
    cdef ByteView text_view
    cdef Py_ssize_t fixed = source.name.length + 2
    if source.kind == TEXT:
        text_at(&source.text, row, &text_view)
        return fixed + text_view.length
    if source.kind == NUMBER:
        return fixed + NUMBER_DIGITS
    if source.kind == CONSTANT:
        return fixed + source.constant.length
    count = items_at(&source.words, row, &start)
    return fixed + count + values_bytes(&source.words.items, start, count)


cdef const void *numbers_of(object raw, int width, Py_ssize_t count) except? NULL:
    """The address of `count` numbers."""
    window = memoryview(raw).cast("B")
    if window.nbytes < width * count:
        raise ValueError(f"{window.nbytes // width} numbers for {count} rows")
    cdef const uint8_t[::1] data = window
    return &data[0] if count else NULL


cdef object same_count(object column, Py_ssize_t count):
    if column.count != count:
        raise ValueError(f"a column of {column.count} rows beside one of {count}")
    return column


cdef class RowEncoder:
    """Encodes rows as messages. Any thread.

    Each property comes from a column or a constant; null, empty or below 0: not set. `properties` come
    first, without those named in `dropped` or by a column; a list is joined by spaces. `ids`: 20 hex
    digits and a number; a row without UNIQ_KEY gets one from the digits and the number plus its row.
    """

    def __cinit__(self):
        self.sources = NULL
        self.dropped = NULL

    def __init__(
        self,
        StringArray body not None,
        *,
        texts=None,  # type: Mapping[str, StringArray] | None
        lists=None,  # type: Mapping[str, ListArray] | None
        numbers=None,  # type: Mapping[str, Bytes] | None
        constants=None,  # type: Mapping[str, str] | None
        ListArray properties=None,
        dropped=(),  # type: Iterable[str]
        flags=None,  # type: Bytes | None
        ids=None,  # type: tuple[str, int] | None
    ):
        # type: (...) -> None
        self.keep_alive = [body, properties, flags]
        self.count = body.count
        self.body = body.view
        self.has_pairs = properties is not None
        if properties is not None:
            if not properties.paired:
                raise ValueError("properties are pairs of names and values")
            self.pairs = (<ListArray> same_count(properties, self.count)).view
        self.flags = <const int32_t *> numbers_of(flags, 4, self.count) if flags is not None else NULL
        self.set_ids(ids)
        named = [(name, kind, value) for kind, many in (
            (TEXT, texts), (WORDS, lists), (NUMBER, numbers), (CONSTANT, constants)
        ) for name, value in (many or {}).items()]
        self.set_sources(named)
        self.set_dropped({name for name, _, _ in named} | set(dropped))

    def __dealloc__(self):
        free(self.sources)
        free(self.dropped)

    cdef int set_ids(self, object ids) except -1:
        if ids is None:
            return 0
        prefix, number = ids
        raw = prefix.encode("ascii")
        if len(raw) != ID_PREFIX_DIGITS or not 0 <= number < ID_NUMBERS:
            raise ValueError(
                f"ids are {ID_PREFIX_DIGITS} digits and a number below 2^48, not {prefix!r} and {number}"
            )
        self.id_prefix = self.own_bytes(raw)
        self.id_first = number
        return 0

    cdef int set_sources(self, list named) except -1:
        cdef PropertySource *source
        self.sources = <PropertySource *> calloc(max(1, len(named)), sizeof(PropertySource))
        if self.sources is NULL:
            raise MemoryError()
        for name, kind, value in named:
            source = &self.sources[self.source_count]
            source.kind = kind
            source.name = self.own_bytes(name.encode())
            if kind == CONSTANT and ("\x01" in value or "\x02" in value):
                raise ValueError(f"property {name}: {FAULTS[FAULT_SEPARATOR]}")
            source.is_id = is_id_name(source.name)
            self.keep_alive.append(value)
            if kind == TEXT:
                source.text = (<StringArray?> same_count(value, self.count)).view
            elif kind == WORDS:
                source.words = (<ListArray?> same_count(value, self.count)).view
            elif kind == NUMBER:
                source.numbers = <const int64_t *> numbers_of(value, 8, self.count)
            else:
                source.constant = self.own_bytes(value.encode())
            self.source_count += 1
        return 0

    cdef int set_dropped(self, set names) except -1:
        self.dropped = <ByteView *> calloc(max(1, len(names)), sizeof(ByteView))
        if self.dropped is NULL:
            raise MemoryError()
        for name in names:
            self.dropped[self.dropped_count] = self.own_bytes(name.encode())
            self.dropped_length[min(255, self.dropped[self.dropped_count].length)] = True
            self.dropped_count += 1
        return 0

    cdef ByteView own_bytes(self, bytes raw):
        cdef ByteView view
        self.keep_alive.append(raw)
        view.at = <const uint8_t *> PyBytes_AS_STRING(raw)
        view.length = len(raw)
        return view

    cdef bint is_dropped(self, ByteView name) noexcept nogil:
        cdef Py_ssize_t index
        if not self.dropped_length[min(255, name.length)]:
            return False
        for index in range(self.dropped_count):
            if (
                self.dropped[index].length == name.length
                and memcmp(self.dropped[index].at, name.at, name.length) == 0
            ):
                return True
        return False

    cdef Py_ssize_t item_bytes_max(self, Py_ssize_t row) noexcept nogil:
        """Upper bound of the bytes that are written for the row."""
        cdef Py_ssize_t start = 0, count, index
        cdef ByteView body
        text_at(&self.body, row, &body)
        cdef Py_ssize_t capacity = ITEM_FIXED_BYTES + body.length + ID_BYTES_MAX
        for index in range(self.source_count):
            capacity += property_bytes_max(&self.sources[index], row)
        if self.has_pairs:
            count = items_at(&self.pairs, row, &start)
            capacity += 2 * count
            capacity += values_bytes(&self.pairs.items, start, count)
            capacity += values_bytes(&self.pairs.values, start, count)
        return capacity

    cdef Fault put_item(self, uint8_t **at, Py_ssize_t row) noexcept nogil:
        cdef uint8_t *item = at[0]
        cdef uint8_t *length
        cdef ByteView body
        cdef Fault fault
        if not text_at(&self.body, row, &body) and body.at is NULL:
            return FAULT_NO_BODY
        if body.length > ITEM_BYTES_MAX:
            return FAULT_LARGE
        put_i32(item + 4, 0)
        put_i32(item + 8, 0)
        put_i32(item + ITEM_AT_FLAG, self.flags[row] if self.flags is not NULL else 0)
        put_i32(item + ITEM_AT_BODY_LENGTH, <int32_t> body.length)
        at[0] = item + ITEM_AT_BODY
        put_raw(at, body)
        length = at[0]
        at[0] += 2
        fault = self.put_properties(at, row)
        if fault:
            return fault
        if at[0] - length - 2 > PROPERTIES_BYTES_MAX:
            return FAULT_LONG
        put_i16(length, <int16_t> (at[0] - length - 2))
        put_i32(item, <int32_t> (at[0] - item))
        return FAULT_NONE

    cdef Fault put_properties(self, uint8_t **at, Py_ssize_t row) noexcept nogil:
        cdef bint has_id = False
        cdef Py_ssize_t index
        cdef Fault fault = FAULT_NONE
        if self.has_pairs:
            fault = self.put_pairs(at, row, &has_id)
        for index in range(self.source_count):
            if fault:
                return fault
            fault = put_from(at, &self.sources[index], row, &has_id)
        if not has_id and self.id_prefix.at is not NULL:
            put_id(at, self.id_prefix, self.id_first + row)
        return fault

    cdef Fault put_pairs(self, uint8_t **at, Py_ssize_t row, bint *has_id) noexcept nogil:
        cdef Py_ssize_t start = 0
        cdef Py_ssize_t count = items_at(&self.pairs, row, &start)
        cdef Py_ssize_t index
        cdef ByteView name, value
        cdef Fault fault
        for index in range(start, start + count):
            if not text_at(&self.pairs.items, index, &name) or not text_at(&self.pairs.values, index, &value):
                continue
            if self.is_dropped(name):
                continue
            fault = put_property(at, name, value)
            if fault:
                return fault
            if is_id_name(name):
                has_id[0] = True
        return FAULT_NONE

    def batch(self, order, Py_ssize_t start, *, Py_ssize_t bytes_max, Py_ssize_t count_max):
        # type: (Bytes, int, int, int) -> tuple[bytes, int]
        """The body of a batch request with rows order[start:stop], and `stop`; `order` is int64. At least
        one row.

        ValueError names a row whose body is null, whose property holds a separator (byte 1 or 2), or which
        has more than 32767 bytes of properties.
        """
        cdef const int64_t[::1] rows = memoryview(order).cast("B").cast("q")
        cdef Py_ssize_t stop = start
        cdef Py_ssize_t capacity = 0, more
        cdef bint in_range = True
        if not 0 <= start < rows.shape[0]:
            raise IndexError(f"row {start} of {rows.shape[0]}")
        with nogil:
            while stop < rows.shape[0] and (stop == start or stop - start < count_max):
                in_range = 0 <= rows[stop] < self.count
                if not in_range:
                    break
                more = self.item_bytes_max(rows[stop])
                if stop > start and capacity + more > min(bytes_max, ITEM_BYTES_MAX):
                    break
                capacity += more
                stop += 1
        if not in_range:
            raise IndexError(f"row {rows[stop]} of {self.count}")
        return self.put_all(rows[start:stop], capacity), stop

    cdef bytes put_all(self, const int64_t[::1] rows, Py_ssize_t capacity):
        cdef PyObject *raw = new_bytes(NULL, capacity)
        cdef uint8_t *start = <uint8_t *> bytes_at(raw)
        cdef uint8_t *at = start
        cdef Py_ssize_t index = 0
        cdef Fault fault = FAULT_NONE
        with nogil:
            for index in range(rows.shape[0]):
                fault = self.put_item(&at, rows[index])
                if fault:
                    break
        if fault:
            Py_DECREF(<object> raw)
            raise ValueError(f"row {rows[index]}: {FAULTS[fault]}")
        resize_bytes(&raw, at - start)
        body = <bytes> raw
        Py_DECREF(body)
        return body

    def single(self, Py_ssize_t row):
        # type: (...) -> tuple[int, bytes, bytes]
        """Flag, body and properties of one row. ValueError as above."""
        cdef Py_ssize_t length
        cdef const uint8_t *item
        if not 0 <= row < self.count:
            raise IndexError(f"row {row} of {self.count}")
        cdef bytes whole = self.put_all(
            memoryview(row.to_bytes(8, "little")).cast("q"), self.item_bytes_max(row),
        )
        item = <const uint8_t *> PyBytes_AS_STRING(whole)
        length = get_i32(item + ITEM_AT_BODY_LENGTH)
        return (
            get_i32(item + ITEM_AT_FLAG),
            whole[ITEM_AT_BODY : ITEM_AT_BODY + length],
            whole[ITEM_AT_BODY + length + 2 :],
        )
