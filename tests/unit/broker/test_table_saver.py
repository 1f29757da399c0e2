"""TableSaver: many changes are one write, responses may wait for it, a full disk is retried, stop saves everything."""

import asyncio
import threading

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.peer import Peer
from firearrow.broker.net.dispatch import Dispatch
from firearrow.broker.net.durable_replies import UNSAVED, reply_when_saved
from firearrow.broker.services import table_saver as module
from firearrow.broker.services.table_saver import TableSaver
from tests.support.peers import RecordedPeer


class File:
    """Counts its writes; `error` makes them fail."""

    def __init__(self) -> None:
        self.writes = 0
        self.error: OSError | None = None
        self.written = threading.Event()
        self.tried = threading.Semaphore(0)

    def save(self) -> None:
        self.tried.release()
        if self.error is not None:
            raise self.error
        self.writes += 1
        self.written.set()


def test_many_changes_are_one_write_and_saved_waits_for_it() -> None:
    async def run() -> int:
        file, saver = File(), TableSaver(asyncio.get_running_loop())
        saver.add("t", file.save)
        for _ in range(1000):
            saver.schedule("t")
        assert saver.busy
        await saver.saved()
        assert not saver.busy
        saver.stop()
        return file.writes

    assert asyncio.run(run()) == 1


def test_no_thread_is_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def run() -> int:
        file, saver = File(), TableSaver(asyncio.get_running_loop())
        saver.add("t", file.save)
        monkeypatch.setattr(threading.Thread, "start", no_memory)
        saver.schedule("t")
        async with asyncio.timeout(10):
            assert await saver.saved()
        saver.stop()
        return file.writes

    assert asyncio.run(run()) == 1


def test_a_change_during_the_write_is_written_after_it() -> None:
    async def run() -> int:
        file, saver = File(), TableSaver(asyncio.get_running_loop())
        saver.add("t", file.save)
        saver.schedule("t")
        saver._save(saver._tables["t"])
        saver.schedule("t")
        await saver.saved()
        saver.stop()
        return file.writes

    assert asyncio.run(run()) == 2


def test_a_full_disk_releases_waiting_responses_and_is_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)

    async def run() -> int:
        file, saver = File(), TableSaver(asyncio.get_running_loop())
        file.error = OSError(28, "No space left on device")
        saver.add("t", file.save)
        saver.schedule("t")
        await saver.saved()
        file.error = None
        await asyncio.to_thread(file.written.wait, 10)
        saver.stop()
        return file.writes

    assert asyncio.run(run()) == 1
    assert caplog.text.count("cannot write the t file") == 1


def test_stop_writes_what_changed() -> None:
    async def run() -> int:
        file, saver = File(), TableSaver(asyncio.get_running_loop())
        saver.add("t", file.save)
        saver.changed("t")
        saver.stop()
        return file.writes

    assert asyncio.run(run()) == 1


def test_a_response_to_a_change_waits_for_the_file() -> None:
    async def run() -> None:
        file, saver, peer = File(), TableSaver(asyncio.get_running_loop()), RecordedPeer()
        saver.add("t", file.save)

        def change(request: RemotingCommand, peer: Peer) -> RemotingCommand:
            saver.schedule("t")
            return request.answer()

        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        dispatch = Dispatch([reply_when_saved({code: change, RequestCode.GET_TOPIC_CONFIG: change}, saver)])
        dispatch(RemotingCommand(code), peer)
        assert peer.replies == []
        await dispatch.drain()
        assert (len(peer.replies), file.writes) == (1, 1)
        dispatch(RemotingCommand(RequestCode.GET_TOPIC_CONFIG), peer)
        assert len(peer.replies) == 2
        saver.stop()

    asyncio.run(run())


def test_a_thread_that_ended_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of answers too, and no more changes are made."""

    def fail(work: object) -> None:
        raise RuntimeError("injected")

    async def run() -> None:
        file, saver, peer = File(), TableSaver(asyncio.get_running_loop()), RecordedPeer()
        saver.add("t", file.save)
        changes: list[RemotingCommand] = []

        def change(request: RemotingCommand, peer: Peer) -> RemotingCommand:
            changes.append(request)
            saver.schedule("t")
            return request.answer()

        dispatch = Dispatch([reply_when_saved({RequestCode.PUT_KV_CONFIG: change}, saver)])
        with monkeypatch.context() as patched:
            patched.setattr("concurrent.futures.thread._WorkItem.run", fail)
            dispatch(RemotingCommand(RequestCode.PUT_KV_CONFIG), peer)
            async with asyncio.timeout(10):
                while saver.threads[0].is_alive():  # noqa: ASYNC110 (it is no task)
                    await asyncio.sleep(0)
        assert not peer.replies
        saver.finish()
        await dispatch.drain()
        assert [(answer.code, UNSAVED in (answer.remark or "")) for answer in peer.replies] == [(1, True)]
        dispatch(RemotingCommand(RequestCode.PUT_KV_CONFIG), peer)
        await dispatch.drain()
        assert (len(changes), peer.replies[-1].code) == (1, 1)
        assert "nothing was changed, as the saver thread has ended" in (peer.replies[-1].remark or "")
        assert not await saver.saved()
        assert file.writes == 0
        saver.stop()
        assert file.writes == 1

    asyncio.run(run())


def test_continuous_changes_starve_no_waiter() -> None:
    """Changes that never pause: earlier waiters are notified when their own changes are in the file."""

    async def run() -> None:
        saver, writes, may_end = (
            TableSaver(asyncio.get_running_loop()),
            asyncio.Semaphore(0),
            threading.Semaphore(0),
        )
        loop = asyncio.get_running_loop()

        def save() -> None:
            loop.call_soon_threadsafe(writes.release)
            may_end.acquire()

        saver.add("t", save)
        saver.schedule("t")
        waiting = saver.saved()
        async with asyncio.timeout(20):
            await writes.acquire()
            saver.schedule("t")  # while the previous changes are being written
            may_end.release()
            await waiting
            assert saver.busy
            await writes.acquire()
        may_end.release(10)
        saver.stop()

    asyncio.run(run())


class SlowFile(File):
    """Its saves last until `may_end` allows one more."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.may_end = threading.Semaphore(0), threading.Semaphore(0)

    def save(self) -> None:
        self.began.release()
        assert self.may_end.acquire(timeout=20)
        super().save()


def test_at_most_one_save_runs_and_one_waits() -> None:
    async def run() -> int:
        file, saver = SlowFile(), TableSaver(asyncio.get_running_loop())
        saver.add("offsets", file.save, periodic=True)
        for _ in range(10):  # the save takes longer than the time between two turns
            saver.changed("offsets")
            done = saver.save_changed()
            await asyncio.to_thread(file.began.acquire, timeout=0.05)
        file.may_end.release(100)
        async with asyncio.timeout(20):
            assert await done
        saver.stop()
        return file.writes

    assert asyncio.run(run()) == 2


def test_a_stop_saves_a_changed_table_once_more() -> None:
    async def run() -> int:
        file, saver = SlowFile(), TableSaver(asyncio.get_running_loop())
        saver.add("offsets", file.save, periodic=True)
        for _ in range(5):
            saver.changed("offsets")
            saver.save_changed()
            await asyncio.to_thread(file.began.acquire, timeout=0.05)
        file.may_end.release(100)
        saver.stop()
        return file.writes

    assert asyncio.run(run()) == 2


def test_a_stop_does_not_repeat_the_save_that_runs() -> None:
    async def run() -> int:
        file, saver = SlowFile(), TableSaver(asyncio.get_running_loop())
        saver.add("offsets", file.save, periodic=True)
        saver.changed("offsets")
        saver.save_changed()
        assert await asyncio.to_thread(file.began.acquire, timeout=20)
        file.may_end.release(100)
        saver.stop()
        return file.writes

    assert asyncio.run(run()) == 1


def test_changes_of_topics_do_not_wait_for_offsets() -> None:
    async def run() -> None:
        offsets, topics, saver = SlowFile(), File(), TableSaver(asyncio.get_running_loop())
        saver.add("offsets", offsets.save, periodic=True)
        saver.add("topics", topics.save)
        saver.changed("offsets")
        all_saved = saver.save_changed()
        assert await asyncio.to_thread(offsets.began.acquire, timeout=20)
        saver.schedule("topics")
        async with asyncio.timeout(10):
            assert await saver.saved()
        assert (topics.writes, offsets.writes, all_saved.done(), saver.busy) == (1, 0, False, False)
        offsets.may_end.release(100)
        assert await all_saved
        saver.stop()

    asyncio.run(run())


def test_late_and_failing_saves_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        file, saver = File(), TableSaver(loop)
        saver.add("t", file.save)
        saver.add("never-changed", file.save)
        file.error = OSError(28, "No space left on device")
        saver.schedule("t")
        assert not await saver.saved()
        for _ in range(4):
            assert await asyncio.to_thread(file.tried.acquire, timeout=20)
        (state,) = saver.states()
        assert state.failures >= 3
        assert (state.table, "No space left" in state.error, state.late_s > 0) == ("t", True, True)
        assert saver.fault() is None
        monkeypatch.setattr(module, "LATE_S", 0.0)
        assert "the t file was not written" in (saver.fault() or "")
        monkeypatch.setattr(module, "LATE_S", 60.0)
        file.error = None
        assert await asyncio.to_thread(file.written.wait, 20)
        saver.changed("t")
        assert await saver.save_changed()
        (state,) = saver.states()
        assert (state.error, state.late_s, saver.fault()) == ("", 0.0, None)
        saver.stop()

    asyncio.run(run())
