"""Keys found in a damaged store or by a damaged index: the same messages as in a full read, or reported as lost."""

import logging
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.offline import index_plan
from tests.spark.damaged_store import entry_at, opened, record_at, write_at
from tests.spark.indexed_store import (
    COUNT,
    ENTRIES,
    NAMED,
    QUEUE_FILE_BYTES,
    QUEUES,
    SLOTS,
    check,
    everything,
    index_files,
    read,
    wanted,
)

pytestmark = pytest.mark.usefixtures("apart")


@pytest.fixture
def root(indexed: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(indexed, tmp_path / "store"))


# ---- a damaged index ----


def set_entry(path: Path, number: int, text: str, at: int, value: int) -> None:
    write_at(path, 40 + SLOTS * 4 + number * 20 + at, struct.pack(text, value))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "no-head": lambda path: path.write_bytes(path.read_bytes()[:30]),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:2000]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "garbled": lambda path: write_at(path, 300, bytes(range(7, 256)) * 12),
    "slots-gone": lambda path: write_at(path, 40, bytes(SLOTS * 4)),
    "slots-wild": lambda path: write_at(path, 40, struct.pack(">i", 1 << 30) * SLOTS),
    "slots-negative": lambda path: write_at(path, 40, b"\xff" * SLOTS * 4),
    "entries-gone": lambda path: write_at(path, 40 + SLOTS * 4 + 2000, bytes(1000)),
    "end-too-far": lambda path: write_at(path, 24, struct.pack(">q", 1 << 40)),
    "begin-too-near": lambda path: write_at(path, 16, struct.pack(">q", 0)),
    "count-too-low": lambda path: write_at(path, 36, struct.pack(">i", 20)),
    "count-too-high": lambda path: write_at(path, 36, struct.pack(">i", 1 << 30)),
    "cyclic": lambda path: [set_entry(path, n, ">i", 16, n) for n in range(1, ENTRIES)],
    "cyclic-in-turn": lambda path: [set_entry(path, n, ">i", 16, n + SLOTS) for n in range(1, ENTRIES)],
    "places-off": lambda path: [set_entry(path, n, ">q", 4, 1 << 50) for n in range(50, ENTRIES)],
    "folder": lambda path: (path.unlink(), path.mkdir()),
}
SEEN = set(DAMAGES) - {"gone", "zeros", "begin-too-near"}
"""Damage that cannot be a new file or none."""


@pytest.mark.parametrize("number", [0, 2, -1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_a_damaged_file_covers_is_read(
    root: Path, damage: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = index_files(root)[number]
    DAMAGES[damage](path)
    with caplog.at_level(logging.INFO, "firearrow.spark"):
        planned = check(root)
    assert planned < len(NAMED) * COUNT / 2
    if damage in SEEN and not (number == -1 and damage in ("entries-gone", "garbled")):
        assert any(str(path) in record.getMessage() for record in caplog.records)


def test_without_an_index_all_is_read(root: Path) -> None:
    shutil.rmtree(root / "index")
    assert check(root) == len(NAMED) * COUNT


def test_with_the_first_or_last_files_alone_the_rest_is_read(root: Path) -> None:
    for path in index_files(root)[1:-1]:
        path.unlink()
    assert len(NAMED) * COUNT / 2 < check(root) < len(NAMED) * COUNT


@pytest.mark.parametrize("gone", range(5))
def test_keys_at_the_ends_of_files_are_found_whichever_is_gone(root: Path, gone: int) -> None:
    ends = [(ENTRIES - 1) * file // 3 for file in range(1, 5)]
    index_files(root)[gone].unlink()
    for number in [end + near for end in ends for near in (-1, 0, 1)]:
        check(root, wanted(number), MessageFilter(unique_ids=frozenset({f"U{number}"})))
        check(root, MessageFilter(keys=frozenset({f"hundred{number % 100}"})))


def test_an_entry_that_shows_another_message_is_not_believed(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither where another record is, nor where none begins."""
    for off in (0, 1):
        for path in index_files(root):
            data = path.read_bytes()
            for n in range(2, ENTRIES - 1):
                (position,) = struct.unpack_from(">q", data, 40 + SLOTS * 4 + (n - 1) * 20 + 4)
                if position != struct.unpack_from(">q", data, 40 + SLOTS * 4 + n * 20 + 4)[0]:
                    set_entry(path, n, ">q", 4, position + off)
        assert check(root, *(MessageFilter(unique_ids=frozenset({f"U{number}"})) for number in NAMED)) > COUNT
        assert "shows a key at" in caplog.text
        caplog.clear()


# ---- a damaged store ----


@pytest.mark.parametrize("number", [0, 100, 151, 299])
def test_a_message_that_is_lost_is_reported(root: Path, number: int) -> None:
    queue, message_filter = MessageQueue("T", "s", 0), wanted(2 * number)
    path, position, _ = record_at(root, number, QUEUE_FILE_BYTES)
    write_at(path, position + 4, b"\xff" * 8)
    with opened(root) as reader:
        found, lost = read(reader, reader.by_index(everything(reader, "T"), message_filter), message_filter)
        assert not found
        assert any(text.startswith(f"{QueueRange(queue, number, number + 1)}: ") for text in lost)


def test_messages_in_a_lost_segment_are_reported(root: Path) -> None:
    record_at(root, 150, QUEUE_FILE_BYTES)[0].unlink()
    with opened(root) as reader:
        parts, message_filter = everything(reader), wanted(300)
        _, lost = read(reader, reader.by_index(parts, message_filter), message_filter)
        assert lost == read(reader, parts, message_filter)[1]
        assert len(lost) == 2


@pytest.mark.parametrize("number", [131, 132, 133, 149, 165, 198, 199])
@pytest.mark.parametrize("physical", [0, 1 << 50])
def test_garbled_entries_mislead_no_reader(
    root: Path, number: int, physical: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are where a binary search looks for the ends of what no index file covers."""
    monkeypatch.setattr(index_plan, "SORTED_ENTRIES", 5)
    index_files(root)[2].unlink()
    path, position = entry_at(root, number, QUEUE_FILE_BYTES)
    write_at(path, position, struct.pack(">q", physical))
    with opened(root) as reader:
        parts = [QueueRange(part.queue, 100, 230) for part in everything(reader)]
        for offset in set(range(100, 230)) - {number}:
            message_filter = wanted(offset * QUEUES)
            assert read(reader, reader.by_index(parts, message_filter), message_filter)[0] == [
                (parts[0].queue, offset)
            ]


def test_a_queue_file_that_is_gone_is_reported(root: Path) -> None:
    index_files(root)[2].unlink()
    entry_at(root, 150, QUEUE_FILE_BYTES)[0].unlink()
    check(root, *map(wanted, range(120, 400, 3)))
