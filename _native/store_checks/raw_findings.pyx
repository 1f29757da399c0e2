"""RawFindings: what a compiled check found wrong (see raw_findings.pxd)."""

from libc.stdlib cimport free, realloc
from libc.string cimport memset

from collections import namedtuple

from firearrow._native.store_checks.findings import Kind

# type: class RawFinding(NamedTuple):
# type:     """`times` findings of one kind; the fields describe the first. See raw_findings.pxd."""
# type:
# type:     kind: Kind
# type:     owner: int
# type:     number: int
# type:     physical_offset: int
# type:     size: int
# type:     seen: int
# type:     times: int

RawFinding = namedtuple("RawFinding", "kind owner number physical_offset size seen times")
KINDS = (  # type: tuple[Kind, ...]
    Kind.BAD_CRC, Kind.NO_ENTRY, Kind.WRONG_ENTRY, Kind.WRONG_TAGS, Kind.LOST_RECORD, Kind.QUEUE_GAP,
    Kind.QUEUE_ORDER, Kind.NO_KEY, Kind.WRONG_KEY, Kind.INDEX_CHAIN, Kind.INDEX_SLOT, Kind.INDEX_ORDER,
)
assert len(KINDS) == KINDS_END


cdef inline bint joins(int kind) noexcept nogil:
    """Whether adjacent findings of a kind are one: a missing part of a queue or an index."""
    return kind == NO_ENTRY or kind == LOST_RECORD or kind == QUEUE_GAP or kind == NO_KEY


cdef class RawFindings:
    def __cinit__(self, Py_ssize_t limit=1000):
        # type: (...) -> None
        """Keeps at most `limit` findings of each kind and counts all."""
        if limit < 1:
            raise ValueError(f"a list of {limit} findings")
        self.rows = NULL
        self.limit = limit
        memset(self.counts, 0, sizeof(self.counts))
        memset(self.kept, 0, sizeof(self.kept))

    def __dealloc__(self):
        free(self.rows)

    def __len__(self):
        # type: (...) -> int
        return self.count

    cdef int add(
        self, int kind, int owner, int64_t number, int64_t physical_offset, int64_t size, int64_t seen
    ) except -1:
        cdef FindingRow *row
        self.counts[kind] += 1
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
        cdef FindingRow *larger = <FindingRow *> realloc(self.rows, capacity * sizeof(FindingRow))
        if larger is NULL:
            raise MemoryError()
        self.rows = larger
        self.capacity = capacity
        return 0

    def listed(self):
        # type: (...) -> list[RawFinding]
        cdef Py_ssize_t n
        cdef FindingRow *row
        found = []
        for n in range(self.count):
            row = &self.rows[n]
            found.append(
                RawFinding(
                    KINDS[row.kind], row.owner, row.number, row.physical_offset, row.size, row.seen, row.count
                )
            )
        return found

    def totals(self):
        # type: (...) -> dict[str, int]
        """How many of each kind were found; without those that were not."""
        cdef int n
        return {KINDS[n]: self.counts[n] for n in range(<int> KINDS_END) if self.counts[n]}
