"""What waits in the log while the log is deleted: delayed and timer messages whose record is gone are passed over."""

from pathlib import Path

from firearrow.broker.tables import names
from tests.life.room import Room
from tests.life.test_delays import Delaying
from tests.life.timing import Timing
from tests.store.stores import drop_segments


def delete_front(room: Room) -> None:
    """The log rolls, and all but its last segment goes."""
    for _ in range(40):
        room.put("filling", b"0" * 60_000)
        room.turn.end()
    assert drop_segments(room.store, force=True) > 0


def test_a_level_goes_on_behind_what_was_deleted(tmp_path: Path) -> None:
    room = Delaying(tmp_path)
    for number in range(5):
        room.put("T", b"%d" % number, DELAY="1")
    delete_front(room)
    assert room.store.reader.min_offset(names.SCHEDULE_TOPIC, 0) == 5
    room.put("T", b"kept", DELAY="1")
    room.timers.run(1001)
    assert room.bodies("T") == [b"kept"]
    assert room.offsets.get(1) == 6


def test_the_timer_goes_on_behind_what_was_deleted(tmp_path: Path) -> None:
    """One message was laid into the wheel, another had not been taken up."""
    room = Timing(tmp_path)
    room.send(b"1", 5000)
    room.timers.run(10)
    room.listeners.remove(room.service.news)
    room.send(b"2", 5000)
    delete_front(room)
    assert room.store.reader.min_offset(names.TIMER_TOPIC, 0) == 2
    room.listeners.append(room.service.news)
    room.send(b"3", 5000)
    room.timers.run(10_000)
    assert room.found() == [3]
    room.stop()


def test_a_slot_whose_first_units_went_with_the_log_is_no_damage(tmp_path: Path) -> None:
    """Its chain leads into files of the timer's log that are gone, as are the messages they named."""
    room = Timing(tmp_path)
    for number in range(230):
        room.send(b"%d" % number, 60_000)
    room.timers.run(10)
    delete_front(room)
    room.send(b"230", 59_990)
    room.timers.run(40_000)
    assert not (tmp_path / "timerlog" / f"{0:020d}").exists()
    room.timers.run(30_000)
    assert room.found() == [230]
    assert not room.service._works.check.is_doubtful
    assert room.service.runtime()["timerCongestNum"] == "0"
    room.stop()
