# Index: an index file that is open, its header compared with its size.

from libc.stdint cimport int64_t, uint8_t

from firearrow._native.base.endian cimport get_i64
from firearrow._native.store.files.layout cimport INDEX_ENTRY_AT_OFFSET, INDEX_ENTRY_BYTES

cdef struct Index:
    const uint8_t *entries     # entry 0, which is never used
    const uint8_t *slot_table
    int64_t slots, count, capacity

cdef inline int64_t offset_of(const Index *index, int64_t n) noexcept nogil:
    return get_i64(index.entries + n * INDEX_ENTRY_BYTES + INDEX_ENTRY_AT_OFFSET)

cdef int open_index(const uint8_t[::1] data, int64_t slots, Index *index) except -1
