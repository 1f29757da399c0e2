"""The first entries of a lite topic are in memory until a flush makes its file: nothing that was stored is lost,
whenever the broker is killed."""

import errno
import threading
from pathlib import Path

import pytest

from firearrow._native.store import message_store
from firearrow._native.store.files.segment import fail_next, heal
from firearrow._native.store.message_store import MessageStore
from tests.support.stores import bodies, open_store
from tests.unit.store.test_lmq import put_to_lmqs

BUFFERED_MAX = 64


def queue_of(name: str) -> str:
    return f"%LMQ%$T${name}"


def fill(store: MessageStore, name: str, count: int, start: int = 0) -> None:
    for n in range(start, start + count):
        put_to_lmqs(store, b"%d" % n, queue_of(name), topic="T", queue_id=0)
    store.write()


def has(store: MessageStore, name: str, count: int) -> bool:
    return bodies(store, queue_of(name)) == [b"%d" % n for n in range(count)]


def folder(root: Path, name: str) -> Path:
    return root / "consumequeue" / queue_of(name)


@pytest.mark.parametrize("count", [1, 2, 3, BUFFERED_MAX - 1, BUFFERED_MAX, BUFFERED_MAX + 1, 200])
def test_entries_are_read_before_and_after_their_file_is_made(tmp_path: Path, count: int) -> None:
    with open_store(tmp_path, lmq=True, queue_file_bytes=2000) as store:
        fill(store, "a", count)
        assert has(store, "a", count)
        assert folder(tmp_path, "a").exists() == (count > BUFFERED_MAX)
        assert store.reader.max_offset(queue_of("a"), 0) == count
        store.flush_queues()
        assert folder(tmp_path, "a").exists()
        assert has(store, "a", count)
        fill(store, "a", 3, count)
        assert has(store, "a", count + 3)
    with open_store(tmp_path, lmq=True, queue_file_bytes=2000) as store:
        assert has(store, "a", count + 3)


def test_small_files(tmp_path: Path) -> None:
    """A buffer holds no more than the first file."""
    with open_store(tmp_path, lmq=True, queue_file_bytes=60) as store:
        fill(store, "a", 10)
        fill(store, "b", 3)
        store.flush_queues()
        fill(store, "b", 4, 3)
        assert has(store, "a", 10)
        assert has(store, "b", 7)
    with open_store(tmp_path, lmq=True, queue_file_bytes=60) as store:
        assert has(store, "a", 10)
        assert has(store, "b", 7)


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_kill_before_all_files_are_made_loses_nothing(
    tmp_path: Path, rebuilt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint states no more than what is in files, however many flushes come first."""
    store = open_store(tmp_path, lmq=True)
    fill(store, "first", 1)
    store.flush_queues()
    before = (tmp_path / "checkpoint").read_bytes()
    monkeypatch.setattr(message_store, "MAKE_FILES_S", 0.0)
    for n in range(20):
        fill(store, f"n{n}", 1 + n % 3)
        store.flush_queues()
    assert (tmp_path / "checkpoint").read_bytes() == before
    store.abandon()
    if rebuilt:
        (tmp_path / "checkpoint").unlink()
    with open_store(tmp_path, lmq=True) as store:
        assert has(store, "first", 1)
        assert all(has(store, f"n{n}", 1 + n % 3) for n in range(20))
        monkeypatch.undo()
        store.flush_queues()
        store.flush_queues()
        assert all(folder(tmp_path, f"n{n}").exists() for n in range(20))
        assert (tmp_path / "checkpoint").read_bytes() != before


def test_a_stop_leaves_very_many_files_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_store, "STOP_FILES_MAX", 4)
    monkeypatch.setattr(message_store, "MAKE_FILES_S", 0.0)
    with open_store(tmp_path, lmq=True) as store:
        for n in range(5):
            fill(store, f"n{n}", 2)
    assert (tmp_path / "abort").exists()
    monkeypatch.undo()
    with open_store(tmp_path, lmq=True) as store:
        assert all(has(store, f"n{n}", 2) for n in range(5))
    assert not (tmp_path / "abort").exists()


def test_a_lite_topic_that_is_deleted_before_its_file_is_made(tmp_path: Path) -> None:
    with open_store(tmp_path, lmq=True) as store:
        fill(store, "a", 2)
        assert store.drop_lmq(queue_of("a"), dict(store.reader.last_ends("%LMQ%$"))[queue_of("a")])
        store.flush_queues()
        assert not folder(tmp_path, "a").exists()
        fill(store, "a", 1)
        store.flush_queues()
        assert has(store, "a", 1)


def test_a_file_that_cannot_be_made_is_made_later(tmp_path: Path) -> None:
    """On a disk without inodes lite topics go on in memory."""
    with open_store(tmp_path, lmq=True) as store:
        fill(store, "a", 2)
        fail_next("create", errno.ENOSPC)
        try:
            with pytest.raises(OSError, match="No space"):
                store.flush_queues()
        finally:
            heal()
        assert store.writable
        fill(store, "a", 1, 2)
        assert has(store, "a", 3)
        store.flush_queues()
        assert folder(tmp_path, "a").exists()
        assert has(store, "a", 3)


def test_messages_come_while_files_are_made(tmp_path: Path) -> None:
    counts = dict.fromkeys((f"n{n}" for n in range(20)), 0)
    with open_store(tmp_path, lmq=True) as store:
        ended = threading.Event()

        def flush() -> None:
            while not ended.is_set():
                store.flush_queues()

        flusher = threading.Thread(target=flush)
        flusher.start()
        try:
            for n in range(3000):
                name = f"n{n * 7919 % 20}"
                if n % 97 == 0:
                    end = dict(store.reader.last_ends("%LMQ%$")).get(queue_of(name))
                    if end and store.drop_lmq(queue_of(name), end):
                        counts[name] = 0
                fill(store, name, 1, counts[name])
                counts[name] += 1
        finally:
            ended.set()
            flusher.join()
        assert all(has(store, name, count) for name, count in counts.items())
    with open_store(tmp_path, lmq=True) as store:
        assert all(has(store, name, count) for name, count in counts.items())
