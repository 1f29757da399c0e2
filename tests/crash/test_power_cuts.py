"""A power cut loses records that offsets and progress files refer to: findings of `python -m tests.crash`."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from firearrow._native.base.durable_files import fsync_dir
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append import progress_journal
from firearrow.broker.append.progress_journal import Journal, Kind
from firearrow.broker.pop.revive import GROUP
from firearrow.broker.services.flusher import Flusher
from firearrow.broker.services.table_saver import TableSaver
from firearrow.broker.tables.config_file import ConfigFile
from tests.crash.restarted_services import RestartedServices
from tests.integration.pops import GROUP as GROUP_OF_POPS
from tests.integration.pops import ack_ext, pop_ext, records
from tests.pop.revive_harness import REVIVE, ReviveHarness
from tests.support.stores import open_store, put
from tests.support.transaction_harness import HALF, ROUND_MS, TransactionHarness
from tests.unit.timers.test_recovery import lose_from


def test_a_half_message_whose_copy_is_lost_is_checked(tmp_path: Path) -> None:
    """The journal was synced, the copies were not."""
    harness = TransactionHarness(tmp_path)
    asked = harness.join()
    harness.prepare()
    end = harness.store.written
    harness.next_round(asked)
    harness.timers.run(3 * ROUND_MS)
    assert len(harness.records(HALF)) > 1
    harness.journal.sync()
    harness.journal.close()
    harness.store.abandon()
    lose_from(tmp_path, end)
    harness = TransactionHarness(tmp_path, now_ms=harness.clock.now_ms())
    asked = harness.join()
    assert len(harness.next_round(asked)) == 1
    harness.close()


def test_check_points_at_the_offsets_of_lost_ones_are_processed(tmp_path: Path) -> None:
    """The offset of the reviving group is past the end of its queue."""
    harness = ReviveHarness(tmp_path)
    for number in range(3):
        harness.put("T", b"%d" % number)
    harness.pop(0)
    harness.timers.run(20_000)
    assert harness.revived() == [b"0"]
    harness.offsets.commit(GROUP, REVIVE, 0, 7)
    harness.kill()
    harness = ReviveHarness(tmp_path, now_ms=harness.clock.now_ms())
    for number in (1, 2):
        harness.pop(number)
        harness.timers.run(20_000)
        harness.kill()
        harness = ReviveHarness(tmp_path, harness.offsets.to_json(), harness.clock.now_ms())
    harness.timers.run(20_000)
    assert harness.revived() == [b"0", b"1", b"2"]
    harness.close()


class Progress:
    """A table that records when it is serialized."""

    def __init__(self, harness: list[str]) -> None:
        self._scratch = harness

    def to_json(self) -> bytes:
        self._scratch.append("text")
        return b"{}"

    def load(self, text: bytes) -> None:
        raise AssertionError("there is no file")


def test_a_progress_file_is_written_after_what_it_refers_to(tmp_path: Path) -> None:
    path, order = tmp_path / "progress.json", list[str]()

    def settle() -> None:
        order.append(f"settled, {path.exists()}")

    async def run() -> None:
        saver = TableSaver(asyncio.get_running_loop(), settle)
        saver.load("progress", ConfigFile(path), Progress(order), make=False, progress=True)
        saver.schedule("progress")
        assert await saver.saved()
        saver.stop()

    asyncio.run(run())
    assert order == ["text", "settled, False"]
    assert path.read_bytes() == b"{}"


def flusher(store: MessageStore, loop: asyncio.AbstractEventLoop) -> Flusher:
    """One that does nothing by itself for an hour."""
    return Flusher(
        loop,
        store,
        sync_flush=False,
        interval_ms=lambda: 3_600_000,
        queue_interval_ms=lambda: 3_600_000,
    )


def test_settling_syncs_the_log_while_the_thread_runs_and_after_it(tmp_path: Path) -> None:
    store, loop = open_store(tmp_path), asyncio.new_event_loop()
    each = flusher(store, loop)
    each.start(lambda end: None, lambda thread, reason: None)
    for stopped in (False, True):
        if stopped:
            each.stop()
        put(store, b"x")
        store.write()
        assert store.flushed < store.written
        settling = threading.Thread(target=each.sync_to_disk)
        settling.start()
        settling.join(20)
        assert store.flushed == store.written
    store.close()
    loop.close()


def answered(broker: RestartedServices, code: RequestCode, ext: dict[str, str]) -> RemotingCommand:
    at_once = broker.ask(code, ext)
    broker.run(10)
    return at_once or broker.producer.replies.pop()


def test_an_answered_acknowledgement_in_order_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It moves the group's offset, as a commit does, but writes no record that would be synced with it."""
    broker = RestartedServices(
        tmp_path, {"flushDiskType": "SYNC_FLUSH", "brokerName": "b"}, 1_700_000_000_000
    )
    try:
        broker.tables.topics.create("T", 1)
        for number in range(2):
            put(broker.store, b"%d" % number)
        broker.store.write()
        broker.store.confirm(broker.store.sync())
        popped = answered(broker, RequestCode.POP_MESSAGE, pop_ext("T", order="true", initMode="0"))
        assert len(records(popped)) == 2
        synced, sync = list[int](), os.fdatasync

        def noted(number: int) -> None:
            synced.append(broker.tables.offsets.committed(GROUP_OF_POPS, "T", 0))
            sync(number)

        monkeypatch.setattr(os, "fdatasync", noted)
        for record in records(popped):
            assert answered(broker, RequestCode.ACK_MESSAGE, ack_ext(popped, record)).code == 0
        assert synced == [1, 2]
    finally:
        broker.kill()


def test_a_journal_file_is_deleted_durably_before_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a power cut restored only the older one, it would state old progress."""
    done, unlink = list[str](), Path.unlink
    each = Journal(tmp_path, "run", 0)
    numbers = []
    for value in range(3):
        each.note(Kind.OFFSET, "T@G", 0, value)
        numbers.append(each.rotate())

    def unlinking(path: Path, *, missing_ok: bool = False) -> None:
        done.append(path.suffix)
        unlink(path, missing_ok=missing_ok)

    def syncing(folder: str) -> None:
        done.append("synced")
        fsync_dir(folder)

    monkeypatch.setattr(Path, "unlink", unlinking)
    monkeypatch.setattr(progress_journal, "fsync_dir", syncing)
    for number in numbers:
        each.drop_before(number)
    assert done == [".0000000000", "synced", ".0000000001", "synced", ".0000000002"]
    each.close()
