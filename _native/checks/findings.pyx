"""Faults: what a check found wrong (see findings.pxd)."""

from libc.stdlib cimport free, realloc
from libc.string cimport memset

from collections import namedtuple

# type: class Fault(NamedTuple):
# type:     """`times` faults of one kind; the fields describe the first. See findings.pxd."""
# type:
# type:     kind: FaultKind
# type:     owner: int
# type:     number: int
# type:     physical_offset: int
# type:     size: int
# type:     seen: int
# type:     times: int

Fault = namedtuple("Fault", "kind owner number physical_offset size seen times")


cdef inline bint joins(int kind) noexcept nogil:
    """Whether adjacent faults of a kind are one fault: a missing part of a queue or an index."""
    return kind == NO_ENTRY or kind == LOST_RECORD or kind == QUEUE_GAP or kind == NO_KEY


cdef class Faults:
    def __cinit__(self, Py_ssize_t limit=1000):
        # type: (...) -> None
        """Keeps at most `limit` faults of each kind and counts all."""
        if limit < 1:
            raise ValueError(f"a list of {limit} faults")
        self.rows = NULL
        self.limit = limit
        memset(self.totals, 0, sizeof(self.totals))
        memset(self.kept, 0, sizeof(self.kept))

    def __dealloc__(self):
        free(self.rows)

    def __len__(self):
        # type: (...) -> int
        return self.count

    cdef int add(
        self, int kind, int owner, int64_t number, int64_t physical_offset, int64_t size, int64_t seen
    ) except -1:
        cdef FaultRow *row
        self.totals[kind] += 1
        if self.count and joins(kind):
            row = &self.rows[self.count - 1]
            if row.kind == kind and row.owner == owner and row.number + row.count == number:
                row.count += 1
                row.size += size
                return 0
        if self.kept[kind] == self.limit:
            return 0
        if self.count == self.capacity:
            self.grow()
        row = &self.rows[self.count]
        row.kind, row.owner, row.number = kind, owner, number
        row.physical_offset, row.size, row.seen = physical_offset, size, seen
        row.count = 1
        self.count += 1
        self.kept[kind] += 1
        return 0

    cdef int grow(self) except -1:
        cdef Py_ssize_t capacity = max(16, self.capacity * 2)
        cdef FaultRow *larger = <FaultRow *> realloc(self.rows, capacity * sizeof(FaultRow))
        if larger is NULL:
            raise MemoryError()
        self.rows = larger
        self.capacity = capacity
        return 0

    def listed(self):
        # type: (...) -> list[Fault]
        cdef Py_ssize_t n
        cdef FaultRow *row
        found = []
        for n in range(self.count):
            row = &self.rows[n]
            found.append(
                Fault(
                    FaultKind(row.kind), row.owner, row.number, row.physical_offset, row.size, row.seen,
                    row.count,
                )
            )
        return found

    def total(self, int kind):
        # type: (...) -> int
        if not 0 < kind < KINDS_END:
            raise ValueError(f"no kind of fault: {kind}")
        return self.totals[kind]
