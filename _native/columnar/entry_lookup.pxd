# Records looked up by the entries of a consume queue: 20 bytes each, i64 physical offset, i32 size, i64 tags
# code.
#
# Nothing an entry says is believed: its record must be whole, lie in the window, and say the same of itself.
# A tag that is not asked for is refused on the entry, and the log is not touched. Borrows entries, keeps the
# window. Any thread.

from libc.stdint cimport int64_t, uint8_t

cdef struct EntryQuery:               # what entries and records are compared with
    const int64_t *codes          # ascending; NULL: every tag
    Py_ssize_t code_count
    const uint8_t *topic          # NULL: any queue
    Py_ssize_t topic_bytes
    int64_t queue_id
    bint is_lmq
