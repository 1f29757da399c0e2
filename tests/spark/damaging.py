"""A store of two queues to be damaged: where its entries and records lie, and what a reader tells of it."""

import struct
from pathlib import Path

from firearrow._native.store.store import MessageStore
from firearrow.client.message import MessageQueue
from firearrow.spark_tools.choice import Choice
from firearrow.spark_tools.offline.origin import StoreOrigin
from firearrow.spark_tools.offline.reader import StoreReader
from firearrow.spark_tools.origin import QueueRange
from tests.store.stores import QUEUE_FILE_BYTES, SEGMENT_BYTES, properties_of, put

QUEUE = MessageQueue("T", "s", 0)
COUNT = 100


class Told:
    """Collects what is lost."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.reasons: list[str] = []

    def __call__(self, part: QueueRange, why: str) -> None:
        assert part.queue == QUEUE
        self.ranges.append((part.start, part.end))
        self.reasons.append(why)


def fill(store: MessageStore, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        for queue_id in (0, 1):
            body = b"%d of %d" % (number, queue_id)
            put(
                store,
                body,
                queue_id=queue_id,
                properties=properties_of(TAGS=f"t{number % 4}"),
                now_ms=1000 + number,
            )
        store.write()


def opened(root: Path) -> StoreReader:
    return StoreOrigin((f"s={root}",)).open()


def offsets(reader: StoreReader, start: int, end: int, told: Told, choice: Choice | None = None) -> list[int]:
    found = reader.read(QueueRange(QUEUE, start, end), choice or Choice(), told, bytes_max=300)
    return [spans.queue_offset(n) for spans in found for n in range(len(spans))]


def entry_at(root: Path, number: int) -> tuple[Path, int]:
    """File and position of an entry of QUEUE."""
    base = number * 20 // QUEUE_FILE_BYTES * QUEUE_FILE_BYTES
    return root / "consumequeue" / "T" / "0" / f"{base:020d}", number * 20 - base


def record_at(root: Path, number: int) -> tuple[Path, int, int]:
    """File, position and size of the record of an entry."""
    path, position = entry_at(root, number)
    physical, size = struct.unpack_from(">qi", path.read_bytes(), position)
    base = physical // SEGMENT_BYTES * SEGMENT_BYTES
    return root / "commitlog" / f"{base:020d}", physical - base, size


def write_at(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
