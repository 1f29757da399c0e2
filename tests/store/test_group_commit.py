"""GroupCommit: what is asked for is on the disk when it is heard of, in as few syncs as may be; an error is the end."""

import errno
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from firearrow._native.store.groupcommit import GroupCommit
from firearrow._native.store.segment import fail_next, heal
from firearrow._native.store.store import MessageStore
from tests.store.stores import SEGMENT_BYTES, open_store, put

WAIT_S = 20


@contextmanager
def committing(store: MessageStore) -> Iterator[GroupCommit]:
    commits = GroupCommit(store)
    commits.start()
    try:
        yield commits
    finally:
        commits.stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    opened = open_store(tmp_path)
    yield opened
    heal()
    opened.close()


def stored(store: MessageStore, count: int = 1) -> int:
    """Up to where the log is written then."""
    for number in range(count):
        put(store, b"%d" % number)
        store.write()
    return store.written


def heard(commits: GroupCommit, until: int) -> None:
    while True:
        assert select.select([commits], [], [], WAIT_S)[0]
        if commits.heard() >= until:
            return


def test_what_is_asked_for_is_heard_of(store: MessageStore) -> None:
    with committing(store) as commits:
        for _ in range(5):
            until = stored(store)
            assert store.flushed < until
            commits.ask()
            heard(commits, until)
            assert store.flushed == until


def test_many_segments_go_at_once_and_are_let_go(store: MessageStore) -> None:
    until = stored(store, 300)
    assert until > 5 * SEGMENT_BYTES
    with committing(store) as commits:
        commits.ask()
        heard(commits, until)
        until = stored(store, 300)
        commits.ask()
        commits.ask()
        heard(commits, until)
    assert store.flushed == until


def test_other_threads_may_sync_meanwhile(store: MessageStore) -> None:
    with committing(store) as commits:
        for _ in range(50):
            until = stored(store, 3)
            commits.ask()
            store.sync()
            assert store.flushed == until
            heard(commits, until)


def test_nothing_to_do_is_no_sync(store: MessageStore) -> None:
    with committing(store) as commits:
        commits.ask()
        assert not select.select([commits], [], [], 0.05)[0]


def test_an_error_is_the_end_of_all_syncs(store: MessageStore) -> None:
    with committing(store) as commits:
        stored(store)
        fail_next("sync", errno.EIO)
        commits.ask()
        with pytest.raises(OSError, match="Input/output error"):
            heard(commits, store.written)
        heal()  # the kernel would call the next one good
        assert not store.writable
        with pytest.raises(OSError, match="Input/output error"):
            store.sync()
        assert store.flushed < store.written


def test_a_stop_ends_a_thread_that_nobody_asked(store: MessageStore) -> None:
    with committing(store):
        pass
    GroupCommit(store).stop()
