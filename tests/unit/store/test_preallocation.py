"""Preallocation: the log's file has blocks for what arrives during a sync, and reads as if it had not."""

import errno
import os
from pathlib import Path

from firearrow._native.store.files.preallocation import BYTES_MIN, GROWTH_FACTOR, Preallocator
from firearrow._native.store.files.segment import fail_next, heal
from firearrow._native.store.group_commit import GroupCommit
from firearrow._native.store.message_store import MessageStore
from tests.support.stores import open_store, put

SEGMENT_BYTES = 16 << 20
BODY = bytes(256 << 10)


def taken(root: Path) -> list[int]:
    """Allocated bytes of each segment, in order."""
    return [path.stat().st_blocks * 512 for path in sorted((root / "commitlog").iterdir())]


def fill(store: MessageStore, size: int) -> None:
    until = store.written + size
    while store.written < until:
        put(store, BODY)
        store.write()


def test_a_multiple_of_the_written_bytes_is_allocated(tmp_path: Path) -> None:
    with open_store(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        fill(store, BYTES_MIN)
        store.prepare()
        (given,) = taken(tmp_path)
        assert given >= store.written + GROWTH_FACTOR * BYTES_MIN
        assert given < SEGMENT_BYTES
        store.sync()
        store.prepare()
        assert taken(tmp_path) == [given]
    with open_store(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        fill(store, BYTES_MIN)
        assert store.next_offset("T", 0) == 2 * (BYTES_MIN // len(BODY))


def test_the_next_segment_is_allocated_too(tmp_path: Path) -> None:
    with open_store(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        fill(store, SEGMENT_BYTES * 3 // 4)
        store.prepare()
        first, second = taken(tmp_path)
        assert first >= SEGMENT_BYTES
        assert second >= SEGMENT_BYTES


def test_little_data_allocates_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        put(store, b"x")
        store.write()
        store.prepare()
        assert sum(taken(tmp_path)) < BYTES_MIN


def test_with_frequent_syncs_zeros_are_written_instead(tmp_path: Path) -> None:
    with open_store(tmp_path, segment_bytes=SEGMENT_BYTES, sync_flush=True) as store:
        GroupCommit(store)
        fill(store, BYTES_MIN)
        store.prepare()
        assert sum(taken(tmp_path)) < store.written + GROWTH_FACTOR * BYTES_MIN


def test_a_disk_without_free_space_is_no_error(tmp_path: Path) -> None:
    with open_store(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        fill(store, BYTES_MIN)
        fail_next("reserve", errno.ENOSPC)
        try:
            store.prepare()
        finally:
            heal()
        assert sum(taken(tmp_path)) < store.written + GROWTH_FACTOR * BYTES_MIN
        fill(store, BYTES_MIN)


def test_no_more_is_allocated_than_is_free(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    with path.open("r+b") as file:
        free = os.statvfs(path).f_bavail * os.statvfs(path).f_frsize
        Preallocator().preallocate([(file.fileno(), 0, free)], 0, free // 4)
    assert path.stat().st_blocks == 0
