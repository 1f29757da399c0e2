# cython: boundscheck=False, wraparound=False
"""Checks the units of a timer log: is each whole and chained to the previous unit of its slot?

Layout of a unit, 52 bytes, big-endian: size i32, previous position of its slot i64, magic i32, write time
i64, delay i32 (both ms), physical offset i64, size of the record i32, hash i32, reserved i64. Reads only. Any
thread, one at a time.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from firearrow._native.base.endian cimport get_i32, get_i64

cdef enum:
    UNIT_BYTES = 52
    AT_PREVIOUS = 4
    AT_MAGIC = 12
    AT_WRITTEN = 16
    AT_DELAY = 24
    AT_PHYSICAL = 28
    AT_SIZE = 36
    BLANK_BYTES = 16
    BLANK_AT_MAGIC = 12
    MAGIC_BITS = 15
cdef int32_t BLANK_MAGIC = <int32_t> 0xCBD43194


cdef class TimerLogSurvey:
    """Checks the units of a timer log, file after file.

    `heads`: slot (time // step) → position of its last unit, for slots at or after `read_ms`. `end`:
    position after the last whole unit. `odd`: position of the first unit that is not chained to a unit of
    its slot, or names a message out of the log's order; -1: none.
    """

    cdef readonly dict heads  # type: dict[int, int]
    cdef readonly int64_t end, odd
    cdef int64_t step_ms, first, start
    cdef int64_t before, last          # physical offsets that the two newest units name; -1: none yet

    def __init__(self, int64_t step_ms, int64_t read_ms, int64_t start):
        # type: (...) -> None
        """`start`: position of the log's first unit."""
        self.heads = {}
        self.step_ms, self.first = step_ms, read_ms // step_ms
        self.start = self.end = start
        self.odd = self.before = self.last = -1

    def check_file(self, const uint8_t[::1] window not None, int64_t base):
        # type: (bytes | bytearray | memoryview | mmap, int) -> bool
        """Check the next file, given whole; returns whether the log continues after it."""
        cdef Py_ssize_t at = 0, length = window.shape[0]
        while at + UNIT_BYTES <= length and is_unit(&window[at], base + at):
            self.see(&window[at], base + at)
            at += UNIT_BYTES
        if at:
            self.end = base + at
        return at + BLANK_BYTES > length or get_i32(&window[at + BLANK_AT_MAGIC]) == BLANK_MAGIC

    cdef int see(self, const uint8_t *unit, int64_t position) except -1:
        cdef int64_t previous = get_i64(unit + AT_PREVIOUS), slot
        cdef int32_t delay = get_i32(unit + AT_DELAY)
        self.order(get_i64(unit + AT_PHYSICAL), position)
        slot = <int64_t> (<uint64_t> get_i64(unit + AT_WRITTEN) + <uint64_t> delay) // self.step_ms
        if delay < 0 or slot < self.first:
            return 0
        if self.odd < 0 and (
            previous < -1
            or (slot > self.first and previous >= self.start and previous != self.heads.get(slot))
        ):
            self.odd = position
        self.heads[slot] = position
        return 0

    cdef void order(self, int64_t physical, int64_t position) noexcept:
        """Units name messages in the order of the log, again from an earlier one after a power cut: a single
        unit out of order between its neighbours names a wrong message."""
        if self.before >= 0 and self.odd < 0:
            if self.last < self.before < physical or self.before < physical < self.last:
                self.odd = position - UNIT_BYTES
        self.before, self.last = self.last, physical


cdef inline bint is_unit(const uint8_t *unit, int64_t position) noexcept nogil:
    return (
        get_i32(unit) == UNIT_BYTES and get_i64(unit + AT_PREVIOUS) < position
        and get_i32(unit + AT_MAGIC) | MAGIC_BITS == MAGIC_BITS and get_i32(unit + AT_SIZE) > 0
        and get_i64(unit + AT_PHYSICAL) >= 0
    )
