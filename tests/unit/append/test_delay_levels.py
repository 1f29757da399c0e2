"""DelayService with a manual clock: due times, restarts, a full disk, a clock that jumps."""

import dataclasses
import resource
import shutil
from pathlib import Path

import pytest

from firearrow.broker.append.delay_levels import DelayService
from firearrow.broker.append.followed_log import FILE_NAME, FollowedLog
from firearrow.broker.append.progress_journal import Kind
from firearrow.broker.base.stats import Stats
from firearrow.broker.tables.delay_offsets import DelayOffsets
from tests.support.clock import ManualClock
from tests.support.harness import Harness

LEVELS_MS = (1000, 5000)


class DelayHarness(Harness):
    def __init__(
        self,
        folder: Path,
        offsets: bytes | None = None,
        now_ms: int = 1_700_000_000_000,
        levels_ms: tuple[int, ...] = LEVELS_MS,
        *,
        was_slave: bool = False,
    ) -> None:
        super().__init__(folder, levels_ms, now_ms)
        self.offsets = DelayOffsets(self.clock)
        if offsets is not None:
            self.offsets.load(offsets)
        self.delays = DelayService(
            self.loop,
            self.store,
            self.appender,
            self.journal,
            self.offsets,
            self.clock,
            Stats("DefaultCluster", now_ms),
            levels_ms,
        )
        self.listeners.append(self.delays.messages_arrived)
        for entry in self.journal.recover_entries():
            assert entry.kind == Kind.DELAY
            self.delays.restore(entry.name, entry.number, entry.value)
        self.followed = FollowedLog(self.store)
        if was_slave:
            self.followed.follow()
        self.followed.end_following()
        self.delays.start(self.followed)


@pytest.fixture
def harness(tmp_path: Path) -> DelayHarness:
    return DelayHarness(tmp_path)


def test_a_message_is_delivered_when_it_is_due(harness: DelayHarness) -> None:
    harness.put("T", b"1", DELAY="1")
    harness.timers.run(999)
    assert harness.bodies("T") == []
    harness.timers.run(1)
    assert harness.bodies("T") == [b"1"]
    assert harness.offsets.get(1) == 1


def test_slices_keep_the_order(harness: DelayHarness) -> None:
    for number in range(100):
        harness.put("T", b"%d" % number, DELAY="1")
    harness.timers.run(1001)
    assert [int(body) for body in harness.bodies("T")] == list(range(100))


def test_levels_do_not_wait_for_each_other(harness: DelayHarness) -> None:
    harness.put("T", b"late", DELAY="2")
    harness.put("T", b"soon", DELAY="1")
    harness.timers.run(1000)
    assert harness.bodies("T") == [b"soon"]
    harness.timers.run(4000)
    assert harness.bodies("T") == [b"soon", b"late"]


def test_a_clock_that_was_set_back_delivers_at_once(tmp_path: Path) -> None:
    harness = DelayHarness(tmp_path)
    harness.put("T", b"1", DELAY="1")
    harness.timers.run()
    harness.close()
    harness = DelayHarness(tmp_path, now_ms=1_600_000_000_000)
    harness.timers.run(1)
    assert harness.bodies("T") == [b"1"]


def test_overdue_messages_are_delivered_at_start(tmp_path: Path) -> None:
    harness = DelayHarness(tmp_path)
    harness.put("T", b"1", DELAY="2")
    harness.timers.run(10)
    harness.close()
    harness = DelayHarness(tmp_path, harness.offsets.to_json(), now_ms=1_800_000_000_000)
    harness.timers.run(1)
    assert harness.bodies("T") == [b"1"]


def test_a_kill_repeats_nothing_although_the_file_is_old(tmp_path: Path) -> None:
    harness = DelayHarness(tmp_path)
    old = harness.offsets.to_json()
    for number in range(40):
        harness.put("T", b"%d" % number, DELAY="1")
    harness.timers.run(1000)
    harness.kill()
    harness = DelayHarness(tmp_path, old, now_ms=harness.clock.now_ms())
    harness.put("T", b"40", DELAY="1")
    harness.timers.run(2000)
    assert [int(body) for body in harness.bodies("T")] == list(range(41))


def test_a_kill_before_the_write_loses_nothing(tmp_path: Path) -> None:
    """Journalled and staged, but never written: delivered after the restart."""
    harness = DelayHarness(tmp_path)
    harness.put("T", b"1", DELAY="1")
    harness.timers.run(10)
    harness.clock.advance(1000)
    harness.delays.start()
    harness.kill()
    harness = DelayHarness(tmp_path, now_ms=harness.clock.now_ms())
    assert harness.bodies("T") == []
    harness.timers.run(1)
    assert harness.bodies("T") == [b"1"]


def test_delivery_waits_while_the_disk_is_full(harness: DelayHarness) -> None:
    """A file size limit simulates it."""
    for number in range(50):
        harness.put("T", b"%d" % number, DELAY="1")
    harness.timers.run(10)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        harness.timers.run(2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert harness.bodies("T") == []
    harness.timers.run(300)
    assert [int(body) for body in harness.bodies("T")] == list(range(50))


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"REAL_TOPIC": "T"},
        {"REAL_TOPIC": "T", "REAL_QID": "x"},
        {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
        {"REAL_TOPIC": "../T", "REAL_QID": "0"},
        {"REAL_TOPIC": "T", "REAL_QID": "99999999"},
    ],
)
def test_messages_without_a_valid_destination_are_skipped(
    harness: DelayHarness, properties: dict[str, str]
) -> None:
    harness.put("SCHEDULE_TOPIC_XXXX", b"lost", 0, **properties)
    harness.put("T", b"good", DELAY="1")
    harness.timers.run(2000)
    assert harness.bodies("T") == [b"good"]
    assert harness.offsets.get(1) == 2


def test_offsets_beyond_the_queue_are_corrected(tmp_path: Path) -> None:
    harness = DelayHarness(tmp_path, b'{"offsetTable":{1:77,9:3}}')
    harness.put("T", b"1", DELAY="1")
    harness.timers.run(1000)
    assert harness.bodies("T") == [b"1"]


@pytest.mark.parametrize(
    "text", [b"[]", b"{", b'{"offsetTable":{"x":1}}', b'{"offsetTable":{0:1}}', b'{"offsetTable":{1:"a"}}']
)
def test_a_damaged_file_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"offsetTable|delayOffset|level|JSON|end|text"):
        DelayOffsets(ManualClock()).load(text)


def test_levels_that_were_removed_are_delivered_when_due(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """messageDelayLevel was shortened at a restart."""
    before = DelayHarness(tmp_path)
    for number in range(3):
        before.put("T", b"%d" % number, DELAY="2")
    before.timers.run(10)
    stored, now_ms = before.offsets.to_json(), before.clock.now_ms()
    before.close()
    after = DelayHarness(tmp_path, stored, now_ms, levels_ms=(1000,))
    assert "3 messages wait in delay level 2, but messageDelayLevel has 1 levels now" in caplog.text
    after.timers.run(4000)
    assert after.bodies("T") == [], "not before they are due"
    after.timers.run(2000)
    assert after.bodies("T") == [b"0", b"1", b"2"]
    assert after.offsets.get(2) == 3
    assert after.delays.info()["scheduleMessageOffset_2"] == "3,3"
    after.put("T", b"new", DELAY="2")
    after.timers.run(1001)
    assert after.bodies("T")[-1] == b"new", "new messages get the last level that there is"
    after.close()
    caplog.clear()
    DelayHarness(tmp_path, after.offsets.to_json(), after.clock.now_ms(), levels_ms=(1000,))
    assert "wait in delay level" not in caplog.text


FORMS = {
    "delivered": {},
    "another body": {"body": b"other"},
    "sent again by its key": {"REAL_TOPIC": ""},
    "a later retry": {"reconsume_times": 2},
}


@pytest.mark.parametrize("form", FORMS)
def test_what_the_former_master_delivered_is_passed_over(tmp_path: Path, form: str) -> None:
    """The same message of the part of the log that was copied, and no other one with its key."""
    harness = DelayHarness(tmp_path)
    sent = harness.put("T", b"body", DELAY="1", UNIQ_KEY="K")
    change: dict[str, object] = dict(FORMS[form])
    properties = sent.properties | {"REAL_TOPIC": str(change.get("REAL_TOPIC", "T"))}
    copy = dataclasses.replace(
        sent, topic="T", body=change.get("body", b"body"), properties=properties, queue_id=0
    )
    copy.reconsume_times = int(str(change.get("reconsume_times", 0)))
    copy.properties.pop("DELAY")
    harness.appender.put(copy, hooks=False)
    harness.timers.run(0)
    harness.kill()
    (tmp_path / "config").mkdir(exist_ok=True)
    promoted = DelayHarness(tmp_path, now_ms=harness.clock.now_ms(), was_slave=True)
    promoted.timers.run(1500)
    assert len(promoted.bodies("T")) == (1 if form == "delivered" else 2)
    assert promoted.delays.passed_over == (form == "delivered")
    assert promoted.offsets.get(1) == 1
    promoted.close()


def test_without_a_unique_key_a_message_may_come_twice_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    harness = DelayHarness(tmp_path)
    for _ in range(3):
        harness.put("T", b"x", DELAY="1")
    harness.timers.run(1500)
    assert len(harness.bodies("T")) == 3
    harness.kill()
    shutil.rmtree(tmp_path / "journal")
    promoted = DelayHarness(tmp_path, now_ms=harness.clock.now_ms(), was_slave=True)
    promoted.timers.run(1500)
    assert len(promoted.bodies("T")) == 6
    assert promoted.delays.unsure == 3
    assert sum("without a unique key" in record.message for record in caplog.records) == 1
    promoted.close()


def test_the_followed_part_ends_where_the_log_ended_at_the_promotion(tmp_path: Path) -> None:
    """Each start after it knows it; a damaged file counts as all of the log."""
    harness = DelayHarness(tmp_path)
    harness.put("T")
    harness.timers.run(0)
    end = harness.store.written
    followed = FollowedLog(harness.store)
    followed.end_following()
    assert (followed.until, followed.was_slave) == (0, False)
    for _ in range(2):
        FollowedLog(harness.store).follow()
    followed = FollowedLog(harness.store)
    followed.end_following()
    assert (followed.until, followed.was_slave) == (end, True)
    harness.put("T")
    harness.timers.run(0)
    followed = FollowedLog(harness.store)
    followed.end_following()
    assert (followed.until, followed.was_slave) == (end, False)
    for path in (tmp_path / "config").glob(f"{FILE_NAME}*"):
        path.write_bytes(b"{")
    followed = FollowedLog(harness.store)
    followed.end_following()
    assert followed.until == harness.store.written > end
    harness.close()
