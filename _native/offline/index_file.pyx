"""Reads an index file: its header, the number of its slots, and the entries of a few keys. Reads only; any
thread.

A search follows the chains of its keys; an impossible chain raises ValueError, so that no entry is missed.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.base.endian cimport get_i32, get_i64
from firearrow._native.store.files.layout cimport (
    INDEX_AT_BEGIN_OFFSET, INDEX_AT_COUNT, INDEX_AT_END_OFFSET, INDEX_AT_SLOTS_USED,
    INDEX_ENTRY_AT_OFFSET, INDEX_ENTRY_AT_PREVIOUS, INDEX_ENTRY_AT_SECONDS, INDEX_ENTRY_BYTES,
    INDEX_HEADER_BYTES, INDEX_SLOT_BYTES,
)

from collections import namedtuple

# type: Window = bytes | bytearray | memoryview | mmap
# type: class IndexHeader(NamedTuple):
# type:     """The header of an index file; times in ms, offsets physical. `next_entry`: its number, 1 in an
# type:     empty file."""
# type:
# type:     begin_ms: int
# type:     end_ms: int
# type:     begin_offset: int
# type:     end_offset: int
# type:     slots_used: int
# type:     next_entry: int

IndexHeader = namedtuple(
    "IndexHeader", "begin_ms end_ms begin_offset end_offset slots_used next_entry",
    module="firearrow._native.offline.index_file",
)

cdef enum:
    APACHE_SLOTS = 5000000
    APACHE_ENTRIES = 20000000
    SAMPLE = 256


cdef int open_index(const uint8_t[::1] data, int64_t slots, Index *index) except -1:
    cdef int64_t capacity
    if (
        data.shape[0] < INDEX_HEADER_BYTES
        or slots < 1
        or slots > (data.shape[0] - INDEX_HEADER_BYTES) // INDEX_SLOT_BYTES
    ):
        raise ValueError(f"{data.shape[0]} bytes are too few for an index file of {slots} slots")
    capacity = (data.shape[0] - INDEX_HEADER_BYTES - slots * INDEX_SLOT_BYTES) // INDEX_ENTRY_BYTES
    index.slot_table = &data[0] + INDEX_HEADER_BYTES
    index.entries = index.slot_table + slots * INDEX_SLOT_BYTES
    index.slots, index.capacity = slots, capacity
    index.count = max(1, get_i32(&data[INDEX_AT_COUNT]))
    if index.count > max(<int64_t> 1, capacity):
        raise ValueError(
            f"the header counts {index.count - 1} entries, "
            f"but the file has space for {max(<int64_t> 0, capacity - 1)}"
        )
    return 0


def head_of(window not None):
    # type: (Window) -> IndexHeader
    """ValueError: shorter than a header."""
    cdef const uint8_t[::1] data = memoryview(window).cast("B")
    if data.shape[0] < INDEX_HEADER_BYTES:
        raise ValueError(f"{data.shape[0]} bytes are too few for the header of an index file")
    return IndexHeader(
        get_i64(&data[0]), get_i64(&data[8]), get_i64(&data[16]), get_i64(&data[24]), get_i32(&data[32]),
        max(1, get_i32(&data[INDEX_AT_COUNT])),
    )


def slots_of(window not None):
    # type: (Window) -> int
    """The number of slots, which the file does not state: from its size if it has Apache's default size,
    else from its first entry. 0: unknown."""
    cdef const uint8_t[::1] data = memoryview(window).cast("B")
    cdef int64_t capacity = (data.shape[0] - INDEX_HEADER_BYTES) // INDEX_SLOT_BYTES
    cdef int64_t slots
    cdef const uint8_t *entry
    cdef Index index
    if data.shape[0] == (
        INDEX_HEADER_BYTES + APACHE_SLOTS * INDEX_SLOT_BYTES + APACHE_ENTRIES * <int64_t> INDEX_ENTRY_BYTES
    ):
        return APACHE_SLOTS
    if data.shape[0] < INDEX_HEADER_BYTES + 2 * INDEX_ENTRY_BYTES or get_i32(&data[INDEX_AT_COUNT]) < 2:
        return 0
    for slots in range(capacity % 5 or 5, capacity - 10 + 1, 5):
        entry = &data[0] + INDEX_HEADER_BYTES + slots * INDEX_SLOT_BYTES + INDEX_ENTRY_BYTES
        if (
            get_i64(entry + INDEX_ENTRY_AT_OFFSET) == get_i64(&data[INDEX_AT_BEGIN_OFFSET])
            and get_i64(entry + INDEX_ENTRY_AT_SECONDS) == 0
        ):
            if slots + get_i32(&data[INDEX_AT_COUNT]) * <int64_t> 5 <= capacity:
                open_index(data, slots, &index)
                if looks_right(&index):
                    return slots
    return 0


cdef bint looks_right(const Index *index) noexcept nogil:
    """Whether most of the first entries look right: hash, ascending offsets, a chain to an earlier entry of
    the same slot, and a slot that points to an entry of that slot."""
    cdef int64_t n, previous, newest, hash, count = min(index.count - 1, <int64_t> SAMPLE)
    cdef int64_t right = 0
    for n in range(1, count + 1):
        hash = get_i32(index.entries + n * INDEX_ENTRY_BYTES)
        previous = get_i32(index.entries + n * INDEX_ENTRY_BYTES + INDEX_ENTRY_AT_PREVIOUS)
        if hash <= 0 or not 0 <= previous < n or (n > 1 and offset_of(index, n) < offset_of(index, n - 1)):
            continue
        if (
            previous == 0
            or get_i32(index.entries + previous * INDEX_ENTRY_BYTES) % index.slots == hash % index.slots
        ):
            newest = get_i32(index.slot_table + hash % index.slots * INDEX_SLOT_BYTES)
            right += (
                n <= newest < index.capacity
                and get_i32(index.entries + newest * INDEX_ENTRY_BYTES) % index.slots == hash % index.slots
            )
    return 4 * right >= 3 * count


def covered_by(window not None, int64_t slots):
    # type: (Window, int) -> tuple[int, int]
    """The first and the last physical offset that the file covers, from its header. Keys of records
    between them are in it; keys of these two records may be in neighbour files. Both 0: no entries.

    ValueError: the header does not fit the entries or the slots, so the file is damaged.
    """
    cdef const uint8_t[::1] data = memoryview(window).cast("B")
    cdef Index index
    cdef int64_t begin, end, last, slot, used = 0
    cdef int32_t counted
    if data.shape[0] < INDEX_HEADER_BYTES:
        raise ValueError(f"{data.shape[0]} bytes are too few for the header of an index file")
    counted = get_i32(&data[INDEX_AT_SLOTS_USED])
    begin, end = get_i64(&data[INDEX_AT_BEGIN_OFFSET]), get_i64(&data[INDEX_AT_END_OFFSET])
    open_index(data, slots, &index)  # last: its count is not older than the end, if a broker writes
    if index.count < 2:
        return 0, 0
    last = offset_of(&index, index.count - 1)
    if index.count < index.capacity:
        last = max(last, offset_of(&index, index.count))
    if begin != offset_of(&index, 1) or not begin <= end <= last:
        raise ValueError(
            f"its header has offsets {begin} to {end}, its entries have {offset_of(&index, 1)} to {last}"
        )
    for slot in range(slots):
        used += get_i32(index.slot_table + slot * INDEX_SLOT_BYTES) != 0
    if used < counted:
        raise ValueError(f"its header counts {counted} used slots, but there are {used}")
    return begin, end


def find_keys(
    window not None, int64_t slots, hashes, *, int64_t offset_from, int64_t offset_to, int64_t most
):
    # type: (Window, int, Iterable[int], int, int, int) -> list[tuple[int, int]]
    """Hash and physical offset of the entries with these hashes (32 bit, not negative) that point into
    [`offset_from`, `offset_to`). Stops when it has more than `most`.

    ValueError: a chain is impossible, so the file is damaged.
    """
    cdef const uint8_t[::1] data = memoryview(window).cast("B")
    cdef Index index
    cdef int32_t target
    cdef list found = []
    cdef int64_t end
    open_index(data, slots, &index)
    end = get_i64(&data[INDEX_AT_END_OFFSET])  # read after the count: not older than the last entry but one
    for target in hashes:
        if target >= 0 and len(found) <= most:
            follow_one(&index, end, target, offset_from, offset_to, most, found)
    return found


cdef int follow_one(
    const Index *index, int64_t end, int32_t target, int64_t offset_from, int64_t offset_to, int64_t most,
    list found
) except -1:
    """Numbers and offsets decrease from entry to entry, so the loop ends. Slots may be newer than the
    header's count."""
    cdef int64_t slot = target % index.slots
    cdef int64_t n = get_i32(index.slot_table + slot * INDEX_SLOT_BYTES), before = index.capacity
    cdef int64_t offset, lowest = offset_of(index, 1), highest = 0x7FFFFFFFFFFFFFFF
    cdef int32_t hash
    while n != 0 and len(found) <= most:
        if not 0 < n < before:
            raise ValueError(
                f"the chain of slot {slot} continues at entry {n}, which is not an earlier entry"
            )
        hash, offset = get_i32(index.entries + n * INDEX_ENTRY_BYTES), offset_of(index, n)
        if n < index.count - 1:
            highest = min(highest, end)
        if hash < 0 or hash % index.slots != slot or not lowest <= offset <= highest:
            raise ValueError(f"entry {n} in the chain of slot {slot} does not belong to it")
        if hash == target and offset_from <= offset < offset_to:
            found.append((target, offset))
        before, highest = n, offset
        n = get_i32(index.entries + n * INDEX_ENTRY_BYTES + INDEX_ENTRY_AT_PREVIOUS)
    return 0
