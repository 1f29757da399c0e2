# The journal's entries as bytes (broker/append/progress_journal says what they mean): crc32 u32 of all that follows,
# kind u8, bytes of the name u16, number i32, value i64, end i64, name; big-endian.
#
# Notes: the page that entries are written to, one behind the other. Whoever opens it keeps the page, and lets
# go of it before it is closed. Thread: the loop's.

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    ENTRY_HEAD_BYTES = 27
    NOTE_OFFSET = 2                       # the kind of a committed offset: `topic@group`, queue, offset

cdef class JournalPage:
    cdef Py_buffer page                   # `page.obj` is NULL: none
    cdef readonly Py_ssize_t at

    cdef bint append_entry(
        self, uint8_t kind, bytes name, int32_t number, int64_t value, int64_t end, Py_ssize_t kept
    ) except -1
