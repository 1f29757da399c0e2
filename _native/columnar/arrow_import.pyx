"""Views of Arrow's string and list columns (see arrow_import.pxd)."""

from libc.stdint cimport int32_t, uint8_t

from firearrow._native.base.hash cimport java_hash_more


# type: Bytes = bytes | bytearray | memoryview


cdef const int32_t *checked_offsets(
    object raw, Py_ssize_t first, Py_ssize_t count, Py_ssize_t most
) except? NULL:
    """Offsets of `count` rows from `first` on, ascending and within 0..most."""
    cdef const int32_t[::1] offsets
    cdef Py_ssize_t index
    cdef bint ordered
    if count == 0:
        return NULL
    offsets = memoryview(raw).cast("B").cast("i")
    ordered = 0 <= first <= offsets.shape[0] and 0 < count < offsets.shape[0] - first
    if ordered:
        with nogil:
            ordered = offsets[first] >= 0 and offsets[first + count] <= most
            for index in range(first, first + count):
                if offsets[index + 1] < offsets[index]:
                    ordered = False
                    break
    if not ordered:
        raise ValueError(f"offsets of {count} rows from row {first} on do not lie within {most}")
    return &offsets[0]


cdef const uint8_t *checked_bits(object raw, Py_ssize_t first, Py_ssize_t count) except? NULL:
    cdef const uint8_t[::1] bits
    if raw is None or count == 0:
        return NULL
    bits = memoryview(raw).cast("B")
    if bits.shape[0] * 8 < first + count:
        raise ValueError(f"{bits.shape[0]} bytes of validity bits for {first + count} rows")
    return &bits[0]


cdef class StringArray:
    """A column of strings or bytes: `count` rows from row `first` on, with int32 offsets and a validity
    bit for each row."""

    def __init__(self, offsets, data, valid, Py_ssize_t first, Py_ssize_t count):
        # type: (Bytes, Bytes, Bytes | None, int, int) -> None
        """ValueError: offsets decrease or are outside the data."""
        cdef const uint8_t[::1] window = memoryview(data).cast("B")
        self.keep_alive = (offsets, data, valid)
        self.count = count
        self.view.offsets = checked_offsets(offsets, first, count, window.shape[0])
        self.view.data = &window[0] if window.shape[0] else <const uint8_t *> b""
        self.view.valid = checked_bits(valid, first, count)
        self.view.first = first

    def hashes(self):
        # type: (...) -> memoryview
        """Java's hash of each string, int32; 0 for a null."""
        cdef bytearray raw = bytearray(4 * self.count)
        cdef int32_t[::1] hashes
        cdef Py_ssize_t index
        cdef ByteView found
        if self.count:
            hashes = memoryview(raw).cast("i")
            with nogil:
                for index in range(self.count):
                    text_at(&self.view, index, &found)
                    hashes[index] = java_hash_more(0, found.at, found.length)
        return memoryview(raw).cast("i")


cdef class ListArray:
    """A column of lists of strings; with `values`, a column of maps from items to values."""

    def __init__(
        self, offsets, valid, Py_ssize_t first, Py_ssize_t count, StringArray items not None,
        StringArray values=None,
    ):
        # type: (Bytes, Bytes | None, int, int, StringArray, StringArray | None) -> None
        self.keep_alive = (offsets, valid, items, values)
        self.count = count
        if values is not None and values.count != items.count:
            raise ValueError(f"{items.count} names, but {values.count} values")
        self.view.offsets = checked_offsets(offsets, first, count, items.count)
        self.view.valid = checked_bits(valid, first, count)
        self.view.first = first
        self.view.items = items.view
        self.paired = values is not None
        if values is not None:
            self.view.values = values.view
