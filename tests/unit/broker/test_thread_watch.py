"""ThreadWatch: a thread that ended or hangs stops the store, and is reported; one that goes on no more."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from firearrow._native.store.message_store import MessageStore, PutRefused
from firearrow.broker.base.process import ServiceThread
from firearrow.broker.services.thread_watch import HUNG_S, SYNC_HUNG_S, LogSync, ThreadWatch, WatchedThread
from tests.support.eventually import eventually
from tests.support.stores import open_store, put


class Time:
    """The loop's clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now


class Worker:
    name = "worker"

    def __init__(self) -> None:
        self.alive, self.number = True, cast("int | None", None)

    def is_alive(self) -> bool:
        return self.alive

    def progress(self) -> int | None:
        return self.number


class Watching:
    def __init__(self, store: MessageStore, thread: WatchedThread, hung_s: float, *, stops: bool) -> None:
        self.store, self.time, self.reasons = store, Time(), list[str]()
        self.watch = ThreadWatch(self.time, store, self.reasons.append)  # type: ignore[arg-type]
        self.watch.watch(thread, lambda: hung_s, stops_when_hung=stops)

    def look_for(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.time.now += 1
            self.watch.look()

    def accepts(self) -> bool:
        try:
            put(self.store, b"x")
        except PutRefused as refused:
            return str(self.store.stopped) not in str(refused)
        return True


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path) as opened:
        yield opened


def test_a_thread_that_ended_stops_the_store_for_good(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker()
    watching = Watching(store, worker, HUNG_S, stops=False)
    watching.look_for(3)
    assert (watching.watch.fault(), watching.accepts()) == (None, True)
    worker.alive = False
    watching.look_for(1)
    assert watching.watch.fault() == "the worker thread has ended: restart the broker"
    worker.alive = True
    watching.look_for(3)
    assert watching.reasons == ["the worker thread has ended: restart the broker"]
    assert not watching.accepts()
    with pytest.raises(OSError, match="worker thread has ended"):
        store.write()  # what was staged before is not acknowledged either
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]
    (state,) = watching.watch.states()
    assert (state.is_alive, state.fault) == (False, "the worker thread has ended: restart the broker")


def test_its_own_reason_counts(store: MessageStore) -> None:
    worker = Worker()
    watching = Watching(store, worker, HUNG_S, stops=False)
    watching.watch.ended("worker", "the disk failed: repair it")
    worker.alive = False
    watching.look_for(2)
    assert (watching.reasons, store.stopped) == (["the disk failed: repair it"], "the disk failed: repair it")


def test_a_log_that_is_not_synced_stops_the_store_until_it_is(store: MessageStore) -> None:
    watching = Watching(store, LogSync(store), SYNC_HUNG_S, stops=True)
    put(store, b"x")
    store.write()
    watching.look_for(SYNC_HUNG_S)
    assert watching.accepts()
    store.write()
    watching.look_for(1)
    assert not watching.accepts()
    assert "hangs for 30 s" in (watching.watch.fault() or "")
    assert watching.reasons == []  # what waits may still be synced
    store.sync()
    watching.look_for(1)
    assert (watching.watch.fault(), watching.accepts()) == (None, True)


def test_a_long_job_is_reported_and_one_after_the_other_is_not(store: MessageStore) -> None:
    worker = Worker()
    watching = Watching(store, worker, HUNG_S, stops=False)
    for worker.number in range(10):
        watching.look_for(HUNG_S - 1)
    assert watching.watch.fault() is None
    watching.look_for(HUNG_S)
    assert "the worker hangs" in (watching.watch.fault() or "")
    assert watching.accepts()
    worker.number = None
    watching.look_for(1)
    assert watching.watch.fault() is None


def test_the_time_of_a_stopped_process_does_not_count(store: MessageStore) -> None:
    worker = Worker()
    watching = Watching(store, worker, HUNG_S, stops=True)
    worker.number = 1
    watching.look_for(2)
    watching.time.now += 10_000  # SIGSTOP, SIGCONT
    watching.look_for(2)
    assert watching.watch.fault() is None


def test_a_service_thread_shows_whether_it_runs_a_job() -> None:
    may_end = threading.Event()
    with ServiceThread("jobs") as thread:
        assert thread.is_alive()
        running = thread.submit(may_end.wait, 20)
        eventually(lambda: thread.progress() is not None, 20)
        number = thread.progress()
        may_end.set()
        assert running.result()
        eventually(lambda: thread.progress() != number, 20)
        assert thread.progress() is None
    assert thread.is_alive()  # ended as it should


def test_a_service_thread_that_ended_is_not_alive() -> None:
    """As without memory: the executor's own code fails, and its jobs would wait for ever."""

    def fail() -> None:
        raise MemoryError

    thread = ServiceThread("jobs", fail)
    eventually(lambda: not thread.is_alive())
    thread.shutdown()
