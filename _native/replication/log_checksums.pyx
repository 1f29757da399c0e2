"""LogChecksums: CRC-32C of ranges of the log, kept for each whole MiB (see log_checksums.pxd)."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t

from firearrow._native.base.hash cimport crc32c_append_mib, crc32c_more

cdef enum:
    MIB = 1 << 20

MIB_BYTES = MIB  # type: int
KEPT_MAX = 1 << 16  # type: int
"""Most MiBs whose checksum is kept; those computed first are forgotten."""


@cython.final
cdef class LogChecksums:
    """CRC-32C of ranges of the log. A whole MiB (its offset is a multiple of 1 MiB) is read once; what is
    not kept costs the loop 0.2 to 0.6 ms a MiB, or the reading from the disk.

    LookupError: the log does not have the range. OSError.
    """

    def __init__(self, MessageStore store not None):
        # type: (...) -> None
        self.store = store
        self.kept = {}

    def between(self, int64_t start, int64_t end):
        # type: (...) -> int
        """Of the bytes from `start` to `end`."""
        cdef uint32_t crc = 0
        cdef int64_t border = min(end, start + (MIB - start % MIB) % MIB)
        self.check(start, end)
        crc = self.continued(crc, start, border)
        while end - border >= MIB:
            crc = crc32c_append_mib(crc, self.whole_mib(border // MIB))
            border += MIB
        return self.continued(crc, border, end)

    def chained(self, int64_t start, int64_t end):
        # type: (...) -> list[int]
        """Of `start` to each later multiple of 1 MiB, and to `end`: where two logs differ, so do all later
        ones. ValueError: `start` is not a multiple."""
        cdef uint32_t crc = 0
        cdef list chain = []
        self.check(start, end)
        if start % MIB:
            raise ValueError(f"a chain begins at a whole MiB, not at {start}")
        while end - start >= MIB:
            crc = crc32c_append_mib(crc, self.whole_mib(start // MIB))
            start += MIB
            chain.append(crc)
        if start < end:
            chain.append(self.continued(crc, start, end))
        return chain

    def drop_from(self, int64_t offset):
        # type: (...) -> None
        """The log was truncated here: forget what came later. To be called before the log grows again."""
        for number in [each for each in self.kept if (each + 1) * MIB > offset]:
            del self.kept[number]

    @property
    def kept_count(self):
        # type: (...) -> int
        return len(self.kept)

    def check(self, int64_t start, int64_t end):
        cdef int64_t first = self.store.log.start(), written = self.store.log.written
        if not first <= start <= end <= written:
            raise LookupError(f"the log has {first} to {written}, not {start} to {end}")

    cdef uint32_t whole_mib(self, int64_t number) except? 0:
        cdef uint32_t crc
        found = self.kept.get(number)
        if found is not None:
            return found
        crc = self.continued(0, number * MIB, (number + 1) * MIB)
        if len(self.kept) >= KEPT_MAX:
            del self.kept[next(iter(self.kept))]
        self.kept[number] = crc
        return crc

    cdef uint32_t continued(self, uint32_t crc, int64_t start, int64_t end) except? 0:
        """OSError, LookupError."""
        cdef Py_buffer view
        while start < end:
            part = self.store.log_bytes(start, end - start)
            if part is None:
                raise LookupError(f"the log has nothing at {start}")
            with part:
                PyObject_GetBuffer(part, &view, PyBUF_SIMPLE)
                with nogil:
                    crc = crc32c_more(crc, <const uint8_t *> view.buf, view.len)
                start += view.len
                PyBuffer_Release(&view)
        return crc
