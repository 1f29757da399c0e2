# JournalPage: the page that journal entries are appended to (broker/append/progress_journal defines their
# meaning). An entry: u32 crc32 of all that follows, u8 kind, u16 bytes of the name, i32 number, i64 value,
# i64 end, name; big-endian.
#
# The caller of `open` owns the page and calls `release_page` before it closes it. Thread: the loop's.

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    ENTRY_HEAD_BYTES = 27
    OFFSET_ENTRY = 2                      # kind of a committed offset: `topic@group`, queue, offset

cdef class JournalPage:
    cdef Py_buffer page                   # `page.obj` is NULL: no page
    cdef readonly Py_ssize_t at  # Position of the next entry.

    cdef bint append_entry(
        self, uint8_t kind, bytes name, int32_t number, int64_t value, int64_t end, Py_ssize_t kept
    ) except -1
