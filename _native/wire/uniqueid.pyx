"""UniqueIds: names that no other process gives, and no other moment (see uniqueid.pxd). Reads the clock itself."""

cimport cython
from cpython.unicode cimport PyUnicode_New
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

cdef extern from "Python.h":
    void *PyUnicode_DATA(object)

cdef enum:
    TAIL = 12                     # ms and counter
    STEP_BACK_MS = 1000000

cdef const char *DIGITS = "0123456789ABCDEF"


@cython.final
cdef class UniqueIds:
    def __init__(self, bytes host not None, int process, bytes salt not None, month_of):
        cdef bytes prefix = (host + (process & 0xFFFF).to_bytes(2, "big") + salt).hex().upper().encode()
        if len(host) not in (4, 16) or len(salt) != 4:
            raise ValueError("a unique id wants 4 or 16 bytes of address and 4 of salt")
        self.prefix_length = len(prefix)
        memcpy(self.prefix, <const char *> prefix, self.prefix_length)
        self.month_of = month_of

    cpdef str next(self):
        cdef timespec now
        clock_gettime(CLOCK_REALTIME, &now)
        return self.at(<int64_t> now.tv_sec * 1000 + now.tv_nsec // 1000000)

    cpdef str at(self, int64_t now_ms):
        cdef int64_t elapsed
        cdef str text
        cdef char *to
        if now_ms >= self.month_end:
            self.month_start, self.month_end = self.month_of(now_ms)
        elapsed = now_ms - self.month_start
        if -STEP_BACK_MS < elapsed < 0:
            elapsed = 0
        text = PyUnicode_New(self.prefix_length + TAIL, 127)
        to = <char *> PyUnicode_DATA(text)
        memcpy(to, self.prefix, self.prefix_length)
        put_hex(to + self.prefix_length, <uint32_t> elapsed, 8)
        put_hex(to + self.prefix_length + 8, self.counter, 4)
        self.counter += 1
        return text


cdef inline void put_hex(char *to, uint32_t value, int digits) noexcept nogil:
    while digits:
        digits -= 1
        to[digits] = DIGITS[value & 15]
        value >>= 4
