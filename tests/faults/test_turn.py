"""A sync that fails while a turn gathers: its answers are refused at once, and do not wait for their time-out."""

import errno
from pathlib import Path

import pytest

from firearrow._native.path.news import News
from firearrow._native.path.turn import Turn
from firearrow._native.store.segment import fail_next, heal
from firearrow._native.store.store import MessageStore
from firearrow.broker.clock import ManualClock
from tests.store.stores import open_store, put


class Planned(list[object]):
    """Plans that the test runs."""

    call_soon = list.append


class NoPromises:
    """A journal in which nothing was noted."""

    has_promises = False

    def sync(self) -> None:
        raise AssertionError("nothing is to be synced")

    def cancel(self, written: int) -> None:
        self.cancelled = written


def sync_turn(store: MessageStore) -> Turn:
    return Turn(
        Planned(), store, ManualClock(), sync_flush=True, sync_timeout_ms=5000, news=News(),
        sync_soon=lambda: None, full=str, journal=NoPromises(),
    )  # fmt: skip


@pytest.mark.parametrize("written_first", [False, True])
def test_what_gathered_meanwhile_is_refused_at_once(tmp_path: Path, written_first: bool) -> None:
    store = open_store(tmp_path, sync_flush=True)
    turn = sync_turn(store)
    told: list[bool] = []
    put(store, b"before")
    store.write()
    turn.follow(put(store, b"a").end, told.append)
    if written_first:
        turn.end()
    fail_next("sync", errno.EIO)
    try:
        with pytest.raises(OSError, match="Input/output"):
            store.sync()
    finally:
        heal()
    turn.sync_failed("no")
    turn.end()
    assert told == [False]
    assert not store.writable
    store.abandon()
