"""Entries of the journal, written natively, against the standard library."""

import struct
import zlib

import pytest

from firearrow._native.store.notes import put_note

HEAD = struct.Struct(">BHiqq")


@pytest.mark.parametrize(
    ("kind", "name", "number", "value", "end"),
    [
        (1, b"", 0, 0, 0),
        (2, b"topic@group", 7, 1 << 40, 12345),
        (255, bytes(range(256)) * 200, -(1 << 31), -(1 << 63), (1 << 63) - 1),
    ],
)
def test_an_entry_is_what_the_layout_says(kind: int, name: bytes, number: int, value: int, end: int) -> None:
    page = bytearray(b"\xee" * 60_000)
    stop = put_note(page, 3, kind, name, number, value, end)
    entry = HEAD.pack(kind, len(name), number, value, end) + name
    assert page[3:stop] == zlib.crc32(entry).to_bytes(4, "big") + entry
    assert set(page[:3] + page[stop:]) == {0xEE}


@pytest.mark.parametrize(
    ("room", "at", "name"),
    [(26, 0, b""), (40, 14, b""), (40, -1, b""), (40, 41, b""), (1 << 17, 0, bytes(65536))],
)
def test_what_does_not_fit_is_refused(room: int, at: int, name: bytes) -> None:
    page = bytearray(room)
    with pytest.raises(ValueError, match="does not fit"):
        put_note(page, at, 1, name, 0, 0, 0)
    assert not any(page)


def test_a_page_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(BufferError):
        put_note(bytes(100), 0, 1, b"", 0, 0, 0)
