"""Faults in a write batch: a sync that fails while the next batch collects, and callbacks that raise."""

import asyncio
import errno
from pathlib import Path

import pytest

from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow._native.fastpath.write_batch import WriteBatch
from firearrow._native.store.files.segment import fail_next, heal
from firearrow._native.store.message_store import MessageStore
from tests.support.clock import ManualClock
from tests.support.stores import bodies, open_store, put


class Planned(list[object]):
    """Callbacks that the test runs."""

    call_soon = list.append


class NoPromises:
    """A journal without entries."""

    has_promises = False

    def sync(self) -> None:
        raise AssertionError("nothing is to be synced")

    def cancel(self, written: int) -> None:
        self.cancelled = written


def write_batch_of(store: MessageStore, scheduler: Planned | None = None) -> WriteBatch:
    return WriteBatch(
        scheduler if scheduler is not None else Planned(),
        store,
        ManualClock(),
        sync_timeout_ms=5000,
        arrivals=ArrivalNotifier(),
        request_sync=lambda: None,
        full=str,
        journal=NoPromises(),
    )


def fail(*_: object) -> None:
    raise MemoryError


@pytest.mark.parametrize("written_first", [False, True])
def test_what_collected_during_the_sync_is_refused_at_once(tmp_path: Path, written_first: bool) -> None:
    store = open_store(tmp_path, sync_flush=True)
    write_batch = write_batch_of(store)
    results: list[bool] = []
    put(store, b"before")
    store.write()
    write_batch.on_durable(put(store, b"a").end, results.append)
    if written_first:
        write_batch.commit()
    fail_next("sync", errno.EIO)
    try:
        with pytest.raises(OSError, match="Input/output"):
            store.sync()
    finally:
        heal()
    write_batch.sync_failed("no")
    write_batch.commit()
    assert results == [False]
    assert not store.writable
    store.abandon()


def test_a_callback_that_fails_before_the_write_does_not_stop_the_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler, results = Planned(), list[bool]()
    with open_store(tmp_path) as store:
        write_batch = write_batch_of(store, scheduler=scheduler)
        write_batch.before_write(fail)
        write_batch.before_write(lambda: write_batch.on_durable(put(store, b"a").end, results.append))
        assert scheduler == [write_batch.commit]
        write_batch.commit()
        assert results == [True]
        assert bodies(store) == [b"a"]
        write_batch.before_write(lambda: None)
        assert scheduler == [write_batch.commit] * 2
    assert "MemoryError" in caplog.text


@pytest.mark.parametrize("sync_flush", [False, True])
def test_a_callback_that_fails_on_success_does_not_stop_the_others(
    tmp_path: Path, sync_flush: bool, caplog: pytest.LogCaptureFixture
) -> None:
    results: list[bool] = []
    with open_store(tmp_path, sync_flush=sync_flush) as store:
        write_batch = write_batch_of(store)
        for then in (fail, results.append):
            write_batch.on_durable(put(store, b"a").end, then)
        write_batch.commit()
        if sync_flush:
            write_batch.synced(store.sync())
        assert results == [True]
    assert "MemoryError" in caplog.text


def test_a_write_without_a_reply_is_waited_for(tmp_path: Path) -> None:
    """A slave asks its master for what comes after a log that is on the disk."""

    async def settled(write_batch: WriteBatch) -> bool:
        try:
            async with asyncio.timeout(0.05):
                await write_batch.settled()
        except TimeoutError:
            return False
        return True

    results: list[bool] = []
    with open_store(tmp_path, sync_flush=True) as store:
        write_batch = write_batch_of(store)
        write_batch.on_durable(put(store, b"a").end, results.append)
        write_batch.commit()
        first = store.sync()
        write_batch.on_durable(put(store, b"b").end, results.append)
        write_batch.commit()
        write_batch.synced(first)
        assert results == [True]
        assert not asyncio.run(settled(write_batch))
        write_batch.synced(store.sync())
        assert asyncio.run(settled(write_batch))


def test_a_callback_that_fails_on_refusal_does_not_stop_the_others(tmp_path: Path) -> None:
    results: list[bool] = []
    with open_store(tmp_path) as store:
        write_batch = write_batch_of(store)
        for then in (fail, results.append):
            write_batch.on_durable(put(store, b"a").end, then)
        fail_next("pwrite", errno.ENOSPC)
        try:
            write_batch.commit()
        finally:
            heal()
        assert results == [False]
        assert bodies(store) == []
