"""Pending messages while the log is deleted: delayed and timer messages whose record is deleted are skipped."""

from pathlib import Path

from firearrow._native.protocol import name_rules
from tests.support.harness import Harness
from tests.support.stores import drop_segments
from tests.support.timer_harness import TimerHarness
from tests.unit.append.test_delay_levels import DelayHarness


def delete_front(harness: Harness) -> None:
    """The log rolls, and all but its last segment is deleted."""
    for _ in range(40):
        harness.put("filling", b"0" * 60_000)
        harness.write_batch.commit()
    assert drop_segments(harness.store, force=True) > 0


def test_a_level_continues_after_deleted_messages(tmp_path: Path) -> None:
    harness = DelayHarness(tmp_path)
    for number in range(5):
        harness.put("T", b"%d" % number, DELAY="1")
    delete_front(harness)
    assert harness.store.reader.min_offset(name_rules.SCHEDULE_TOPIC, 0) == 5
    harness.put("T", b"kept", DELAY="1")
    harness.timers.run(1001)
    assert harness.bodies("T") == [b"kept"]
    assert harness.offsets.get(1) == 6


def test_the_timer_continues_after_deleted_messages(tmp_path: Path) -> None:
    """One message was in the wheel, another was not enqueued yet."""
    harness = TimerHarness(tmp_path)
    harness.send(b"1", 5000)
    harness.timers.run(10)
    harness.listeners.remove(harness.service.messages_arrived)
    harness.send(b"2", 5000)
    delete_front(harness)
    assert harness.store.reader.min_offset(name_rules.TIMER_TOPIC, 0) == 2
    harness.listeners.append(harness.service.messages_arrived)
    harness.send(b"3", 5000)
    harness.timers.run(10_000)
    assert harness.found() == [3]
    harness.stop()


def test_a_slot_whose_first_records_were_deleted_is_no_damage(tmp_path: Path) -> None:
    """Its chain leads into deleted files of the timer log, and their messages are deleted, too."""
    harness = TimerHarness(tmp_path)
    for number in range(230):
        harness.send(b"%d" % number, 60_000)
    harness.timers.run(10)
    delete_front(harness)
    harness.send(b"230", 59_990)
    harness.timers.run(40_000)
    assert not (tmp_path / "timerlog" / f"{0:020d}").exists()
    harness.timers.run(30_000)
    assert harness.found() == [230]
    assert not harness.service._timer_files.checkpoint.is_suspect
    assert harness.service.runtime()["timerCongestNum"] == "0"
    harness.stop()
