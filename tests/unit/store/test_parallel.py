"""Many files are synced by several threads, and errors are raised as by one."""

import errno
import os
import threading
from pathlib import Path

import pytest

from firearrow._native.store.files import parallel as module
from firearrow._native.store.files.parallel import SERIAL_MAX, THREADS, for_each_parallel
from firearrow._native.store.files.segment import fail_next, heal
from tests.support.stores import open_store, put, read


@pytest.mark.parametrize("count", [0, 1, SERIAL_MAX, SERIAL_MAX + 1, 1000])
def test_each_is_done_once(count: int) -> None:
    done: list[int] = []
    for_each_parallel(done.append, range(count))
    assert sorted(done) == list(range(count))


def test_many_are_done_by_several_threads() -> None:
    together = threading.Barrier(THREADS, timeout=30)
    names: set[str] = set()

    def work(number: int) -> None:
        if number < THREADS:
            together.wait()  # no thread continues alone
        names.add(threading.current_thread().name)

    for_each_parallel(work, range(SERIAL_MAX + 1))
    assert "parallel" in names


@pytest.mark.parametrize("count", [SERIAL_MAX, 500])
def test_an_error_is_raised_after_all_work_has_ended(count: int) -> None:
    begun, ended = [], []

    def work(number: int) -> None:
        begun.append(number)
        if number == 20:
            raise OSError(errno.EIO, "broken")
        ended.append(number)

    with pytest.raises(OSError, match="broken"):
        for_each_parallel(work, range(count))
    assert len(begun) == len(ended) + 1


def test_without_more_threads_one_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    class None_(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module.threading, "Thread", None_)
    done: list[int] = []
    for_each_parallel(done.append, range(100))
    assert done == list(range(100))


def test_many_queues_are_synced_before_the_checkpoint(tmp_path: Path) -> None:
    """A sync that fails among many prevents the checkpoint from covering any."""
    store = open_store(tmp_path)
    for number in range(200):
        put(store, b"first", f"T{number}")
    store.write()
    store.flush_queues()
    vouched = store.cleaner.flushed_queues
    for number in range(200):
        put(store, b"second", f"T{number}")
    store.write()
    store.sync()
    fail_next("sync", errno.EIO, after=150)
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            store.flush_queues()
    finally:
        heal()
    assert store.cleaner.flushed_queues == vouched
    store.abandon()
    with open_store(tmp_path) as again:
        for number in range(200):
            assert [record.body for record in read(again, f"T{number}")] == [b"first", b"second"]


def test_a_topic_that_is_deleted_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path) as store:
        for number in range(100):
            put(store, b"x", f"T{number}")
        store.write()
        fsync, gone = os.fsync, []

        def deleting(fd: int) -> None:
            if not gone:
                gone.append(fd)
                store.drop_topic("T99")
            fsync(fd)

        monkeypatch.setattr(os, "fsync", deleting)
        store.flush_queues()
        assert store.writable
        put(store, b"y", "T1")
