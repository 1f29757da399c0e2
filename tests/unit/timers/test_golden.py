"""The timers of Apache's own stores: we write the same records and slots, and deliver its pending messages."""

import shutil
import struct
from pathlib import Path

import pytest

from firearrow._native.store.log.record import decode
from firearrow._native.store.log.timer_layout import RECORD_LAYOUT, SLOT, Slot
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.timers.enqueue import record_of, slot_ms
from firearrow.broker.timers.log import TimerLog
from firearrow.broker.timers.recovery import linked
from firearrow.broker.timers.wheel import TimerWheel
from tests.support.timer_harness import TIMER, TimerHarness
from tests.unit.store.test_golden import CONFIG, Golden

HOUR_MS = 3_600_000
ROLL_SLOTS = 172_800


@pytest.fixture(params=["store-apache", "store-apache-crashed"])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return Golden(request.param, tmp_path)


as_crashed = pytest.mark.parametrize(
    "golden", ["store-apache-crashed", pytest.param("store-apache", marks=pytest.mark.long)], indirect=True
)
"""What is lost here as well is lost in the same way in the store that Apache closed."""


class GoldenTiming(TimerHarness):
    """Opened with the store's own sizes."""

    def __init__(self, folder: Path, now_ms: int) -> None:
        super().__init__(folder, now_ms, store=MessageStore.open(folder, CONFIG))


def check_point(root: Path) -> tuple[int, ...]:
    """Read time, flushed position, queue offset, the master's queue offset."""
    return struct.unpack_from(">4q", (root / "config" / "timercheck").read_bytes())


def test_records_and_slots_equal_apaches_bytes(golden: Golden) -> None:
    """Each message is enqueued again, at the times at which Apache enqueued it."""
    (golden.root / "abort").unlink(missing_ok=True)
    raw = next((golden.root / "timerlog").iterdir()).read_bytes()
    theirs = (golden.root / "timerwheel").read_bytes()
    slots: dict[int, Slot] = {}
    log = TimerLog(golden.root / "timerlog", 10_400)
    count = 0
    with MessageStore.open(golden.root, CONFIG) as store:
        entries = {entry.physical_offset: entry for entry in store.reader.entries(TIMER, 0, 0, 1000)}
        for position, timer_record in log.records(0):
            data = store.reader.record_at(timer_record.physical_offset)
            assert data is not None
            record = decode(data)
            out_ms = int(record.properties["TIMER_OUT_MS"])
            time_ms = slot_ms(out_ms, timer_record.write_ms, ROLL_SLOTS, 1000)
            slot = slots.get(time_ms // 1000, Slot(time_ms // 1000))
            ours = record_of(
                entries[timer_record.physical_offset],
                record.properties,
                slot.last,
                time_ms,
                timer_record.write_ms,
                roll=time_ms != out_ms,
            )
            assert (
                RECORD_LAYOUT.pack(RECORD_LAYOUT.size, *ours, 0)
                == raw[position : position + RECORD_LAYOUT.size]
            )
            slots[slot.time] = linked(slot, position, ours)
            count += 1
    assert count > 20
    for slot in slots.values():
        at = slot.time % (len(theirs) // SLOT.size) * SLOT.size
        assert SLOT.pack(*slot) == theirs[at : at + SLOT.size]


def test_apaches_pending_messages_are_delivered(golden: Golden) -> None:
    """Due in an hour, and in 2.9 days, which Apache would roll once; the recalled one is not delivered."""
    read_ms, _, taken, _ = check_point(golden.root)
    harness = GoldenTiming(golden.root, read_ms + 500)
    assert harness.service.runtime()["timerOffsetBehind"] == str(
        harness.store.reader.max_offset(TIMER, 0) - taken
    )
    before = sum(len(harness.records("GoldenTimer", queue_id)) for queue_id in range(4))
    timers = harness.store.reader.max_offset(TIMER, 0)
    harness.run_to(HOUR_MS)
    after = [record for queue_id in range(4) for record in harness.records("GoldenTimer", queue_id)]
    assert len(after) == before + 1
    harness.run_to(3 * 24 * HOUR_MS)
    after = [record for queue_id in range(4) for record in harness.records("GoldenTimer", queue_id)]
    assert len(after) == before + 2
    assert harness.store.reader.max_offset(TIMER, 0) == timers + 1
    assert not any(b"recalled" in record.body for record in after)
    fresh = sorted(after, key=lambda record: record.physical_offset)
    [apaches] = [record for record in fresh[:before] if record.body == b"after 1,500 ms"]
    asked = {"TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"}
    assert fresh[before].properties.keys() - asked == apaches.properties.keys() - asked
    assert fresh[-1].properties["TIMER_ROLL_TIMES"] == "1"
    assert harness.service.runtime()["timerCongestNum"] == "0"


@as_crashed
def test_a_lost_wheel_is_rebuilt_from_the_log(golden: Golden) -> None:
    read_ms, *_ = check_point(golden.root)
    (golden.root / "timerwheel").unlink()
    harness = GoldenTiming(golden.root, read_ms + 500)
    before = sum(len(harness.records("GoldenTimer", queue_id)) for queue_id in range(4))
    harness.run_to(3 * 24 * HOUR_MS)
    found = [body for queue_id in range(4) for body in harness.bodies("GoldenTimer", queue_id)]
    assert len(found) == len(set(found)) == before + 2


@as_crashed
def test_without_the_check_point_nothing_is_lost(golden: Golden) -> None:
    """Which slots were delivered is unknown then: the last seven days are delivered again, as in Apache's broker."""
    read_ms, *_ = check_point(golden.root)
    (golden.root / "config" / "timercheck").unlink()
    harness = GoldenTiming(golden.root, read_ms + 500)
    harness.run_to(3 * 24 * HOUR_MS)
    found = {body for queue_id in range(4) for body in harness.bodies("GoldenTimer", queue_id)}
    assert {b"in 1 h: stays pending", b"in 2.9 days: is rolled"} < found
    assert harness.store.reader.max_offset(TIMER, 0) < 60  # the queue is not read from its start


def test_recovery_does_not_change_apaches_bytes(golden: Golden, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(golden.root, copy)
    read_ms, *_ = check_point(golden.root)
    harness = GoldenTiming(copy, read_ms)
    harness.kill()
    files = ("timerwheel", "timerlog/00000000000000000000")
    assert all((copy / name).read_bytes() == (golden.root / name).read_bytes() for name in files)
    assert check_point(copy)[2:] == check_point(golden.root)[2:]


def test_the_wheel_finds_the_pending_slots(golden: Golden) -> None:
    read_ms, *_ = check_point(golden.root)
    path = golden.root / "timerwheel"
    path.write_bytes(path.read_bytes())  # as a copy without holes
    wheel = TimerWheel(path, 1000)
    found = wheel.load(read_ms)
    assert [slot.time * 1000 for slot in found if slot.time * 1000 < read_ms] == []
    at, times = read_ms, []
    while (time_ms := wheel.next(at)) is not None and time_ms >= at:
        times.append(time_ms)
        wheel.mark_delivered(time_ms)
        at = time_ms
    assert times == sorted(slot.time * 1000 for slot in found)
    assert len(times) >= 2
