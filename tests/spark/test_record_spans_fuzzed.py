"""Records in a window of any bytes: nothing outside of the window is ever read."""

import struct
import subprocess
import sys
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as some

from firearrow._native.base.hash import java_hash
from firearrow._native.columnar.entry_lookup import from_entries
from firearrow._native.columnar.record_spans import Spans, find, from_answer, walk
from firearrow._native.store.log.record import RecordError
from tests.spark.test_record_spans import BASE, entries_of, log_of

LOG, PLACES = log_of(12)
ENTRIES = entries_of(LOG, PLACES)
EDITS = some.lists(
    some.tuples(some.integers(0, len(LOG) - 1), some.binary(min_size=1, max_size=8)), max_size=6
)


@settings(max_examples=400, deadline=None)
@given(EDITS, some.integers(0, len(LOG)), some.booleans())
@example([(0, b"\x7f\xff\xff\xff")], len(LOG), True)
def test_no_bytes_lead_outside(edits: list[tuple[int, bytes]], cut: int, check_crc: bool) -> None:
    window = bytearray(LOG)
    for at, value in edits:
        window[at : at + len(value)] = value
    data = bytes(window[:cut])
    spans, stopped_at, _ = walk(data, 0, len(data), base=BASE, check_crc=check_crc)
    checked(spans, data)
    assert 0 <= stopped_at <= len(data)
    at = 0
    while (at := find(data, at, len(data), base=BASE)) >= 0:
        assert at <= len(data) - 91
        at += 1
    try:
        checked(from_answer(data), data)
        checked(from_entries(data, ENTRIES, base=BASE, first=0)[0], data)
    except RecordError:
        pass


@settings(max_examples=300, deadline=None)
@given(some.binary(max_size=200), some.integers(-(1 << 63), (1 << 63) - 1), some.integers(0, 1 << 40))
def test_no_entries_lead_outside(entries: bytes, offset: int, base: int) -> None:
    rows = entries + struct.pack(">qiq", offset, 120, 0) + ENTRIES
    tags = frozenset(map(java_hash, ("tag0", "tag1", "tag2")))
    for given_tags in (None, tags):
        try:
            spans, used = from_entries(LOG, rows, base=base, first=0, tags=given_tags)
        except RecordError:
            continue
        checked(spans, LOG)
        assert 0 <= used <= len(rows) // 20


def checked(spans: Spans, data: bytes) -> None:
    for index in range(len(spans)):
        record = spans[index]
        position = spans.position(index)
        assert position + record.size <= len(data)
        assert record.body in data[position : position + record.size]


def test_the_end_of_a_window_is_the_end_of_memory(tmp_path: Path) -> None:
    """After the mapping is a page without access: reading a byte too far ends the process."""
    program = """
import mmap, sys
from firearrow._native.columnar.entry_lookup import from_entries
from firearrow._native.columnar.record_spans import find, from_answer, walk
from tests.spark.test_record_spans import BASE
from tests.spark.test_record_spans_fuzzed import ENTRIES, LOG
from firearrow._native.store.log.record import RecordError
import ctypes
page = mmap.PAGESIZE
size = -(-len(LOG) // page) * page
area = mmap.mmap(-1, size + page)
start = ctypes.addressof(ctypes.c_char.from_buffer(area))
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + size), page, 0) == 0
for cut in range(0, len(LOG) + 1, 3):
    data = LOG[:cut]
    area[size - cut : size] = data
    window = memoryview(area)[size - cut : size]
    walk(window, 0, cut, base=BASE, check_crc=True)
    for at in range(0, cut, 97):
        find(window, at, cut, base=BASE)
    try:
        from_entries(window, ENTRIES, base=BASE, first=0)
        from_answer(window)
    except RecordError:
        pass
print("read")
"""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr[-2000:]
