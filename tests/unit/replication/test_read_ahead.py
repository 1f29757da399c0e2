"""A slave that is far behind: the log is sent as the disk reads it, and nobody waits for the disk meanwhile."""

import mmap
import os
import time
from pathlib import Path

import pytest

from firearrow._native.replication import read_ahead
from firearrow._native.replication.read_ahead import (
    UNSEEN_BYTES,
    WARM_BYTES,
    ReadAhead,
    bytes_in_memory,
    will_need,
)
from firearrow._native.store.message_store import MessageStore, StoreConfig
from tests.support.stores import put

MIB = 1 << 20


def forget(path: Path) -> None:
    """Have the system drop the file's pages."""
    number = os.open(path, os.O_RDONLY)
    os.fsync(number)
    os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(number)


def mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def test_pages_come_into_memory_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(MIB))
    with mapped(path) as content, memoryview(content) as whole:
        assert bytes_in_memory(whole) == MIB
        assert bytes_in_memory(whole[100:5000]) == 4900
        assert bytes_in_memory(whole[:0]) == 0
    forget(path)
    with mapped(path) as content, memoryview(content) as whole:
        if bytes_in_memory(whole) == MIB:
            pytest.skip("this file system has all files in memory")
        assert bytes_in_memory(whole[300_000:]) == 0
        will_need(whole[300_000:])
        deadline = time.monotonic() + 10
        while bytes_in_memory(whole[300_000:]) < MIB - 300_000:
            assert time.monotonic() < deadline
            time.sleep(0.001)


def cold_store(folder: Path) -> MessageStore:
    config = StoreConfig(segment_bytes=16 * MIB, queue_file_bytes=20_000, max_message_bytes=2 * MIB)
    store = MessageStore.open(folder, config)
    for _ in range(12):
        put(store, os.urandom(MIB))
    store.write()
    store.close()
    for path in (folder / "commitlog").iterdir():
        forget(path)
    return MessageStore.open(folder, config)


def test_the_whole_log_becomes_ready(tmp_path: Path) -> None:
    store = cold_store(tmp_path)
    ahead, at, ended = ReadAhead(store), 0, time.monotonic() + 20
    while at < store.written:
        view = store.log_bytes(at, 512 << 10)
        assert view is not None
        ready = ahead.ready(at, view)
        assert 0 <= ready <= len(view)
        if store.written - at <= WARM_BYTES:
            assert ready == len(view)
        at += ready
        view.release()
        assert time.monotonic() < ended
    store.close()


def test_what_never_stays_in_memory_is_sent_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with too little memory: each page is gone when it is looked at."""
    monkeypatch.setattr(read_ahead, "bytes_in_memory", lambda view: 0)
    monkeypatch.setattr(read_ahead, "TRIES", 3)
    store = cold_store(tmp_path)
    view = store.log_bytes(0, 512 << 10)
    assert view is not None
    ahead = ReadAhead(store)
    assert [ahead.ready(0, view) for _ in range(6)] == [0, 0, UNSEEN_BYTES] * 2
    view.release()
    store.close()
