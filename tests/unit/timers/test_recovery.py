"""The timer after a stop, a kill, a power cut: nothing lost, nothing twice, at any moment."""

import os
import random
import shutil
import struct
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from firearrow.broker.base.errors import StartError
from firearrow.broker.timers import checkpoint
from tests.support.examples import seeds
from tests.support.killed_writes import Killed, killed_after
from tests.support.timer_harness import DAY_MS, NOW, TIMER, TimerHarness


@pytest.fixture
def harness(tmp_path: Path) -> TimerHarness:
    return TimerHarness(tmp_path)


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("by_ms", [0, 2000, 6 * DAY_MS, 8 * DAY_MS, 20 * DAY_MS, 400 * DAY_MS])
def test_pending_messages_survive_a_restart(harness: TimerHarness, end: str, by_ms: int) -> None:
    for number in range(20):
        harness.send(b"%d" % number, 5000 + number * 1000)
    harness.timers.run(1)
    harness.stop() if end == "stop" else harness.kill()
    later = harness.again(by_ms)
    later.timers.run(30_000)
    assert later.found() == list(range(20))


@pytest.mark.parametrize("end", ["kill", "sleep"])
@pytest.mark.parametrize("days", [8, 12, 13, 14, 27, 100])
def test_after_a_long_stop_nothing_shares_a_slot(harness: TimerHarness, days: int, end: str) -> None:
    """The wheel wraps around after fourteen days: after 13, 14 and 27, new records would share slots with pending ones.
    A suspended machine has the same effect."""
    old = [harness.send(b"%d" % number, 5000 + number * 1000) for number in range(4)]
    harness.recall(old[3])
    harness.timers.run(1)
    if end == "kill":
        harness.kill()
        later = harness.again(days * DAY_MS)
    else:
        harness.clock.advance(days * DAY_MS)
        later = harness
    delays = [(old_ms - days * DAY_MS) % (14 * DAY_MS) % (2 * DAY_MS) for old_ms in (5000, 6000, 7000)]
    for number, delay_ms in enumerate(delays):
        later.send(b"%d" % (10 + number), delay_ms)
    later.timers.run(1000)
    assert sorted(later.found()) == [0, 1, 2]
    later.kill()
    later = later.again()
    later.run_to(min(delays) - 1001)
    assert sorted(later.found()) == [0, 1, 2]
    later.timers.run(4000)
    assert sorted(later.found()) == [0, 1, 2, 10, 11, 12]


def test_a_check_point_of_another_time_loses_nothing(harness: TimerHarness) -> None:
    """It is Apache's then, and the wheel's last round is delivered, as in Apache's broker."""
    harness.send(b"1", 5000)
    harness.timers.run(1)
    harness.kill()
    path = harness.folder / "config" / "timercheck"
    fields = harness.check()
    path.write_bytes(struct.pack(">7q", NOW - 400 * DAY_MS, *fields[1:]).ljust(4096, b"\0"))
    later = harness.again(2 * DAY_MS)
    later.timers.run(3000)
    assert later.found() == [1]


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("after", [1, 3, 6, 11, 16])
def test_a_partly_delivered_slot_is_continued(harness: TimerHarness, end: str, after: int) -> None:
    messages = [harness.send(b"%d" % number, 3000) for number in range(700)]
    harness.timers.run(10)
    for number in (5, 200, 300, 690):
        harness.recall(messages[number])
    harness.timers.run(2989)
    step(harness, after)
    partly = len(harness.found())
    assert partly < 696
    harness.stop() if end == "stop" else harness.kill()
    assert_all(harness, set(range(700)) - {5, 200, 300, 690})


def assert_all(harness: TimerHarness, expected: set[int]) -> None:
    for _ in range(2):
        harness = harness.again(1000)
        harness.timers.run(20_000)
        assert sorted(harness.found()) == sorted(expected)
        harness.kill()


def step(harness: TimerHarness, count: int) -> None:
    """`count` steps of the loop, a second later."""
    harness.clock.advance(1)
    for _ in range(count):
        harness.timers.step()


@pytest.mark.parametrize("after", range(1, 9))
def test_late_messages_are_not_repeated(harness: TimerHarness, after: int) -> None:
    for number in range(200):
        harness.put(TIMER, b"%d" % number, TIMER_OUT_MS=str(NOW - 5000), REAL_TOPIC="T", REAL_QID="0")
    for _ in range(after):
        harness.timers.step()
    harness.kill()
    assert_all(harness, set(range(200)))


@pytest.mark.parametrize("seed", seeds(12))
def test_kills_at_any_moment(tmp_path: Path, seed: int) -> None:
    """Sent, rolled, recalled and killed in between, repeatedly: what was not recalled in time is delivered once."""
    rng = random.Random(seed)
    harness = TimerHarness(tmp_path, timer_roll_slots=8)
    recalled: set[int] = set()
    number = 0
    for _ in range(8):
        for _ in range(rng.randrange(1, 120)):
            message = harness.send(b"%d" % number, rng.choice((700, 2500, 2500, 4000, 9000, 15_000)))
            if rng.random() < 0.1 and message.topic == TIMER:
                harness.recall(message)
                recalled.add(number)
            number += 1
        harness.timers.run()  # written, and therefore promised
        harness.clock.advance(rng.choice((0, 0, 900, 3000)))
        for _ in range(rng.randrange(60)):
            harness.timers.step()
        harness.kill() if rng.random() < 0.8 else harness.stop()
        harness = harness.again(rng.choice((0, 500, 2000)), timer_roll_slots=8)
    harness.timers.run(40_000)
    found = Counter(harness.found())
    assert set(found) | recalled == set(range(number))
    assert [body for body, times in found.items() if times > 1] == []
    assert (
        len(recalled & set(found)) <= 1 + len(recalled) // 4
    )  # a recall may arrive when its slot was due already
    assert harness.service.runtime()["timerCongestNum"] == "0"


EACH_WRITE = [n if n < 12 or n % 3 == 0 else pytest.param(n, marks=pytest.mark.long) for n in range(68)]


@pytest.mark.parametrize("writes", EACH_WRITE)
def test_a_kill_between_any_two_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    harness = TimerHarness(tmp_path, timer_roll_slots=4)
    harness.put(TIMER, b"0", TIMER_OUT_MS="5", REAL_TOPIC="T", REAL_QID="0")
    messages = [harness.send(b"%d" % number, 1500 + 700 * (number % 8)) for number in range(1, 300)]
    for number in (11, 29, 203):
        harness.recall(messages[number - 1])
    harness.write_batch.commit()
    with suppress(Killed), killed_after(writes, monkeypatch):
        harness.timers.run(20_000)
    harness.kill()
    assert_all(harness, set(range(300)) - {11, 29, 203})


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "boot_id"
    path.write_text("first boot")
    monkeypatch.setattr(checkpoint, "BOOT_ID", path)
    return path


@pytest.mark.parametrize("kept", [0, 52 * 3, 52 * 17])
def test_a_power_cut_may_lose_the_timer_s_files_but_no_message(tmp_path: Path, boot: Path, kept: int) -> None:
    """The wheel refers to lost records, and the checkpoint is ahead of the log."""
    harness = TimerHarness(tmp_path / "store")
    for number in range(30):
        harness.send(b"%d" % number, 5000 + 500 * (number % 4))
    harness.timers.run(10)
    harness.kill()
    log = tmp_path / "store" / "timerlog" / "00000000000000000000"
    log.write_bytes(log.read_bytes()[:kept].ljust(10_400, b"\0"))
    boot.write_text("second boot")
    harness = harness.again(1000)
    harness.timers.run(10_000)
    assert sorted(harness.found()) == list(range(30))


def test_a_power_cut_that_loses_deliveries_repeats_them(tmp_path: Path, boot: Path) -> None:
    harness = TimerHarness(tmp_path / "store")
    for number in range(30):
        harness.send(b"%d" % number, 2000)
    for number in range(30, 40):
        harness.put(TIMER, b"%d" % number, TIMER_OUT_MS="5", REAL_TOPIC="T", REAL_QID="0")
    harness.timers.run(10)
    harness.timers.run(2000)
    assert sorted(harness.found()) == list(range(40))
    cut = harness.records("T")[0].physical_offset
    harness.kill()
    lose_from(harness.folder, cut)
    boot.write_text("second boot")
    harness = harness.again(100)
    harness.timers.run(2000)
    assert set(harness.found()) == set(range(40))


@pytest.mark.parametrize("seed", seeds(6))
def test_a_power_cut_under_sync_flush(tmp_path: Path, boot: Path, seed: int) -> None:
    """Messages and journal are synced, each of the timer's files is as it is or as it was last flushed."""
    rng = random.Random(seed)
    files = ("timerwheel", "timerlog", "config/timercheck")
    store, old = tmp_path / "store", tmp_path / "old"
    harness = TimerHarness(store, flush_disk_type="SYNC_FLUSH", timer_roll_slots=8)
    number = 0
    for life in range(4):
        for _ in range(3):
            harness.service.save()
            shutil.rmtree(old, ignore_errors=True)
            for name in files:
                copy(store / name, old / name)
            for _ in range(rng.randrange(1, 150)):
                harness.send(b"%d" % number, rng.choice((1500, 2500, 9000, 12_000)))
                number += 1
            for _ in range(rng.randrange(1, 4)):
                late = {"TIMER_OUT_MS": "5", "REAL_TOPIC": "T", "REAL_QID": "0"}
                harness.put(TIMER, b"%d" % number, **late)
                number += 1
            harness.timers.run(rng.randrange(3000))
        harness.kill()
        for name in files:
            if rng.random() < 0.5:
                remove(store / name)
                copy(old / name, store / name)
        boot.write_text(f"boot {life}")
        harness = harness.again(rng.randrange(2000), flush_disk_type="SYNC_FLUSH", timer_roll_slots=8)
    harness.timers.run(30_000)
    assert sorted(harness.found()) == list(range(number))


def test_messages_in_the_log_are_not_enqueued_again_where_a_file_of_it_ends(
    tmp_path: Path, boot: Path
) -> None:
    """A slice of messages, some in the log already, some not, of which only a part fits into the log's file."""
    store, old = tmp_path / "store", tmp_path / "old"
    harness = TimerHarness(store, flush_disk_type="SYNC_FLUSH")
    copy(store / "config" / "timercheck", old)
    for number in range(181):
        harness.send(b"%d" % number, 5000)
    harness.timers.run(10)
    harness.listeners.remove(harness.service.messages_arrived)
    for number in range(181, 205):
        harness.send(b"%d" % number, 5000)
    harness.write_batch.commit()
    harness.kill()
    copy(old, store / "config" / "timercheck")
    boot.write_text("second boot")
    harness = harness.again(flush_disk_type="SYNC_FLUSH")
    harness.timers.run(20_000)
    assert sorted(harness.found()) == list(range(205))


def test_a_kill_while_the_last_moments_are_processed_again(tmp_path: Path, boot: Path) -> None:
    """After a pending message come many that the journal calls delivered: they are skipped, and are no gap."""
    store = tmp_path / "store"
    harness = TimerHarness(store)
    harness.send(b"0", 60_000)
    for number in range(1, 50):
        harness.send(b"%d" % number, 500)
    harness.timers.run(1900)
    assert len(harness.found()) == 49
    harness.service.save()
    harness.kill()
    boot.write_text("second boot")
    harness = harness.again()
    harness.kill()
    harness = harness.again()
    harness.timers.run(70_000)
    assert set(harness.found()) == set(range(50))
    assert list(store.rglob("*.damaged-*")) == []


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        copy_with_holes(source, target)


def copy_with_holes(source: Path, target: Path) -> None:
    """A timer wheel is 38 MB of them."""
    with source.open("rb") as old, target.open("wb") as new:
        end, length = 0, os.fstat(old.fileno()).st_size
        with suppress(OSError):  # no data after `end`
            while (start := os.lseek(old.fileno(), end, os.SEEK_DATA)) < length:
                end = os.lseek(old.fileno(), start, os.SEEK_HOLE)
                os.pwrite(new.fileno(), os.pread(old.fileno(), end - start, start), start)
        new.truncate(length)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def lose_from(folder: Path, physical_offset: int) -> None:
    """The commit log ends there."""
    [segment] = [path for path in (folder / "commitlog").iterdir() if path.name == "0" * 20]
    data = segment.read_bytes()
    segment.write_bytes(data[:physical_offset].ljust(len(data), b"\0"))
    shutil.rmtree(folder / "consumequeue")
    shutil.rmtree(folder / "index", ignore_errors=True)
    (folder / "checkpoint").unlink(missing_ok=True)


def test_another_precision_is_refused_while_messages_are_pending(harness: TimerHarness) -> None:
    harness.send(b"1", 5000)
    harness.timers.run(10)
    harness.kill()
    with pytest.raises(StartError, match="timerPrecisionMs=1000: start with that"):
        harness.again(timer_precision_ms=100)
    harness.store.abandon()


def test_another_precision_is_accepted_when_none_is_pending(harness: TimerHarness) -> None:
    harness.send(b"1", 5000)
    harness.timers.run(6000)
    harness.stop()
    harness = harness.again(timer_precision_ms=100)
    harness.send(b"2", 150)
    harness.timers.run(200)
    assert harness.found() == [1, 2]


@pytest.mark.parametrize("said", [True, False])
def test_a_slave_that_becomes_the_master_trusts_what_its_master_said(
    harness: TimerHarness, tmp_path: Path, said: bool
) -> None:
    """Without it, messages that have no unique key are delivered again."""
    for body, delay in ((b"1", 1000), (b"2", 60_000)):
        harness.put("T", body, TIMER_DELAY_MS=str(delay))
    harness.timers.run(5000)
    assert harness.found() == [1]
    reported = harness.service.check_point()
    harness.kill()
    for folder in ("journal", "timerlog"):
        shutil.rmtree(tmp_path / folder)
    (tmp_path / "timerwheel").unlink()
    (tmp_path / "config" / "timercheck").unlink()
    slave = checkpoint.TimerCheckpoint(tmp_path / "config" / "timercheck")
    slave.is_followed = True
    if said:
        slave.follow(reported)
    slave.write_checkpoint(NOW)
    slave.close()
    promoted = harness.again()
    promoted.timers.run(90_000)
    assert promoted.found() == ([1, 2] if said else [1, 1, 2])


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_what_an_acting_slave_delivered_is_not_delivered_again(harness: TimerHarness, end: str) -> None:
    """It had the first eight messages, and delivered, to another broker, those that were due up to 15 s."""
    for number in range(10):
        harness.send(b"%d" % number, 20_000 - number * 1000)
    harness.timers.run(1)
    unsure_ms = harness.service._unsure_ms
    harness.stop() if end == "stop" else harness.kill()
    check = struct.pack(">7q", NOW + 14_500 + unsure_ms, 0, 8, 8, 0, NOW, 1)
    later = harness.again(15_000, check)
    later.timers.run(60_000)
    assert sorted(later.found()) == [0, 1, 2, 3, 4, 8, 9]


def test_an_older_check_point_of_a_slave_changes_nothing(harness: TimerHarness) -> None:
    harness.send(b"1", 5000)
    harness.timers.run(1000)
    before = harness.check()
    assert not harness.service.take_over(struct.pack(">7q", before[0], 0, 9, 9, 0, NOW, 9))
    with pytest.raises(ValueError, match="56 bytes"):
        harness.service.take_over(b"short")
    assert harness.check() == before
