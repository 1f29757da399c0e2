"""Faults in a turn: a sync that fails while it gathers, and those who wait for it and fail themselves."""

import errno
from pathlib import Path

import pytest

from firearrow._native.path.news import News
from firearrow._native.path.turn import Turn
from firearrow._native.store.segment import fail_next, heal
from firearrow._native.store.store import MessageStore
from tests.support.clock import ManualClock
from tests.support.stores import bodies, open_store, put


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


def turn_of(store: MessageStore, plans: Planned | None = None) -> Turn:
    return Turn(
        plans if plans is not None else Planned(), store, ManualClock(),
        sync_timeout_ms=5000, news=News(), sync_soon=lambda: None, full=str, journal=NoPromises(),
    )  # fmt: skip


def fail(*_: object) -> None:
    raise MemoryError


@pytest.mark.parametrize("written_first", [False, True])
def test_what_gathered_meanwhile_is_refused_at_once(tmp_path: Path, written_first: bool) -> None:
    store = open_store(tmp_path, sync_flush=True)
    turn = turn_of(store)
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


def test_one_that_fails_before_the_write_does_not_keep_the_turn_from_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plans, told = Planned(), list[bool]()
    with open_store(tmp_path) as store:
        turn = turn_of(store, plans=plans)
        turn.before(fail)
        turn.before(lambda: turn.follow(put(store, b"a").end, told.append))
        assert plans == [turn.end]
        turn.end()
        assert told == [True]
        assert bodies(store) == [b"a"]
        turn.before(lambda: None)
        assert plans == [turn.end] * 2
    assert "MemoryError" in caplog.text


@pytest.mark.parametrize("sync_flush", [False, True])
def test_one_that_fails_when_it_is_told_does_not_keep_it_from_the_others(
    tmp_path: Path, sync_flush: bool, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[bool] = []
    with open_store(tmp_path, sync_flush=sync_flush) as store:
        turn = turn_of(store)
        for then in (fail, told.append):
            turn.follow(put(store, b"a").end, then)
        turn.end()
        if sync_flush:
            turn.synced(store.sync())
        assert told == [True]
    assert "MemoryError" in caplog.text


def test_one_that_fails_when_it_is_refused_does_not_keep_it_from_the_others(tmp_path: Path) -> None:
    told: list[bool] = []
    with open_store(tmp_path) as store:
        turn = turn_of(store)
        for then in (fail, told.append):
            turn.follow(put(store, b"a").end, then)
        fail_next("pwrite", errno.ENOSPC)
        try:
            turn.end()
        finally:
            heal()
        assert told == [False]
        assert bodies(store) == []
