"""What the flusher's thread does with an open store while the appender makes and deletes queues."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from firearrow._native.store.message_store import MessageStore
from tests.support.stores import open_store, put

QUEUES = 400
ROUNDS = 60


@pytest.fixture(autouse=True)
def switches() -> Iterator[None]:
    """Threads take turns after a few bytecodes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@contextmanager
def flushing(store: MessageStore) -> Iterator[list[int]]:
    """Does what the flusher does, all the time; the list has the number of queues of each flush. Its errors are
    raised."""
    stop, errors, flushed = threading.Event(), list[BaseException](), list[int]()

    def run() -> None:
        try:
            while not stop.is_set():
                store.prepare()
                store.sync()
                flushed.append(store.flush_queues())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield flushed
    finally:
        stop.set()
        thread.join()
    if errors:
        raise errors[0]


def test_queues_are_made_and_deleted_while_they_are_flushed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(QUEUES):
        put(store, b"x", topic=f"Stays{number}", queue_id=0)
    store.write()
    with flushing(store) as flushed:
        made = 0
        while made < ROUNDS or len(flushed) < 3:
            for number in range(10):
                put(store, b"x", topic=f"Comes{number}", queue_id=made % 7)
            store.write()
            for number in range(10):
                store.drop_topic(f"Comes{number}")
            made += 1
    assert store.sync() == store.written
    store.close()
    with open_store(tmp_path) as again:
        assert [again.reader.max_offset(f"Stays{number}", 0) for number in range(QUEUES)] == [1] * QUEUES
