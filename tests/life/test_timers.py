"""TimerService with a clock that is told: due times, rolls, recalls, restarts, kills, a clock that jumps."""

import dataclasses
import random
import resource
import shutil
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from firearrow._native.store.store import MessageStore
from firearrow.broker.errors import Refusal, StartError
from firearrow.broker.life.appender import Appender
from firearrow.broker.life.journal import Kind
from firearrow.broker.life.timers import check, rules
from firearrow.broker.life.timers.metrics import TimerMetrics
from firearrow.broker.life.timers.recall import Handle, recall_handle, recalling
from firearrow.broker.life.timers.service import TimerService
from firearrow.broker.messages import Message
from firearrow.broker.options import Options
from firearrow.broker.stats import Stats
from tests.life.room import HOST, Room

TIMER = "rmq_sys_wheel_timer"
NOW = 1_700_000_000_000
DAY_MS = 86_400_000


class Timing(Room):
    """A store with a timer; `options` as those of the broker."""

    def __init__(
        self,
        folder: Path,
        now_ms: int = NOW,
        store: MessageStore | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(folder, now_ms=now_ms, store=store)
        (folder / "config").mkdir(exist_ok=True)
        self.folder = folder
        self.options = dataclasses.replace(Options(), timer_log_file_bytes=10_400, **options)
        self.appender = Appender(self.store, self.turn, self.clock, HOST, levels=2, schedule=self._schedule)
        self.metrics = TimerMetrics(self.clock, lambda: None)
        self.service = TimerService(
            self.loop, self.store, self.appender, self.journal, self.metrics, self.options, self.clock,
            Stats("DefaultCluster", now_ms), lambda: None,
        )  # fmt: skip
        self.listeners.append(self.service.news)
        for entry in self.journal.take():
            assert entry.kind == Kind.TIMER
            self.service.restore(entry.name, entry.number, entry.value)
        self.service.start()

    def _schedule(self, message: Message) -> None:
        rules.schedule(message, self.clock.now_ms(), self.options, self.service.slot_count)

    def send(self, body: bytes, delay_ms: int, **properties: str) -> Message:
        return self.put("T", body, TIMER_DELAY_MS=str(delay_ms), UNIQ_KEY=f"K{body.decode()}", **properties)

    def recall(self, message: Message, *, with_topic: bool = False) -> None:
        text = recall_handle(message, "b")
        assert text is not None
        handle = Handle.parse(text)
        self.appender.put(recalling(handle, "PG", self.clock.now_ms(), HOST, with_topic=with_topic))

    def found(self) -> list[int]:
        return [int(body) for body in self.bodies("T")]

    def check(self) -> tuple[int, ...]:
        return struct.unpack_from(">7q", (self.folder / "config" / "timercheck").read_bytes())

    def stop(self) -> None:
        self.service.stop()
        self.timers.run()
        self.service.close()
        self.close()

    def again(self, by_ms: int = 0, **options: Any) -> "Timing":  # noqa: ANN401
        """Opened once more, so much later."""
        return Timing(self.folder, self.clock.now_ms() + by_ms, **options)


@pytest.fixture
def room(tmp_path: Path) -> Timing:
    return Timing(tmp_path)


def test_a_message_is_delivered_within_a_step_behind_its_time(room: Timing) -> None:
    room.clock.advance(300)
    room.send(b"1", 2000)  # due at 2,300, its slot is over at 3,000
    room.timers.run(2699)
    assert room.found() == []
    room.timers.run(1)
    assert room.found() == [1]


@pytest.mark.parametrize("step_ms", [100, 200, 500, 1000])
def test_the_precision_is_an_option(tmp_path: Path, step_ms: int) -> None:
    room = Timing(tmp_path, timer_precision_ms=step_ms)
    room.clock.advance(1)
    room.send(b"1", 3000)
    room.timers.run(3000)
    assert room.found() == []
    room.timers.run(step_ms - 1)
    assert room.found() == [1]


def test_an_exact_time_is_met_exactly(room: Timing) -> None:
    room.send(b"1", 5000)
    room.timers.run(4999)
    assert room.found() == []
    room.timers.run(1)
    assert room.found() == [1]


def test_what_is_delivered_is_what_apache_stores(room: Timing) -> None:
    room.put("T", b"1", 3, TIMER_DELAY_SEC="2", TAGS="t", WAIT="true", UNIQ_KEY="K")
    room.timers.run(2000)
    [record] = room.records("T", 3)
    assert record.properties == {
        "TIMER_DELAY_SEC": "2", "TAGS": "t", "WAIT": "true", "UNIQ_KEY": "K", "TIMER_OUT_MS": str(NOW + 1000),
        "REAL_TOPIC": "T", "REAL_QID": "3", "TIMER_ENQUEUE_MS": str(NOW), "TIMER_DEQUEUE_MS": str(NOW + 2000),
    }  # fmt: skip


def test_what_is_due_when_it_is_taken_up_never_waits(room: Timing) -> None:
    room.put(TIMER, b"1", TIMER_OUT_MS=str(NOW - 5000), REAL_TOPIC="T", REAL_QID="0")
    room.timers.run(1)
    assert room.found() == [1]
    assert room.records("T")[0].properties["TIMER_ENQUEUE_MS"] == str((1 << 63) - 1)


def test_a_slot_keeps_its_order_over_many_slices_and_files(room: Timing) -> None:
    for number in range(1000):  # 200 units a file of the log
        room.send(b"%d" % number, 3000)
    room.timers.run(10)
    assert len(list((room.folder / "timerlog").iterdir())) == 6
    assert room.service.runtime()["timerCongestNum"] == "1000"
    assert room.metrics.count("T") == 1000
    room.timers.run(3000)
    assert room.found() == list(range(1000))
    assert room.service.runtime()["timerCongestNum"] == "0"
    assert room.metrics.count("T") == 0


def test_far_ones_are_rolled(tmp_path: Path) -> None:
    room = Timing(tmp_path, timer_roll_slots=10)
    room.send(b"1", 35_000)
    room.timers.run(34_999)
    assert room.found() == []
    room.timers.run(1)
    assert room.found() == [1]
    rolled = room.records(TIMER)
    assert [record.properties.get("TIMER_ROLL_TIMES") for record in rolled] == [None, "1", "2", "3", "4"][
        : len(rolled)
    ]
    assert len(rolled) >= 3
    assert room.records("T")[0].properties["TIMER_ROLL_TIMES"] == str(len(rolled) - 1)


def test_a_recalled_message_is_not_delivered(room: Timing) -> None:
    messages = [room.send(b"%d" % number, 4000) for number in range(5)]
    room.timers.run(1000)
    room.recall(messages[1])
    room.recall(messages[3])
    room.timers.run(1)
    assert room.service.runtime()["timerCongestNum"] == "3"
    room.timers.run(4000)
    assert room.found() == [0, 2, 4]
    assert room.metrics.count("T") == 0


def test_a_recall_can_name_the_topic(tmp_path: Path) -> None:
    room = Timing(tmp_path, recall_key_with_topic=True)
    messages = [room.send(b"%d" % number, 4000) for number in range(2)]
    room.recall(messages[0], with_topic=True)
    room.recall(messages[1])  # made while the option was false
    room.timers.run(4000)
    assert room.found() == [1]


def test_a_rolled_message_can_be_recalled(tmp_path: Path) -> None:
    room = Timing(tmp_path, timer_roll_slots=10)
    message = room.send(b"1", 35_000)
    room.send(b"2", 35_000)
    room.timers.run(7000)
    room.recall(message)
    room.timers.run(30_000)
    assert room.found() == [2]


def test_a_recall_after_the_delivery_does_nothing(room: Timing) -> None:
    message = room.send(b"1", 1500)
    room.timers.run(2000)
    assert room.found() == [1]
    with pytest.raises(Refusal, match="timer message illegal"):
        room.recall(message)


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("by_ms", [0, 2000, 6 * DAY_MS, 20 * DAY_MS])
def test_pending_ones_outlive_a_restart(room: Timing, end: str, by_ms: int) -> None:
    for number in range(20):
        room.send(b"%d" % number, 5000 + number * 1000)
    room.timers.run(1)
    room.stop() if end == "stop" else room.kill()
    later = room.again(by_ms)
    later.timers.run(30_000)
    expected = [] if by_ms == 20 * DAY_MS else list(range(20))
    assert later.found() == expected  # as with Apache's, the wheel reaches 7 days back


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("after", [1, 3, 6, 11, 16])
def test_a_slot_that_is_left_in_the_middle_is_gone_on_with(room: Timing, end: str, after: int) -> None:
    messages = [room.send(b"%d" % number, 3000) for number in range(700)]
    room.timers.run(10)
    for number in (5, 200, 300, 690):
        room.recall(messages[number])
    room.timers.run(2989)
    step(room, after)
    partly = len(room.found())
    assert partly < 696
    room.stop() if end == "stop" else room.kill()
    assert_all(room, set(range(700)) - {5, 200, 300, 690})


def assert_all(room: Timing, expected: set[int]) -> None:
    for _ in range(2):
        room = room.again(1000)
        room.timers.run(2000)
        assert sorted(room.found()) == sorted(expected)
        room.kill()


def step(room: Timing, count: int) -> None:
    """So many turns of the loop, a second later."""
    room.clock.advance(1)
    for _ in range(count):
        room.timers.step()


@pytest.mark.parametrize("after", range(1, 9))
def test_late_ones_are_not_repeated(room: Timing, after: int) -> None:
    for number in range(200):
        room.put(TIMER, b"%d" % number, TIMER_OUT_MS=str(NOW - 5000), REAL_TOPIC="T", REAL_QID="0")
    for _ in range(after):
        room.timers.step()
    room.kill()
    assert_all(room, set(range(200)))


@pytest.mark.parametrize("seed", range(12))
def test_kills_at_any_moment(tmp_path: Path, seed: int) -> None:
    """Sent, rolled, recalled and killed in between, over and over: what was not recalled in time comes once."""
    rng = random.Random(seed)
    room = Timing(tmp_path, timer_roll_slots=8)
    recalled: set[int] = set()
    number = 0
    for _ in range(8):
        for _ in range(rng.randrange(1, 120)):
            message = room.send(b"%d" % number, rng.choice((700, 2500, 2500, 4000, 9000, 15_000)))
            if rng.random() < 0.1 and message.topic == TIMER:
                room.recall(message)
                recalled.add(number)
            number += 1
        room.timers.run()  # written, and so promised
        room.clock.advance(rng.choice((0, 0, 900, 3000)))
        for _ in range(rng.randrange(60)):
            room.timers.step()
        room.kill() if rng.random() < 0.8 else room.stop()
        room = room.again(rng.choice((0, 500, 2000)), timer_roll_slots=8)
    room.timers.run(40_000)
    found = Counter(room.found())
    assert set(found) | recalled == set(range(number))
    assert [body for body, times in found.items() if times > 1] == []
    assert (
        len(recalled & set(found)) <= 1 + len(recalled) // 4
    )  # a recall can come when its slot was due already
    assert room.service.runtime()["timerCongestNum"] == "0"


def full_disk(room: Timing, for_ms: int) -> None:
    """A limit of the size of files stands for it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        room.timers.run(for_ms)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_waited_for_when_messages_come(room: Timing) -> None:
    for number in range(100):
        room.put(TIMER, b"%d" % number, TIMER_OUT_MS=str(NOW + 3000), REAL_TOPIC="T", REAL_QID="0")
    room.turn.end()
    room.service.stop()
    room.timers.run()
    room.service._intake.start()
    full_disk(room, 1500)
    room.service._firing.start()
    room.timers.run(5000)
    assert room.found() == list(range(100))


def test_a_full_disk_is_waited_for_when_they_go(room: Timing) -> None:
    for number in range(100):
        room.send(b"%d" % number, 2000)
    room.timers.run(10)
    full_disk(room, 4000)
    assert room.found() == []
    room.timers.run(1000)
    assert room.found() == list(range(100))


def test_a_clock_that_was_set_back_repeats_nothing(room: Timing) -> None:
    for number in range(10):
        room.send(b"%d" % number, 2000 + 1000 * number)
    room.timers.run(6000)
    assert room.found() == [0, 1, 2, 3, 4]
    room.clock.set_by(-5000)
    room.send(b"10", 3000)
    room.timers.run(2999)
    assert room.found() == [0, 1, 2, 3, 4]
    room.timers.run(1)
    assert room.found() == [0, 1, 2, 3, 4, 10]
    room.kill()
    room = room.again()
    room.timers.run(20_000)
    assert sorted(room.found()) == list(range(11))


def test_a_clock_that_jumps_ahead_makes_all_due(room: Timing) -> None:
    for number in range(10):
        room.send(b"%d" % number, 10_000 + 10_000 * number)
    room.timers.run(1)
    room.clock.set_by(DAY_MS)
    room.timers.run(10_000)
    assert room.found() == list(range(10))


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"TIMER_OUT_MS": "x", "REAL_TOPIC": "T", "REAL_QID": "0"},
        {"TIMER_OUT_MS": "9" * 30, "REAL_TOPIC": "T", "REAL_QID": "0"},
        {"TIMER_OUT_MS": str(NOW)},
        {"TIMER_OUT_MS": str(NOW), "REAL_TOPIC": "T"},
        {"TIMER_OUT_MS": str(NOW), "REAL_TOPIC": "T", "REAL_QID": "99999999"},
        {"TIMER_OUT_MS": str(NOW), "REAL_TOPIC": "../T", "REAL_QID": "0"},
        {"TIMER_OUT_MS": "-1", "REAL_TOPIC": TIMER, "REAL_QID": "0"},
        {"TIMER_OUT_MS": "0", "REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
        {"TIMER_OUT_MS": "0", "REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_DEL_UNIQKEY": "k"},
    ],
)
def test_what_has_no_place_to_go_is_passed_over(room: Timing, properties: dict[str, str]) -> None:
    room.put(TIMER, b"7", **properties)
    room.send(b"1", 2000)
    room.timers.run(5000)
    assert room.found() == [1]
    assert room.service.runtime()["timerOffsetBehind"] == "0"


def test_times_between_the_steps_are_their_slot_s(room: Timing) -> None:
    for number in range(3):
        out_ms = str(NOW + 3000 + number * 300)
        room.put(TIMER, b"%d" % number, TIMER_OUT_MS=out_ms, REAL_TOPIC="T", REAL_QID="0")
    room.timers.run(3999)
    assert room.found() == []
    room.timers.run(1)
    assert room.found() == [0, 1, 2]


def test_properties_that_leave_no_room_for_the_timer_s_are_delivered(room: Timing) -> None:
    room.put("T", b"1", TIMER_DELAY_SEC="1", PAD="x" * 32_660)
    room.timers.run(1000)
    [record] = room.records("T")
    assert "TIMER_ENQUEUE_MS" not in record.properties
    assert record.properties["REAL_TOPIC"] == "T"


def test_what_is_in_a_crowded_slot_is_counted(tmp_path: Path) -> None:
    room = Timing(tmp_path, timer_slot_messages=5)
    for number in range(10):
        room.put(TIMER, b"%d" % number, TIMER_OUT_MS=str(NOW + 4000), REAL_TOPIC="T", REAL_QID="0")
    room.timers.run()
    with pytest.raises(Refusal, match="under flow control, max num limit is 10"):
        room.send(b"10", 5000)
    room.send(b"11", 4000)
    room.timers.run(5000)
    assert len(room.found()) == 11


def test_old_log_files_go_with_the_messages(room: Timing) -> None:
    for number in range(500):
        room.send(b"%d" % number, 1000)
    room.timers.run(2000)
    files = room.folder / "timerlog"
    assert len(list(files.iterdir())) == 3
    for _ in range(60):
        room.put("T", b"0" * 60_000)
        room.turn.end()
    assert room.store.drop_segments(older_than_ms=0, now_ms=1 << 60, force=True)
    room.timers.run(31_000)
    assert len(list(files.iterdir())) == 1
    stored = room.store.max_offset("T", 0)
    room.send(b"500", 1000)
    room.timers.run(2000)
    assert room.store.max_offset("T", 0) == stored + 1


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("timerwheel", b"x" * 100),
        ("timerlog/00000000000000000052", b"x" * 100),
        ("timerlog/00000000000000000100", b"x" * 200),
    ],
)
def test_files_of_another_shape_are_refused(room: Timing, name: str, data: bytes) -> None:
    room.stop()
    (room.folder / "timerlog" / "00000000000000000000").write_bytes(b"\0" * 100)
    (room.folder / name).write_bytes(data)
    with pytest.raises(StartError, match="move it away"):
        room.again()


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "boot_id"
    path.write_text("first boot")
    monkeypatch.setattr(check, "BOOT_ID", path)
    return path


@pytest.mark.parametrize("kept", [0, 52 * 3, 52 * 17])
def test_a_power_cut_may_lose_the_timer_s_files_but_no_message(tmp_path: Path, boot: Path, kept: int) -> None:
    """The wheel names units that are lost, and the check point is ahead of the log."""
    room = Timing(tmp_path / "store")
    for number in range(30):
        room.send(b"%d" % number, 5000 + 500 * (number % 4))
    room.timers.run(10)
    room.kill()
    log = tmp_path / "store" / "timerlog" / "00000000000000000000"
    log.write_bytes(log.read_bytes()[:kept].ljust(10_400, b"\0"))
    boot.write_text("second boot")
    room = room.again(1000)
    room.timers.run(10_000)
    assert sorted(room.found()) == list(range(30))


def test_a_power_cut_that_takes_deliveries_repeats_them(tmp_path: Path, boot: Path) -> None:
    room = Timing(tmp_path / "store")
    for number in range(30):
        room.send(b"%d" % number, 2000)
    for number in range(30, 40):
        room.put(TIMER, b"%d" % number, TIMER_OUT_MS="5", REAL_TOPIC="T", REAL_QID="0")
    room.timers.run(10)
    room.timers.run(2000)
    assert sorted(room.found()) == list(range(40))
    cut = room.records("T")[0].physical_offset
    room.kill()
    lose_from(room.folder, cut)
    boot.write_text("second boot")
    room = room.again(100)
    room.timers.run(2000)
    assert set(room.found()) == set(range(40))


def lose_from(folder: Path, physical_offset: int) -> None:
    """The commit log ends there."""
    [segment] = [path for path in (folder / "commitlog").iterdir() if path.name == "0" * 20]
    data = segment.read_bytes()
    segment.write_bytes(data[:physical_offset].ljust(len(data), b"\0"))
    shutil.rmtree(folder / "consumequeue")
    shutil.rmtree(folder / "index", ignore_errors=True)
    (folder / "checkpoint").unlink(missing_ok=True)


def test_another_precision_is_refused_while_messages_wait(room: Timing) -> None:
    room.send(b"1", 5000)
    room.timers.run(10)
    room.kill()
    with pytest.raises(StartError, match="timerPrecisionMs=1000: start with that"):
        room.again(timer_precision_ms=100)
    room.store.abandon()


def test_another_precision_is_fine_when_none_waits(room: Timing) -> None:
    room.send(b"1", 5000)
    room.timers.run(6000)
    room.stop()
    room = room.again(timer_precision_ms=100)
    room.send(b"2", 150)
    room.timers.run(200)
    assert room.found() == [1, 2]
