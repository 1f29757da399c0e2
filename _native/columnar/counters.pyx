"""NameCounters: counts messages and bytes by name (see counters.pxd)."""

from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy


cdef inline uint64_t mixed(uint64_t value) noexcept nogil:
    value ^= value >> 32
    value *= <uint64_t> 0x9E3779B97F4A7C15
    return value ^ (value >> 29)


cdef uint64_t hash_of(int64_t owner, const uint8_t *at, Py_ssize_t length) noexcept nogil:
    cdef uint64_t value = mixed(<uint64_t> owner + <uint64_t> length)
    cdef uint64_t word
    while length >= 8:
        memcpy(&word, at, 8)
        value = mixed(value ^ word)
        at += 8
        length -= 8
    word = 0
    memcpy(&word, at, length)
    return mixed(value ^ word)


cdef int by_number(const void *left, const void *right) noexcept nogil:
    cdef int64_t a = (<const int64_t *> left)[0]
    cdef int64_t b = (<const int64_t *> right)[0]
    return (a > b) - (a < b)


cdef inline bint same(
    const NameRow *row, uint64_t hash, int64_t owner, const uint8_t *at, Py_ssize_t length
) noexcept nogil:
    return (
        row.hash == hash
        and row.owner == owner
        and row.length == length
        and memcmp(row.at, at, length) == 0
    )


cdef class NameCounters:
    """Counts messages and bytes by name; see counters.pxd. One thread."""

    def __cinit__(self, Py_ssize_t limit=0):
        # type: (...) -> None
        """`limit` 0: no limit."""
        self.limit = limit
        self.last = -1

    def __dealloc__(self):
        cdef Py_ssize_t n
        for n in range(self.count):
            free(self.rows[n].at)
        free(self.rows)
        free(self.table)

    def __len__(self):
        # type: (...) -> int
        return self.count

    cdef Py_ssize_t number_of(self, int64_t owner, const uint8_t *at, Py_ssize_t length) except -1:
        """The name's row, made if it is new. Most names repeat: the last one is tried first."""
        cdef uint64_t hash
        cdef uint64_t slot
        cdef NameRow *row
        if self.last >= 0:
            row = &self.rows[self.last]
            if row.owner == owner and row.length == length and memcmp(row.at, at, length) == 0:
                return self.last
        hash = hash_of(owner, at, length)
        if self.capacity:
            slot = hash & <uint64_t> (2 * self.capacity - 1)
            while self.table[slot]:
                row = &self.rows[self.table[slot] - 1]
                if same(row, hash, owner, at, length):
                    self.last = self.table[slot] - 1
                    return self.last
                slot = (slot + 1) & <uint64_t> (2 * self.capacity - 1)
        return self.make(hash, owner, at, length)

    cdef Py_ssize_t make(self, uint64_t hash, int64_t owner, const uint8_t *at, Py_ssize_t length) except -1:
        cdef uint64_t slot
        cdef NameRow *row
        if self.limit and self.count >= self.limit:
            self.prune()
        if self.count == self.capacity:
            self.grow()
        row = &self.rows[self.count]
        row.at = <uint8_t *> malloc(length if length else 1)
        if row.at is NULL:
            raise MemoryError()
        memcpy(row.at, at, length)
        row.hash, row.owner, row.length = hash, owner, <int32_t> length
        row.messages = row.bytes = 0
        slot = hash & <uint64_t> (2 * self.capacity - 1)
        while self.table[slot]:
            slot = (slot + 1) & <uint64_t> (2 * self.capacity - 1)
        self.last = self.count
        self.count += 1
        self.table[slot] = <int32_t> self.count
        return self.last

    cdef int grow(self) except -1:
        """Double the rows; the table has twice as many slots as rows."""
        cdef Py_ssize_t capacity = max(<Py_ssize_t> 64, self.capacity * 2)
        cdef NameRow *rows = <NameRow *> realloc(self.rows, capacity * sizeof(NameRow))
        cdef int32_t *table
        if rows is NULL:
            raise MemoryError()
        self.rows = rows
        table = <int32_t *> calloc(2 * capacity, sizeof(int32_t))
        if table is NULL:
            raise MemoryError()
        free(self.table)
        self.table = table
        self.capacity = capacity
        self.index()
        return 0

    cdef void index(self) noexcept:
        """Fill the empty table."""
        cdef Py_ssize_t n
        cdef uint64_t slot
        for n in range(self.count):
            slot = self.rows[n].hash & <uint64_t> (2 * self.capacity - 1)
            while self.table[slot]:
                slot = (slot + 1) & <uint64_t> (2 * self.capacity - 1)
            self.table[slot] = <int32_t> (n + 1)

    cdef int prune(self) except -1:
        """Drop the half with the fewest messages."""
        cdef Py_ssize_t n, kept = 0
        cdef int64_t *counts = <int64_t *> malloc(self.count * sizeof(int64_t))
        cdef int64_t middle
        if counts is NULL:
            raise MemoryError()
        for n in range(self.count):
            counts[n] = self.rows[n].messages
        qsort(counts, self.count, sizeof(int64_t), by_number)
        middle = counts[self.count // 2]
        free(counts)
        for n in range(self.count):
            if self.rows[n].messages > middle:
                self.rows[kept] = self.rows[n]
                kept += 1
            else:
                self.rest_messages += self.rows[n].messages
                self.rest_bytes += self.rows[n].bytes
                free(self.rows[n].at)
        self.count = kept
        self.last = -1
        self.pruned = True
        for n in range(2 * self.capacity):
            self.table[n] = 0
        self.index()
        return 0

    cdef int record(self, int64_t owner, const uint8_t *at, Py_ssize_t length, int64_t bytes) except -1:
        """Count one message."""
        cdef NameRow *row = &self.rows[self.number_of(owner, at, length)]
        row.messages += 1
        row.bytes += bytes
        return 0

    cdef object text(self, Py_ssize_t number):
        return (<const char *> self.rows[number].at)[:self.rows[number].length]

    def add(self, int64_t owner, bytes name not None, int64_t nbytes):
        # type: (...) -> None
        """Count one more message."""
        self.record(owner, <const uint8_t *> <const char *> name, len(name), nbytes)

    def items(self):
        # type: (...) -> list[tuple[int, bytes, int, int]]
        """(owner, name, messages, bytes)."""
        cdef Py_ssize_t n
        return [
            (self.rows[n].owner, self.text(n), self.rows[n].messages, self.rows[n].bytes)
            for n in range(self.count)
        ]
