"""Checks the entries of an index file: their chains in one pass, and their keys in the order of the log.
Reads only; one thread for each survey.

Both brokers add keys to the index in the order of the log, so entries and records are merged, and no chain is
followed for each key. Binary search looks at three neighbours, so that one bad entry does not mislead it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

from firearrow._native.base.endian cimport get_i32
from firearrow._native.offline.index_file cimport Index, offset_of, open_index
from firearrow._native.store.files.layout cimport (
    INDEX_ENTRY_AT_PREVIOUS, INDEX_ENTRY_BYTES, INDEX_SLOT_BYTES,
)
from firearrow._native.store_checks.log_records cimport KeyRow, Survey
from firearrow._native.store_checks.raw_findings cimport (
    INDEX_CHAIN, INDEX_ORDER, INDEX_SLOT, NO_KEY, WRONG_KEY, RawFindings,
)

# type: Window = bytes | bytearray | memoryview | mmap


def check_chains(
    window not None, int64_t slots, *, bint growing, RawFindings findings not None, int owner=-1
):
    # type: (Window, int, bool, RawFindings, int) -> int
    """Check entries, their chains and the slots; returns the number of entries. `growing`: slots may be
    newer than the count that was read.

    ValueError: the file is too short for its slots and its count.
    """
    cdef const uint8_t[::1] data = memoryview(window).cast("B")
    cdef Index index
    cdef int32_t *newest
    open_index(data, slots, &index)
    newest = <int32_t *> calloc(slots, sizeof(int32_t))
    if newest is NULL:
        raise MemoryError()
    try:
        follow(&index, newest, findings, owner)
        if not growing:
            compare_slots(&index, newest, findings, owner)
    finally:
        free(newest)
    return index.count - 1


cdef int follow(const Index *index, int32_t *newest, RawFindings findings, int owner) except -1:
    cdef int64_t n, offset, before = -1, following
    cdef int32_t hash, previous
    cdef int64_t slot
    for n in range(1, index.count):
        hash = get_i32(index.entries + n * INDEX_ENTRY_BYTES)
        offset = offset_of(index, n)
        previous = get_i32(index.entries + n * INDEX_ENTRY_BYTES + INDEX_ENTRY_AT_PREVIOUS)
        following = offset_of(index, n + 1) if n + 1 < index.count else 0x7FFFFFFFFFFFFFFF
        if offset < before or before <= following < offset:
            findings.add(INDEX_ORDER, owner, n, offset, INDEX_ENTRY_BYTES, before)
        else:
            before = offset
        if hash < 0:
            findings.add(INDEX_CHAIN, owner, n, offset, INDEX_ENTRY_BYTES, hash)
            continue
        slot = hash % index.slots
        if previous != newest[slot]:
            findings.add(INDEX_CHAIN, owner, n, offset, INDEX_ENTRY_BYTES, previous)
        newest[slot] = <int32_t> n
    return 0


cdef int compare_slots(const Index *index, const int32_t *newest, RawFindings findings, int owner) except -1:
    cdef int64_t slot
    for slot in range(index.slots):
        if get_i32(index.slot_table + slot * INDEX_SLOT_BYTES) != newest[slot]:
            findings.add(
                INDEX_SLOT, owner, slot, newest[slot], INDEX_SLOT_BYTES,
                get_i32(index.slot_table + slot * INDEX_SLOT_BYTES)
            )
    return 0


# ---- keys ----

cdef int64_t median_offset(const Index *index, int64_t n) noexcept nogil:
    """The median of the offsets of entry `n` and its neighbours."""
    cdef int64_t a, b, c
    b = offset_of(index, n)
    if n <= 1 or n + 1 >= index.count:
        return b
    a, c = offset_of(index, n - 1), offset_of(index, n + 1)
    return max(min(a, b), min(max(a, b), c))


cdef int64_t first_at(const Index *index, int64_t offset) noexcept nogil:
    """The first entry with this physical offset or a higher one."""
    cdef int64_t low = 1, high = index.count, middle
    while low < high:
        middle = (low + high) // 2
        if median_offset(index, middle) < offset:
            low = middle + 1
        else:
            high = middle
    while low > 1 and offset_of(index, low - 1) >= offset:
        low -= 1
    return low


def match_keys(
    Survey survey not None, window not None, int64_t slots, *, int64_t offset_from, int64_t offset_to,
    int owner=-1,
):
    # type: (Survey, Window, int, int, int, int) -> None
    """Compare the survey's keys with the file's entries that point into [`offset_from`, `offset_to`).

    An entry that is not a key of its record is WRONG_KEY, among the survey's findings."""
    cdef const uint8_t[::1] data = memoryview(window).cast("B")
    cdef Index index
    cdef int64_t n, offset, following
    cdef Py_ssize_t key = 0
    open_index(data, slots, &index)
    n = first_at(&index, offset_from)
    while n < index.count:
        offset = offset_of(&index, n)
        following = offset_of(&index, n + 1) if n + 1 < index.count else offset
        if offset >= offset_to and following >= offset_to:
            break
        if offset_from <= offset < offset_to:
            if (
                offset <= following or key == survey.keys_count
                or following < survey.keys[key].physical_offset
            ):
                while key < survey.keys_count and survey.keys[key].physical_offset < offset:
                    key += 1
            if not claim(survey, key, get_i32(index.entries + n * INDEX_ENTRY_BYTES), offset):
                survey.unknown_entries += 1
                survey.findings.add(
                    WRONG_KEY, owner, n, offset, INDEX_ENTRY_BYTES,
                    get_i32(index.entries + n * INDEX_ENTRY_BYTES),
                )
        n += 1


cdef bint claim(Survey survey, Py_ssize_t key, int32_t hash, int64_t offset) noexcept:
    """Mark the record's key with that hash as found; keys of a record are adjacent, from `key` on."""
    cdef KeyRow *row
    cdef KeyRow *found_row = NULL
    while key < survey.keys_count and survey.keys[key].physical_offset == offset:
        row = &survey.keys[key]
        if row.hash == hash:
            if not row.found:
                row.found = True
                return True
            found_row = row
        key += 1
    return found_row is not NULL


def settle_keys(Survey survey not None, *, int64_t covered_from, int64_t covered_to):
    # type: (...) -> None
    """Keys of records in [`covered_from`, `covered_to`] that were not found are NO_KEY; keys of others are
    counted as outside."""
    cdef Py_ssize_t n
    cdef int64_t reported = -1
    cdef KeyRow *row
    for n in range(survey.keys_count):
        row = &survey.keys[n]
        survey.keys_found += row.found and not row.tag
        survey.tags_found += row.found and row.tag
        if not row.found and not row.tag:
            if covered_from <= row.physical_offset <= covered_to:
                if row.record != reported:
                    survey.findings.add(NO_KEY, -1, row.record, row.physical_offset, 1, row.hash)
                reported = row.record
            else:
                survey.keys_outside += 1
    survey.keys_count = 0
