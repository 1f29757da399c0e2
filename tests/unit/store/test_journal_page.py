"""Entries of the journal, written natively, compared with the standard library."""

import mmap
import struct
import zlib

import pytest

from firearrow._native.store.log.journal_page import JournalPage

HEAD = struct.Struct(">BHiqq")
HEAD_BYTES = 27


def opened(page: bytearray, at: int = 0) -> JournalPage:
    notes = JournalPage()
    notes.open(page, at)
    return notes


@pytest.mark.parametrize(
    ("kind", "name", "number", "value", "end"),
    [
        (1, b"", 0, 0, 0),
        (2, b"topic@group", 7, 1 << 40, 12345),
        (255, bytes(range(256)) * 200, -(1 << 31), -(1 << 63), (1 << 63) - 1),
    ],
)
def test_an_entry_has_the_documented_layout(
    kind: int, name: bytes, number: int, value: int, end: int
) -> None:
    page = bytearray(b"\xee" * 60_000)
    notes = opened(page, 3)
    assert notes.put(kind, name, number, value, end)
    entry = HEAD.pack(kind, len(name), number, value, end) + name
    assert page[3 : notes.at] == zlib.crc32(entry).to_bytes(4, "big") + entry
    assert set(page[:3] + page[notes.at :]) == {0xEE}


def test_entries_follow_each_other() -> None:
    page = bytearray(200)
    notes = opened(page)
    assert notes.put(2, b"a", 0, 1, 0)
    assert notes.at == HEAD_BYTES + 1
    assert notes.put(2, b"bc", 0, 1, 0)
    assert notes.at == 2 * HEAD_BYTES + 3


@pytest.mark.parametrize(
    ("capacity", "at", "name", "kept"),
    [
        (26, 0, b"", 0),
        (40, 14, b"", 0),
        (40, 40, b"", 0),
        (28, 0, b"ab", 0),
        (53, 0, b"", 27),
        (54, 1, b"", 27),
    ],
)
def test_an_entry_that_does_not_fit_is_not_written(capacity: int, at: int, name: bytes, kept: int) -> None:
    page = bytearray(capacity)
    notes = opened(page, at)
    assert not notes.put(1, name, 0, 0, 0, kept)
    assert notes.at == at
    assert not any(page)


def test_an_entry_that_just_fits_is_written() -> None:
    notes = opened(bytearray(54))
    assert notes.put(1, b"", 0, 0, 0, 27)
    assert not notes.put(1, b"", 0, 0, 0, 27)
    assert notes.put(1, b"", 0, 0, 0)
    assert not notes.put(1, b"", 0, 0, 0)


@pytest.mark.parametrize(("name", "kept"), [(bytes(65536), 0), (b"", -1)])
def test_a_name_that_is_too_long_is_refused(name: bytes, kept: int) -> None:
    page = bytearray(1 << 17)
    with pytest.raises(ValueError, match="name"):
        opened(page).put(1, name, 0, 0, 0, kept)
    assert not any(page)


@pytest.mark.parametrize("at", [-1, 101])
def test_an_offset_outside_the_page_is_refused(at: int) -> None:
    notes = JournalPage()
    with pytest.raises(ValueError, match="outside a page"):
        notes.open(bytearray(100), at)
    assert not notes.put(1, b"", 0, 0, 0)


def test_a_page_that_cannot_be_written_is_refused() -> None:
    notes = JournalPage()
    with pytest.raises(BufferError):
        notes.open(bytes(100), 0)
    assert not notes.put(1, b"", 0, 0, 0)


def test_a_released_page_can_be_closed() -> None:
    page, notes = mmap.mmap(-1, 4096), JournalPage()
    notes.open(page, 0)
    assert notes.put(1, b"", 0, 0, 0)
    with pytest.raises(BufferError):
        page.close()
    notes.release_page()
    page.close()
    assert notes.at == 0
    assert not notes.put(1, b"", 0, 0, 0)
