"""JournalPage: appends journal entries to a page (see journal_page.pxd), one for each pull that commits."""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from firearrow._native.base.endian cimport put_i16, put_i32, put_i64
from firearrow._native.base.hash cimport whole_crc


cdef class JournalPage:
    """The page that journal entries are appended to. Initially there is none, and `put` returns False."""

    def __dealloc__(self):
        self.release_page()

    def open(self, page not None, Py_ssize_t at):
        # type: (Buffer, int) -> None
        """Append to this page from `at` on. BufferError: it is not writable; ValueError: `at` is outside
        it."""
        self.release_page()
        PyObject_GetBuffer(page, &self.page, PyBUF_WRITABLE)
        if not 0 <= at <= self.page.len:
            length = self.page.len
            self.release_page()
            raise ValueError(f"position {at} is outside a page of {length} bytes")
        self.at = at

    def release_page(self):
        # type: (...) -> None
        """Release the page, so that it can be closed."""
        PyBuffer_Release(&self.page)
        self.page.len = self.at = 0

    def put(
        self, uint8_t kind, bytes name not None, int32_t number, int64_t value, int64_t end, Py_ssize_t kept=0
    ):
        # type: (...) -> bool
        """Append one entry; False: it does not fit with `kept` bytes left after it. ValueError: the name is
        too long; OverflowError: a number is too large."""
        return self.append_entry(kind, name, number, value, end, kept)

    cdef bint append_entry(
        self, uint8_t kind, bytes name, int32_t number, int64_t value, int64_t end, Py_ssize_t kept
    ) except -1:
        cdef Py_ssize_t length = PyBytes_GET_SIZE(name)
        cdef Py_ssize_t size = ENTRY_HEAD_BYTES + length
        cdef uint8_t *to
        if kept < 0 or length > 0xFFFF:
            raise ValueError(f"the name has {length} bytes, at most 65535; kept is {kept}, at least 0")
        if size + kept > self.page.len - self.at:
            return False
        to = <uint8_t *> self.page.buf + self.at
        to[4] = kind
        put_i16(to + 5, <short> length)
        put_i32(to + 7, number)
        put_i64(to + 11, value)
        put_i64(to + 19, end)
        memcpy(to + ENTRY_HEAD_BYTES, PyBytes_AS_STRING(name), length)
        put_i32(to, <int32_t> whole_crc(to + 4, size - 4))
        self.at += size
        return True
