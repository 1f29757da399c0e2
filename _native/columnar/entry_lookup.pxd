# Finds the records that consume queue entries point to. An entry has 20 bytes: i64 physical offset, i32 size,
# i64 tags code.
#
# An entry is not trusted: its record must be whole, be in the window, and have the same size and offsets. A
# tag that the query does not name is rejected by the entry's code, without a read of the log. Borrows the
# entries, keeps the window. Any thread.

from libc.stdint cimport int64_t, uint8_t

cdef struct EntryQuery:               # what entries and records are compared with
    const int64_t *codes          # ascending; NULL: every tag
    Py_ssize_t code_count
    const uint8_t *topic          # NULL: any queue
    Py_ssize_t topic_bytes
    int64_t queue_id
    bint is_lmq
