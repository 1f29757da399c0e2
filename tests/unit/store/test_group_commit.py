"""GroupCommit: what is requested is synced when it is reported, in as few syncs as possible; an error is final."""

import errno
import os
import select
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from firearrow._native.store.files.segment import fail_next, heal
from firearrow._native.store.group_commit import GroupCommit
from firearrow._native.store.message_store import MessageStore
from tests.support.stores import SEGMENT_BYTES, open_store, put

WAIT_S = 20
ZEROS_BYTES = 262144
"""As in segment.pyx."""


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
    """Returns the end of the log after the write."""
    for number in range(count):
        put(store, b"%d" % number)
        store.write()
    return store.written


def wait_until_synced(commits: GroupCommit, until: int) -> None:
    while True:
        assert select.select([commits], [], [], WAIT_S)[0]
        if commits.collect_synced() >= until:
            return


def test_requested_syncs_are_reported(store: MessageStore) -> None:
    with committing(store) as commits:
        for _ in range(5):
            until = stored(store)
            assert store.flushed < until
            commits.request_sync()
            wait_until_synced(commits, until)
            assert store.flushed == until


def test_many_segments_are_synced_at_once_and_released(store: MessageStore) -> None:
    until = stored(store, 300)
    assert until > 5 * SEGMENT_BYTES
    with committing(store) as commits:
        commits.request_sync()
        wait_until_synced(commits, until)
        until = stored(store, 300)
        commits.request_sync()
        commits.request_sync()
        wait_until_synced(commits, until)
    assert store.flushed == until


def test_other_threads_may_sync_concurrently(store: MessageStore) -> None:
    with committing(store) as commits:
        for _ in range(50):
            until = stored(store, 3)
            commits.request_sync()
            store.sync()
            assert store.flushed == until
            wait_until_synced(commits, until)


def test_without_work_there_is_no_sync(store: MessageStore) -> None:
    with committing(store) as commits:
        commits.request_sync()
        assert not select.select([commits], [], [], 0.05)[0]


def test_an_error_ends_all_syncs(store: MessageStore) -> None:
    with committing(store) as commits:
        stored(store)
        fail_next("sync", errno.EIO)
        commits.request_sync()
        with pytest.raises(OSError, match="Input/output error"):
            wait_until_synced(commits, store.written)
        heal()  # the kernel would report success for the next one
        assert not store.writable
        with pytest.raises(OSError, match="Input/output error"):
            store.sync()
        assert store.flushed < store.written


def test_a_stop_ends_an_idle_thread(store: MessageStore) -> None:
    with committing(store):
        pass
    GroupCommit(store).stop()


def laid_out(path: Path) -> int:
    """Allocated bytes at the beginning of a file."""
    with path.open("rb") as file:
        return os.lseek(file.fileno(), 0, os.SEEK_HOLE)


@pytest.mark.parametrize("often", [True, False])
def test_a_log_has_zeros_after_its_end(tmp_path: Path, often: bool) -> None:
    """They are used up before more are written, end with their segment, and are not part of it."""
    large = 8 * ZEROS_BYTES
    with closing(open_store(tmp_path, segment_bytes=large)) as store:
        if often:
            GroupCommit(store)
        log = tmp_path / "commitlog" / "0".zfill(20)
        seen = []
        for _ in range(40):
            put(store, bytes(ZEROS_BYTES // 16))
            store.write()
            seen.append(laid_out(log))
            assert store.written <= seen[-1] <= store.written + ZEROS_BYTES
        assert set(seen) == {ZEROS_BYTES, 2 * ZEROS_BYTES, 3 * ZEROS_BYTES}
        while store.written < large - ZEROS_BYTES // 8:
            put(store, bytes(ZEROS_BYTES // 16))
            store.write()
        assert log.stat().st_size == large
        written = store.written
    assert not any(log.read_bytes()[written:])
    with closing(open_store(tmp_path, segment_bytes=large)) as store:
        assert store.written == written
