"""A store of two queues to damage: where its entries and records are, and what a reader reports as lost."""

import struct
from pathlib import Path

from firearrow._native.store.message_store import MessageStore
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.offline.reader import OfflineReader
from firearrow.spark_tools.offline.store_source import StoreSource
from tests.support.recorder import Recorder
from tests.support.stores import QUEUE_FILE_BYTES, SEGMENT_BYTES, properties_of, put

QUEUE = MessageQueue("T", "s", 0)
COUNT = 100


class LossRecorder(Recorder):
    """Records what a reader reports as lost of QUEUE: ranges of its offsets, and why."""

    @property
    def ranges(self) -> list[tuple[int, int]]:
        assert all(part.queue == QUEUE for part, _ in self)
        return [(part.start, part.end) for part, _ in self]

    @property
    def reasons(self) -> list[str]:
        return [why for _, why in self]


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


def opened(root: Path) -> OfflineReader:
    return StoreSource((f"s={root}",)).open()


def offsets(
    reader: OfflineReader,
    start: int,
    end: int,
    losses: LossRecorder,
    message_filter: MessageFilter | None = None,
) -> list[int]:
    found = reader.read(
        QueueRange(QUEUE, start, end), message_filter or MessageFilter(), losses, bytes_max=300
    )
    return [spans.queue_offset(n) for spans in found for n in range(len(spans))]


def entry_at(root: Path, number: int, file_bytes: int = QUEUE_FILE_BYTES) -> tuple[Path, int]:
    """File and position of an entry of QUEUE. `file_bytes`: the size of each of its files."""
    base = number * 20 // file_bytes * file_bytes
    return root / "consumequeue" / "T" / "0" / f"{base:020d}", number * 20 - base


def record_at(root: Path, number: int, file_bytes: int = QUEUE_FILE_BYTES) -> tuple[Path, int, int]:
    """File, position and size of the record of an entry."""
    path, position = entry_at(root, number, file_bytes)
    physical, size = struct.unpack_from(">qi", path.read_bytes(), position)
    base = physical // SEGMENT_BYTES * SEGMENT_BYTES
    return root / "commitlog" / f"{base:020d}", physical - base, size


def write_at(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
