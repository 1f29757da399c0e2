"""Small stores for tests: a few messages fill a file. Functions that put and read messages."""

import os
from pathlib import Path
from typing import Any

import pytest

from firearrow._native.store.files.exclusive_file import delete_recycled
from firearrow._native.store.files.segment import zero_range
from firearrow._native.store.log.commit_log import CommitLog
from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.log.results import PutResult
from firearrow._native.store.message_store import InnerMessage, MessageStore, StoreConfig

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
HOST_V6 = bytes(range(16)) + (10911).to_bytes(4, "big")
SEGMENT_BYTES = 4096
QUEUE_FILE_BYTES = 200


def open_store(root: Path, **options: Any) -> MessageStore:  # noqa: ANN401
    small: dict[str, Any] = {
        "segment_bytes": SEGMENT_BYTES,
        "queue_file_bytes": QUEUE_FILE_BYTES,
        "index_slots": 10,
        "index_entries": 20,
    }
    return MessageStore.open(root, StoreConfig(**{**small, **options}))


def needs_zeroing(folder: Path) -> None:
    """Skips where files cannot be zeroed in place (in memory)."""
    path = folder / "tried"
    path.write_bytes(bytes(SEGMENT_BYTES))
    file = os.open(path, os.O_RDWR)
    try:
        zero_range(file, 0, SEGMENT_BYTES)
    except OSError as error:
        pytest.skip(f"this file system does not zero ranges: {error}")
    finally:
        os.close(file)
        path.unlink()


def properties_of(**values: str) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in values.items()).encode()


def put(
    store: MessageStore,
    body: bytes,
    topic: str = "T",
    queue_id: int = 0,
    properties: bytes = b"",
    now_ms: int = 1000,
    **options: Any,  # noqa: ANN401
) -> PutResult:
    given: dict[str, Any] = {"flag": 0, "sys_flag": 0, "born_host": HOST, "store_host": HOST, **options}
    return store.put(
        InnerMessage(topic, queue_id, body, properties, born_timestamp=now_ms, **given), now_ms=now_ms
    )


def drop_segments(
    store: MessageStore, *, modified_before_ms: int = 1 << 60, force: bool = False, at_most: int = 10
) -> int:
    """Delete the log's oldest segments at once, as retention does in steps: queues and index follow. How many.
    `force`: as on a full disk, where no segment is recycled."""
    store.flush_queues()
    dropped = 0
    while dropped < at_most:
        segment = store.cleaner.detach_segment(modified_before_ms=modified_before_ms)
        if segment is None:
            break
        store.cleaner.discard_segment(segment, reuse=not force)
        dropped += 1
    if dropped:
        for topic, queue_id in store.reader.queues():
            store.cleaner.clean_queue(topic, queue_id)
        for file in store.cleaner.detach_index_files():
            delete_recycled(file)
    return dropped


def item(body: bytes, properties: bytes = b"", flag: int = 0) -> bytes:
    """One item of a batch body."""
    numbers = (22 + len(body) + len(properties), 0, 0, flag, len(body))
    head = b"".join(number.to_bytes(4, "big") for number in numbers)
    return head + body + len(properties).to_bytes(2, "big") + properties


def split(body: bytes) -> list[Record]:
    """The records of a pull's body."""
    records = []
    while body:
        records.append(decode(body))
        body = body[records[-1].size :]
    return records


def read(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[Record]:
    """Every visible message of a queue, by pulls."""
    records: list[Record] = []
    at, end = store.reader.min_offset(topic, queue_id), store.reader.max_offset(topic, queue_id)
    while at < end:
        got = store.reader.get(topic, queue_id, at, 32)
        assert got.next_offset > at, got
        records += split(got.body)
        at = got.next_offset
    return records


def bodies(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    return [record.body for record in read(store, topic, queue_id)]


def log_records(root: Path) -> list[Record]:
    with CommitLog.open_readonly(root / "commitlog") as log:
        return list(log.records())
