"""UniqueIds: ids that are unique across processes and time (see unique_ids.pxd). Reads the clock itself."""

cimport cython
from cpython.unicode cimport PyUnicode_New
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy
from libc.time cimport mktime, time_t, tm

from firearrow._native.base.clock cimport wall_ns
from firearrow._native.wire.text_writer cimport HEXADECIMAL_BYTES, hexadecimal

cdef extern from "base/platform.h" nogil:
    void local_time "fa_local_time"(time_t seconds, tm *found) noexcept

cdef extern from "Python.h":
    void *PyUnicode_DATA(object)

cdef enum:
    TAIL = 12                     # ms and counter
    STEP_BACK_MS = 1000000


@cython.final
cdef class UniqueIds:
    """Ids in the format of the Java client: address, process, salt, ms since the month began, counter; in
    upper-case hex.

    32 characters with an address of 4 bytes, 56 with 16. The month is that of the local clock; a clock that
    steps back by less than 1000 s stands still. Any thread."""

    def __init__(self, bytes host not None, int process, bytes salt not None):
        # type: (...) -> None
        """Only the lower 16 bits of `process` are used."""
        cdef bytes prefix = (host + (process & 0xFFFF).to_bytes(2, "big") + salt).hex().upper().encode()
        if len(host) not in (4, 16) or len(salt) != 4:
            raise ValueError("a unique id needs 4 or 16 bytes of address and 4 of salt")
        memcpy(self.prefix, <const char *> prefix, len(prefix))
        self.length = len(prefix) + TAIL

    cpdef str next(self):
        # type: (...) -> str
        return self.at(wall_ns() // 1000000)

    cpdef str at(self, int64_t now_ms):
        # type: (...) -> str
        """The next id at the time `now_ms`."""
        cdef str text = PyUnicode_New(self.length, 127)
        self.write(<char *> PyUnicode_DATA(text), now_ms)
        return text

    cdef void write(self, char *to, int64_t now_ms) noexcept:
        cdef uint8_t digits[HEXADECIMAL_BYTES]
        cdef int64_t elapsed
        cdef Py_ssize_t prefix = self.length - TAIL
        if now_ms >= self.month_end:
            self.roll_over_month(now_ms)
        elapsed = now_ms - self.month_start
        if -STEP_BACK_MS < elapsed < 0:
            elapsed = 0
        memcpy(to, self.prefix, prefix)
        hexadecimal(digits, <uint64_t> elapsed << 32 | <uint64_t> self.counter << 16)
        memcpy(to + prefix, digits, TAIL)
        self.counter += 1

    cdef void roll_over_month(self, int64_t now_ms) noexcept:
        cdef time_t seconds = now_ms // 1000
        cdef tm now
        local_time(seconds, &now)                 # every i64 of ms has a year
        self.month_start = month_ms(now.tm_year, now.tm_mon)
        self.month_end = month_ms(now.tm_year, now.tm_mon + 1)


cdef inline int64_t month_ms(int year, int month) noexcept nogil:
    """Its start by the local clock, in ms. `month` may be 12: January of the next year."""
    cdef tm first = tm(tm_year=year, tm_mon=month, tm_mday=1, tm_hour=0, tm_min=0, tm_sec=0, tm_isdst=-1)
    return <int64_t> mktime(&first) * 1000
