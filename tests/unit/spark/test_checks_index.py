"""The native checks of the key index, and their small structures: exact, and bounded."""

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow._native.base.hash import java_hash
from firearrow._native.columnar.counters import NameCounters
from firearrow._native.columnar.unwritten import first_written
from firearrow._native.offline.index_file import covered_by, find_keys, head_of, slots_of
from firearrow._native.offline.segment_files import SegmentFile
from firearrow._native.store_checks.findings import Kind
from firearrow._native.store_checks.index_entries import check_chains, match_keys, settle_keys
from firearrow._native.store_checks.log_ranges import from_offset, group_ranges, split_log
from firearrow._native.store_checks.log_records import Survey
from firearrow._native.store_checks.queue_entries import count_entries
from firearrow._native.store_checks.raw_findings import RawFindings
from tests.support.examples import examples
from tests.unit.spark.test_checks import FAR, SMALL_LOG, entry

# ---- index -----------------------------------------------------------------------------------------------------------


def index_of(keys: list[tuple[int, int]], slots: int = 7, entries_max: int = 50) -> bytearray:
    """An index file with entries (hash, offset), as Apache makes it."""
    data = bytearray(40 + slots * 4 + entries_max * 20)
    newest = [0] * slots
    for number, (key_hash, offset) in enumerate(keys, 1):
        slot = key_hash % slots
        struct.pack_into(">iqii", data, 40 + slots * 4 + number * 20, key_hash, offset, 0, newest[slot])
        newest[slot] = number
    for slot, number in enumerate(newest):
        struct.pack_into(">i", data, 40 + slot * 4, number)
    used = sum(number > 0 for number in newest)
    offsets = [offset for _, offset in keys] or [0]
    struct.pack_into(">qqqqii", data, 0, 1000, 2000, offsets[0], offsets[-1], used, len(keys) + 1)
    return data


KEYS = [(17 * number % 101 + 1, number * 50) for number in range(40)]


@pytest.mark.parametrize("slots", [7, 12, 40])
def test_slots_are_derived_from_the_entries(slots: int) -> None:
    assert slots_of(index_of(KEYS, slots)) == slots


def test_slots_of_an_empty_index_are_unknown() -> None:
    assert slots_of(index_of([])) == 0
    assert slots_of(b"") == 0
    assert head_of(index_of([])).next_entry == 1


def test_whole_chains_have_no_faults() -> None:
    findings = RawFindings()
    assert check_chains(index_of(KEYS), 7, growing=False, findings=findings) == 40
    assert len(findings) == 0


@pytest.mark.parametrize(
    ("position", "kinds"),
    [
        (40 + 3 * 4 + 3, {Kind.INDEX_SLOT}),
        (40 + 28 + 20 * 20 + 19, {Kind.INDEX_CHAIN}),
        (40 + 28 + 20 * 20 + 5, {Kind.INDEX_ORDER}),
    ],
    ids=["slot", "previous", "offset"],
)
def test_a_flipped_bit_breaks_a_chain(position: int, kinds: set[Kind]) -> None:
    data, findings = index_of(KEYS), RawFindings()
    data[position] ^= 1
    check_chains(data, 7, growing=False, findings=findings)
    assert {finding.kind for finding in findings.listed()} == kinds
    assert len(findings) == 1


def test_an_index_too_short_for_its_count_is_refused() -> None:
    data = index_of(KEYS)
    for slots in (0, 10_000):
        with pytest.raises(ValueError, match="too few"):
            check_chains(data, slots, growing=False, findings=RawFindings())
    with pytest.raises(ValueError, match="the file has space for"):
        check_chains(data[:-300], 7, growing=False, findings=RawFindings())
    with pytest.raises(ValueError, match="head"):
        head_of(b"short")


def test_a_few_keys_are_found_by_their_chains() -> None:
    data = index_of(KEYS)
    assert covered_by(data, 7) == (0, 39 * 50)
    for key_hash, offset in KEYS:
        assert find_keys(data, 7, [key_hash], offset_from=0, offset_to=FAR, most=9) == [(key_hash, offset)]
        assert find_keys(data, 7, [key_hash], offset_from=offset + 1, offset_to=FAR, most=9) == []
        assert find_keys(data, 7, [key_hash], offset_from=0, offset_to=offset, most=9) == []
    assert find_keys(data, 7, [5000, -3], offset_from=0, offset_to=FAR, most=9) == []
    hashes = [key_hash for key_hash, _ in KEYS]
    assert len(find_keys(data, 7, hashes, offset_from=0, offset_to=FAR, most=100)) == 40
    assert len(find_keys(data, 7, hashes, offset_from=0, offset_to=FAR, most=10)) == 11
    assert covered_by(index_of([]), 7) == (0, 0)


@pytest.mark.parametrize("newest", [KEYS[0][0] % 7, KEYS[1][0] % 7])
def test_an_entry_newer_than_the_head_is_followed(newest: int) -> None:
    """A broker writes the entry, then its slot, then the head."""
    data = index_of(KEYS)
    struct.pack_into(">qii", data, 24, KEYS[-2][1], 7, len(KEYS))
    assert covered_by(data, 7) == (0, 38 * 50)
    wanted = [key_hash for key_hash, _ in KEYS if key_hash % 7 == newest]
    assert len(find_keys(data, 7, wanted, offset_from=0, offset_to=FAR, most=99)) == len(wanted)


@pytest.mark.parametrize(
    ("at", "value", "expected"),
    [
        (16, 50, "its header has offsets 50 to 1950"),
        (24, 1951, "its header has offsets 0 to 1951"),
        (24, -1, "its header has offsets 0 to -1"),
        (32, 8 << 32 | 41, "counts 8 used slots, but there are 7"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(at: int, value: int, expected: str) -> None:
    data = index_of(KEYS)
    struct.pack_into(">q", data, at, value)
    with pytest.raises(ValueError, match=expected):
        covered_by(data, 7)


@pytest.mark.parametrize("previous", [40, 39, 41, -1, 1 << 30])
def test_a_chain_that_does_not_go_back_is_refused(previous: int) -> None:
    data = index_of(KEYS)
    struct.pack_into(">i", data, 40 + 28 + 40 * 20 + 16, previous)
    with pytest.raises(ValueError, match="chain of slot"):
        find_keys(data, 7, [KEYS[-1][0]], offset_from=0, offset_to=FAR, most=9)


@pytest.mark.parametrize("offset", [-1, 39 * 50 + 1])
def test_an_offset_outside_of_the_head_is_refused(offset: int) -> None:
    data = index_of(KEYS)
    struct.pack_into(">q", data, 40 + 28 + 20 * 20 + 4, offset)
    with pytest.raises(ValueError, match="entry 20 in the chain of slot"):
        find_keys(data, 7, [KEYS[19][0]], offset_from=0, offset_to=FAR, most=9)


def test_keys_are_matched_with_entries_in_order() -> None:
    survey = Survey(check_crc=False)
    survey.walk(SMALL_LOG, 0, len(SMALL_LOG), base=0)
    at, keys = 0, []
    for number in range(6):
        topic = f"T{number % 2}"
        for key in (f"u{number}", "a", "b", "T#t"):
            keys.append((abs(java_hash(f"{topic}#{key}")), at))
        at += struct.unpack_from(">i", SMALL_LOG, at)[0]
    del keys[9]
    keys.insert(12, (12345, keys[12][1]))
    match_keys(survey, index_of(keys), 7, offset_from=0, offset_to=len(SMALL_LOG))
    settle_keys(survey, covered_from=0, covered_to=FAR)
    found = {(finding.kind, finding.number) for finding in survey.findings.listed()}
    assert found == {(Kind.WRONG_KEY, 13), (Kind.NO_KEY, 2)}
    assert (survey.keys_expected, survey.keys_found, survey.tags_found) == (18, 17, 6)


def test_keys_of_records_that_the_index_does_not_cover_are_counted() -> None:
    survey = Survey(check_crc=False)
    survey.walk(SMALL_LOG, 0, len(SMALL_LOG), base=0)
    settle_keys(survey, covered_from=FAR, covered_to=FAR)
    assert (survey.keys_outside, survey.keys_found) == (18, 0)
    assert not survey.findings.listed()


@given(st.binary(max_size=400), st.integers(-5, 60))
@examples(200)
def test_mutated_indexes_are_never_read_outside(data: bytes, slots: int) -> None:
    slots_of(data)
    survey = Survey(check_crc=False)
    survey.walk(SMALL_LOG, 0, len(SMALL_LOG), base=0)
    try:
        check_chains(data, slots, growing=False, findings=RawFindings())
        covered_by(data, slots)
        find_keys(data, slots, range(60), offset_from=0, offset_to=FAR, most=100)
        match_keys(survey, data, slots, offset_from=0, offset_to=FAR)
    except ValueError as error:
        assert str(error)  # noqa: PT017 (any input may be refused; none may crash)
    settle_keys(survey, covered_from=0, covered_to=FAR)
    assert survey.keys_found + survey.keys_outside <= survey.keys_expected


# ---- names, findings, gaps, ranges -----------------------------------------------------------------------------------


def test_names_without_limit_are_exact() -> None:
    names = NameCounters()
    for number in range(3000):
        names.add(number % 7, b"n%d" % (number % 500), 10)
    assert len(names) == 3000
    assert sum(row[2] for row in names.items()) == 3000
    assert not names.pruned


def test_a_full_table_keeps_the_busiest_and_sums_stay_exact() -> None:
    names = NameCounters(100)
    for number in range(10_000):
        names.add(0, os.fsencode(f"once {number}"), 3)
        if number % 5 == 0:
            names.add(0, b"busy", 7)
    assert len(names) <= 100
    assert names.pruned
    rows = {row[1]: row for row in names.items()}
    assert rows[b"busy"][2] == 2000
    assert sum(row[2] for row in names.items()) + names.rest_messages == 12_000
    assert sum(row[3] for row in names.items()) + names.rest_bytes == 10_000 * 3 + 2000 * 7


def test_findings_are_counted_beyond_their_list() -> None:
    findings = RawFindings(3)
    count_entries(b"".join(entry(1000 - number) for number in range(50)), 0, 0, FAR, findings)
    assert len(findings) == 3
    assert findings.totals()[Kind.QUEUE_ORDER] > 40


@pytest.mark.parametrize("at", [0, 1, 63, 64, 65, 199, 200])
def test_the_first_byte_that_was_written_is_found(at: int) -> None:
    data = bytes(at) + b"\x01" + bytes(100)
    assert first_written(data, 0, len(data)) == at
    assert first_written(data, 0, at) == at
    assert first_written(data, at + 1, len(data)) == len(data)


@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=8),
    st.integers(20, 700),
    st.integers(1, 50),
    st.integers(0, 30_000),
)
def test_every_byte_of_a_log_is_in_exactly_one_range(
    lengths: list[int], size: int, count: int, end: int
) -> None:
    segments, base = [], 12_345
    for length in lengths:
        segments.append(SegmentFile(f"{base:020d}", base, length))
        base += length + (length % 3 == 0) * 100
    for stop in (None, 12_345 + end):
        ranges = split_log(segments, stop, size)
        grouped = group_ranges(ranges, count)
        assert [each for part in grouped for each in part] == ranges
        assert all(grouped)
        assert len(grouped) <= count
        assert all(0 < len(each) <= size for each in ranges)
        covered = [byte for each in ranges for byte in (each.start, each.stop)]
        assert covered == sorted(covered)
        wanted = sum(
            max(0, (segment.end if stop is None else min(segment.end, stop)) - segment.base)
            for segment in segments
        )
        assert sum(map(len, ranges)) == wanted
        offset = 12_345 + end // 2
        left = from_offset(ranges, offset)
        assert sum(map(len, left)) == sum(max(0, each.stop - max(each.start, offset)) for each in ranges)
