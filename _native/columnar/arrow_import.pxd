# Views of string columns and of columns of string lists in Arrow's memory layout. Does not need Arrow: it
# sees buffers and offsets only.
#
#   strings  offsets[first + i] .. offsets[first + i + 1] of data; bit first + i of valid, NULL: no nulls
#   lists    the same of items, which are strings
#   pairs    the same of names and values
#
# Ownership: a column holds its buffers, a view points into them. The constructor checks the offsets once; the
# caller must not change the buffers afterwards.

cimport cython
from libc.stdint cimport int32_t, uint8_t

cdef struct ByteView:
    const uint8_t *at
    Py_ssize_t length

cdef struct StringArrayView:
    const int32_t *offsets
    const uint8_t *data
    const uint8_t *valid              # NULL: no nulls
    Py_ssize_t first

cdef struct ListArrayView:
    const int32_t *offsets
    const uint8_t *valid
    Py_ssize_t first
    StringArrayView items
    StringArrayView values                  # of pairs only


@cython.final
cdef class StringArray:
    cdef object keep_alive
    cdef StringArrayView view
    cdef readonly Py_ssize_t count


@cython.final
cdef class ListArray:
    cdef object keep_alive
    cdef ListArrayView view
    cdef readonly bint paired
    cdef readonly Py_ssize_t count


cdef inline bint is_valid(const uint8_t *bits, Py_ssize_t index) noexcept nogil:
    return bits is NULL or bits[index >> 3] >> (index & 7) & 1


cdef inline bint text_at(const StringArrayView *view, Py_ssize_t index, ByteView *found) noexcept nogil:
    """False: the string is null (`at` is NULL then) or empty."""
    cdef Py_ssize_t row = view.first + index
    found.length = 0
    if not is_valid(view.valid, row):
        found.at = NULL
        return False
    found.at = view.data + view.offsets[row]
    found.length = view.offsets[row + 1] - view.offsets[row]
    return found.length > 0


cdef inline Py_ssize_t items_at(
    const ListArrayView *view, Py_ssize_t index, Py_ssize_t *start,
) noexcept nogil:
    """Number of items of the row; `start` becomes the index of the first."""
    cdef Py_ssize_t row = view.first + index
    start[0] = 0
    if not is_valid(view.valid, row):
        return 0
    start[0] = view.offsets[row]
    return view.offsets[row + 1] - view.offsets[row]


cdef inline Py_ssize_t values_bytes(
    const StringArrayView *view, Py_ssize_t start, Py_ssize_t count,
) noexcept nogil:
    """Bytes of items [start, start + count), including those of nulls."""
    cdef Py_ssize_t row = view.first + start
    return view.offsets[row + count] - view.offsets[row] if count else 0
