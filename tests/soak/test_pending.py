"""What waits in the log while the log is deleted: delayed and timer messages whose record is gone are passed over."""

from pathlib import Path

from firearrow.broker.tables import name_rules
from tests.append.test_delay_levels import DelayHarness
from tests.support.harness import Harness
from tests.support.stores import drop_segments
from tests.support.timer_harness import TimerHarness


def delete_front(harness: Harness) -> None:
    """The log rolls, and all but its last segment goes."""
    for _ in range(40):
        harness.put("filling", b"0" * 60_000)
        harness.write_batch.commit()
    assert drop_segments(harness.store, force=True) > 0


def test_a_level_goes_on_behind_what_was_deleted(tmp_path: Path) -> None:
    harness = DelayHarness(tmp_path)
    for number in range(5):
        harness.put("T", b"%d" % number, DELAY="1")
    delete_front(harness)
    assert harness.store.reader.min_offset(name_rules.SCHEDULE_TOPIC, 0) == 5
    harness.put("T", b"kept", DELAY="1")
    harness.timers.run(1001)
    assert harness.bodies("T") == [b"kept"]
    assert harness.offsets.get(1) == 6


def test_the_timer_goes_on_behind_what_was_deleted(tmp_path: Path) -> None:
    """One message was laid into the wheel, another had not been taken up."""
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


def test_a_slot_whose_first_units_went_with_the_log_is_no_damage(tmp_path: Path) -> None:
    """Its chain leads into files of the timer's log that are gone, as are the messages they named."""
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
