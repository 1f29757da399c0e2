"""Entries damaged while a store runs: readers get every good record; each entry is repaired and logged once."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from firearrow._native.store.message_store import MessageStore
from tests.corruption.filled import messages
from tests.support.stores import QUEUE_FILE_BYTES, drop_segments, open_store, properties_of, put

COUNT = 60
TOPICS = ("A", "B", "C")
Entry = Callable[[MessageStore, int], bytes]


def encoded(physical: int, size: int, tags: int = 0) -> bytes:
    return physical.to_bytes(8, "big", signed=True) + size.to_bytes(4, "big") + tags.to_bytes(8, "big")


def neighbour(store: MessageStore, number: int) -> bytes:
    """Of another queue: there is a good record, with another offset."""
    other = store.reader.entries("A", 0, number - 1 if number else 1, 1)[0]
    return encoded(other.physical_offset, other.size)


GARBLED: dict[str, Entry] = {
    "zeros": lambda store, number: bytes(20),
    "ones": lambda store, number: b"\xff" * 20,
    "past the log": lambda store, number: encoded(1 << 40, 300),
    "below it": lambda store, number: encoded(-5, 300),
    "another queue's": neighbour,
    "huge": lambda store, number: encoded(100, (1 << 31) - 2),
    "inside a record": lambda store, number: encoded(
        store.reader.entries("B", 0, number, 1)[0].physical_offset + 7, 100
    ),
}


def filled(root: Path, *, count: int = COUNT) -> MessageStore:
    store = open_store(root)
    for number in range(count):
        for topic in TOPICS:
            put(store, b"%s%03d" % (topic.encode(), number), topic, 0, properties_of(TAGS="t"), now_ms=number)
        store.write()
    return store


def write_entry(root: Path, number: int, data: bytes) -> None:
    position = number * 20
    base = position - position % QUEUE_FILE_BYTES
    with (root / "consumequeue" / "B" / "0" / f"{base:020d}").open("r+b") as file:
        os.pwrite(file.fileno(), data, position - base)


def read_entry(root: Path, number: int) -> bytes:
    position = number * 20
    base = position - position % QUEUE_FILE_BYTES
    return (root / "consumequeue" / "B" / "0" / f"{base:020d}").read_bytes()[position - base :][:20]


def found(store: MessageStore) -> dict[int, bytes]:
    return {entry: body for (topic, _, entry), body in messages(store) if topic == "B"}


EXPECTED = {number: b"B%03d" % number for number in range(COUNT)}


@pytest.mark.parametrize("kind", sorted(GARBLED))
@pytest.mark.parametrize(
    "numbers", [[0], [1], [30], [COUNT - 1], [29, 30, 31, 32], [0, 1, 2], [55, 56, 57, 58, 59]]
)
def test_every_record_is_served_and_the_entries_are_repaired(
    tmp_path: Path, kind: str, numbers: list[int]
) -> None:
    with filled(tmp_path) as store:
        before = [read_entry(tmp_path, number) for number in numbers]
        garbled = [GARBLED[kind](store, number) for number in numbers]
        for number, data in zip(numbers, garbled, strict=True):
            write_entry(tmp_path, number, data)
        assert found(store) == EXPECTED
        lines = store.reader.drain_entry_repairs()
        assert len(lines) == len(numbers)
        for number, line in zip(numbers, lines, strict=True):
            assert f"entry {number} of queue 0 of B" in line
            assert "repaired, the record is at" in line
        assert [read_entry(tmp_path, number) for number in numbers] == before
        assert found(store) == EXPECTED
        assert store.reader.drain_entry_repairs() == []
        assert store.reader.get("B", 0, numbers[0], 1, tags=frozenset({ord("t")})).count == 1
    with open_store(tmp_path) as store:
        assert found(store) == EXPECTED


def test_a_damaged_record_is_skipped_and_logged_once(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        offset = store.reader.entries("B", 0, 30, 1)[0].physical_offset
        segment = tmp_path / "commitlog" / f"{offset - offset % 4096:020d}"
        with segment.open("r+b") as file:
            os.pwrite(file.fileno(), b"\0\0\0\7", offset % 4096)
        for _ in range(3):
            assert found(store) == {number: body for number, body in EXPECTED.items() if number != 30}
        [line] = store.reader.drain_entry_repairs()
        assert "skipped; the next start rebuilds the queue" in line
        assert "firearrow store repair" in line
        got = store.reader.get("B", 0, 30, 1)
        assert (got.count, got.next_offset) == (1, 32)


def test_entries_below_the_log_s_start_are_not_wrong(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        store.sync()
        assert drop_segments(store, force=True, at_most=1) == 1
        low = store.reader.min_offset("B", 0)
        assert low > 0
        assert store.reader.get("B", 0, 0, 1).next_offset == low
        assert found(store) == {number: body for number, body in EXPECTED.items() if number >= low}
        assert store.reader.drain_entry_repairs() == []
        write_entry(tmp_path, low + 5, bytes(20))
        assert found(store) == {number: body for number, body in EXPECTED.items() if number >= low}
        assert len(store.reader.drain_entry_repairs()) == 1
