"""TimerService with a clock that is told: due times, rolls, recalls, restarts, kills, a clock that jumps."""

import dataclasses
import struct
from pathlib import Path
from typing import Any

import pytest

from firearrow._native.store.store import MessageStore
from firearrow.broker.errors import Refusal
from firearrow.broker.life.appender import Appender
from firearrow.broker.life.journal import Kind
from firearrow.broker.life.timers import rules
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
