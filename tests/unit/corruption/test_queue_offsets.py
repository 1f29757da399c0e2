"""A record whose queue offset is garbled, which no CRC covers: only it is lost, and its queue keeps its offsets."""

import os
import shutil
from pathlib import Path

import pytest

from tests.corruption.filled import messages
from tests.support.stores import SEGMENT_BYTES, log_records, open_store, put

COUNT = 60
AT_QUEUE_OFFSET = 20


def made(root: Path, *, killed: bool = False, gone: int = 0) -> list[int]:
    """A queue of several files; `gone` of the log's oldest segments were deleted. Offsets of the remaining records."""
    store = open_store(root)
    for number in range(COUNT):
        put(store, b"%03d" % number * 80, now_ms=100_000 + number)
    store.write()
    if killed:
        store.flush_queues()
        store.abandon()
    else:
        store.close()
    for path in sorted((root / "commitlog").iterdir())[:gone]:
        path.unlink()
    return [record.physical_offset for record in log_records(root)]


def garble(root: Path, position: int, entry: int) -> None:
    base = position - position % SEGMENT_BYTES
    with (root / "commitlog" / f"{base:020d}").open("r+b") as file:
        os.pwrite(file.fileno(), entry.to_bytes(8, "big", signed=True), position - base + AT_QUEUE_OFFSET)


def check(root: Path, without: int, first: int) -> None:
    """All others are served at their offsets; a single one may seem to follow some that are lost."""
    with open_store(root) as store:
        found = {queue_offset: body for (_, _, queue_offset), body in messages(store)}
        low, high = store.reader.min_offset("T", 0), store.reader.max_offset("T", 0)
        expected = {number: b"%03d" % number * 80 for number in range(first, COUNT) if number != without}
        assert {number: found.get(number) for number in expected} == expected
        assert low in (first, first + 1)
        assert COUNT - 1 <= high <= COUNT + 5000
        assert put(store, b"next").queue_offset == high
    with open_store(root) as store:
        assert store.reader.get("T", 0, high, 1).body.find(b"next") > 0


ABSURD = (-1, 0, 3, 30, 59, 61, 5000, 1 << 40)


@pytest.mark.parametrize("entry", ABSURD)
@pytest.mark.parametrize("which", ["first", "second", "middle", "last"])
@pytest.mark.parametrize(
    ("queues", "killed", "segments"),
    [("there", False, 0), ("there", True, 2), ("lost", False, 2), ("lost", True, 0), ("compared", False, 2)],
)
def test_only_that_record_is_lost(
    tmp_path: Path, entry: int, which: str, queues: str, killed: bool, segments: int
) -> None:
    positions = made(tmp_path, killed=killed, gone=segments)
    first = COUNT - len(positions)
    number = {"first": 0, "second": 1, "middle": len(positions) // 2, "last": len(positions) - 1}[which]
    if first + number == entry:
        pytest.skip("it is its own")
    garble(tmp_path, positions[number], entry)
    if queues == "lost":
        shutil.rmtree(tmp_path / "consumequeue")
    elif queues == "compared":
        (tmp_path / "checkpoint").unlink()
    check(tmp_path, first + number, first)
