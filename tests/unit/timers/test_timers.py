"""TimerService with a manual clock: due times, rolls, recalls, full disks, a clock that jumps."""

import resource
from pathlib import Path

import pytest

from firearrow.broker.base.errors import Refusal
from tests.support.stores import drop_segments
from tests.support.timer_harness import DAY_MS, NOW, TIMER, TimerHarness


@pytest.fixture
def harness(tmp_path: Path) -> TimerHarness:
    return TimerHarness(tmp_path)


def test_a_message_is_delivered_within_a_step_after_its_time(harness: TimerHarness) -> None:
    harness.clock.advance(300)
    harness.send(b"1", 2000)  # due at 2,300, its slot is over at 3,000
    harness.timers.run(2699)
    assert harness.found() == []
    harness.timers.run(1)
    assert harness.found() == [1]


@pytest.mark.parametrize("step_ms", [100, 200, 500, 1000])
def test_the_precision_is_an_option(tmp_path: Path, step_ms: int) -> None:
    harness = TimerHarness(tmp_path, timer_precision_ms=step_ms)
    harness.clock.advance(1)
    harness.send(b"1", 3000)
    harness.timers.run(3000)
    assert harness.found() == []
    harness.timers.run(step_ms - 1)
    assert harness.found() == [1]


def test_an_exact_time_is_met_exactly(harness: TimerHarness) -> None:
    harness.send(b"1", 5000)
    harness.timers.run(4999)
    assert harness.found() == []
    harness.timers.run(1)
    assert harness.found() == [1]


def test_delivered_messages_equal_apaches(harness: TimerHarness) -> None:
    harness.put("T", b"1", 3, TIMER_DELAY_SEC="2", TAGS="t", WAIT="true", UNIQ_KEY="K")
    harness.timers.run(2000)
    [record] = harness.records("T", 3)
    assert record.properties == {
        "TIMER_DELAY_SEC": "2",
        "TAGS": "t",
        "WAIT": "true",
        "UNIQ_KEY": "K",
        "TIMER_OUT_MS": str(NOW + 1000),
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
        "TIMER_ENQUEUE_MS": str(NOW),
        "TIMER_DEQUEUE_MS": str(NOW + 2000),
    }


def test_messages_that_are_already_due_never_wait(harness: TimerHarness) -> None:
    harness.put(TIMER, b"1", TIMER_OUT_MS=str(NOW - 5000), REAL_TOPIC="T", REAL_QID="0")
    harness.timers.run(1)
    assert harness.found() == [1]
    assert harness.records("T")[0].properties["TIMER_ENQUEUE_MS"] == str((1 << 63) - 1)


def test_a_slot_keeps_its_order_over_many_slices_and_files(harness: TimerHarness) -> None:
    for number in range(1000):  # 200 records per file of the log
        harness.send(b"%d" % number, 3000)
    harness.timers.run(10)
    assert len(list((harness.folder / "timerlog").iterdir())) == 6
    assert harness.service.runtime()["timerCongestNum"] == "1000"
    assert harness.metrics.count("T") == 1000
    harness.timers.run(3000)
    assert harness.found() == list(range(1000))
    assert harness.service.runtime()["timerCongestNum"] == "0"
    assert harness.metrics.count("T") == 0


def test_distant_messages_are_rolled(tmp_path: Path) -> None:
    harness = TimerHarness(tmp_path, timer_roll_slots=10)
    harness.send(b"1", 35_000)
    harness.timers.run(34_999)
    assert harness.found() == []
    harness.timers.run(1)
    assert harness.found() == [1]
    rolled = harness.records(TIMER)
    assert [record.properties.get("TIMER_ROLL_TIMES") for record in rolled] == [None, "1", "2", "3", "4"][
        : len(rolled)
    ]
    assert len(rolled) >= 3
    assert harness.records("T")[0].properties["TIMER_ROLL_TIMES"] == str(len(rolled) - 1)


def test_a_recalled_message_is_not_delivered(harness: TimerHarness) -> None:
    messages = [harness.send(b"%d" % number, 4000) for number in range(5)]
    harness.timers.run(1000)
    harness.recall(messages[1])
    harness.recall(messages[3])
    harness.timers.run(1)
    assert harness.service.runtime()["timerCongestNum"] == "3"
    harness.timers.run(4000)
    assert harness.found() == [0, 2, 4]
    assert harness.metrics.count("T") == 0


def test_a_recall_can_name_the_topic(tmp_path: Path) -> None:
    harness = TimerHarness(tmp_path, recall_key_with_topic=True)
    messages = [harness.send(b"%d" % number, 4000) for number in range(2)]
    harness.recall(messages[0], with_topic=True)
    harness.recall(messages[1])  # made while the option was false
    harness.timers.run(4000)
    assert harness.found() == [1]


@pytest.mark.parametrize("with_topic", [False, True])
def test_a_recall_of_another_topic_deletes_nothing(tmp_path: Path, with_topic: bool) -> None:
    """Unique keys are no secret: a message sent to one topic deletes no message of another, whatever it names."""
    harness = TimerHarness(tmp_path, recall_key_with_topic=with_topic)
    harness.send(b"1", 4000)
    for key in ("K1", "T+K1"):
        stranger = {"UNIQ_KEY": "K1", "TIMER_DELAY_MS": "4000", "TIMER_DEL_UNIQKEY": key}
        harness.put("mine", b"0", REAL_TOPIC="T", REAL_QID="0", **stranger)
    harness.timers.run(4000)
    assert harness.found() == [1]


def test_a_stranger_cannot_say_that_a_later_copy_counts(tmp_path: Path) -> None:
    """When the timer's files are rebuilt, only rolls that the broker has counted count."""
    harness = TimerHarness(tmp_path)
    harness.send(b"1", 4000)
    rolled = {"TIMER_ROLL_TIMES": "99", "TIMER_ENQUEUE_MS": "1", "TIMER_DEQUEUE_MS": "1"}
    harness.put("mine", b"2", UNIQ_KEY="K1", TIMER_DELAY_MS="4000", **rolled)
    harness.timers.run(1000)
    assert not [record for record in harness.records(TIMER) if rolled.keys() & record.properties.keys()]
    harness.stop()
    (tmp_path / "timerwheel").unlink()
    harness = TimerHarness(tmp_path, NOW + 1000)
    harness.timers.run(4000)
    assert (harness.found(), harness.bodies("mine")) == ([1], [b"2"])


def test_a_rolled_message_can_be_recalled(tmp_path: Path) -> None:
    harness = TimerHarness(tmp_path, timer_roll_slots=10)
    message = harness.send(b"1", 35_000)
    harness.send(b"2", 35_000)
    harness.timers.run(7000)
    harness.recall(message)
    harness.timers.run(30_000)
    assert harness.found() == [2]


@pytest.mark.parametrize("roll_slots", [10, 100])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_recall_holds_over_a_stop_that_is_longer_than_the_delay(
    tmp_path: Path, roll_slots: int, end: str
) -> None:
    """Message and recall are in different slots, from which they are rolled, or in one."""
    harness = TimerHarness(tmp_path, timer_roll_slots=roll_slots)
    recalled = harness.send(b"1", 25_000)
    harness.send(b"2", 25_000)
    harness.timers.run(1500)
    harness.recall(recalled)
    harness.timers.run(10)
    harness.stop() if end == "stop" else harness.kill()
    harness = harness.again(60_000, timer_roll_slots=roll_slots)
    harness.timers.run(3000)
    assert harness.found() == [2]


def test_a_recall_after_the_delivery_does_nothing(harness: TimerHarness) -> None:
    message = harness.send(b"1", 1500)
    harness.timers.run(2000)
    assert harness.found() == [1]
    with pytest.raises(Refusal, match="timer message illegal"):
        harness.recall(message)


def full_disk(harness: TimerHarness, for_ms: int) -> None:
    """A file size limit simulates it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        harness.timers.run(for_ms)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_delays_enqueuing(harness: TimerHarness) -> None:
    for number in range(100):
        harness.put(TIMER, b"%d" % number, TIMER_OUT_MS=str(NOW + 3000), REAL_TOPIC="T", REAL_QID="0")
    harness.write_batch.commit()
    harness.service.stop()
    harness.timers.run()
    harness.service._enqueue.start()
    full_disk(harness, 1500)
    harness.service._dequeue.start()
    harness.timers.run(5000)
    assert harness.found() == list(range(100))


def test_a_full_disk_delays_deliveries(harness: TimerHarness) -> None:
    for number in range(100):
        harness.send(b"%d" % number, 2000)
    harness.timers.run(10)
    full_disk(harness, 4000)
    assert harness.found() == []
    harness.timers.run(1000)
    assert harness.found() == list(range(100))


def test_a_clock_that_was_set_back_repeats_nothing(harness: TimerHarness) -> None:
    for number in range(10):
        harness.send(b"%d" % number, 2000 + 1000 * number)
    harness.timers.run(6000)
    assert harness.found() == [0, 1, 2, 3, 4]
    harness.clock.set_by(-5000)
    harness.send(b"10", 3000)
    harness.timers.run(2999)
    assert harness.found() == [0, 1, 2, 3, 4]
    harness.timers.run(1)
    assert harness.found() == [0, 1, 2, 3, 4, 10]
    harness.kill()
    harness = harness.again()
    harness.timers.run(20_000)
    assert sorted(harness.found()) == list(range(11))


def test_a_clock_that_jumps_ahead_makes_all_messages_due(harness: TimerHarness) -> None:
    for number in range(10):
        harness.send(b"%d" % number, 10_000 + 10_000 * number)
    harness.timers.run(1)
    harness.clock.set_by(DAY_MS)
    harness.timers.run(10_000)
    assert harness.found() == list(range(10))


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
def test_messages_without_a_valid_destination_are_skipped(
    harness: TimerHarness, properties: dict[str, str]
) -> None:
    harness.put(TIMER, b"7", **properties)
    harness.send(b"1", 2000)
    harness.timers.run(5000)
    assert harness.found() == [1]
    assert harness.service.runtime()["timerOffsetBehind"] == "0"


def test_times_between_the_steps_belong_to_their_slot(harness: TimerHarness) -> None:
    for number in range(3):
        out_ms = str(NOW + 3000 + number * 300)
        harness.put(TIMER, b"%d" % number, TIMER_OUT_MS=out_ms, REAL_TOPIC="T", REAL_QID="0")
    harness.timers.run(3999)
    assert harness.found() == []
    harness.timers.run(1)
    assert harness.found() == [0, 1, 2]


def test_messages_without_space_for_timer_properties_are_delivered(harness: TimerHarness) -> None:
    harness.put("T", b"1", TIMER_DELAY_SEC="1", PAD="x" * 32_660)
    harness.timers.run(1000)
    [record] = harness.records("T")
    assert "TIMER_ENQUEUE_MS" not in record.properties
    assert record.properties["REAL_TOPIC"] == "T"


def test_messages_in_a_crowded_slot_are_counted(tmp_path: Path) -> None:
    harness = TimerHarness(tmp_path, timer_slot_messages=5)
    for number in range(10):
        harness.put(TIMER, b"%d" % number, TIMER_OUT_MS=str(NOW + 4000), REAL_TOPIC="T", REAL_QID="0")
    harness.timers.run()
    with pytest.raises(Refusal, match="under flow control, max num limit is 10"):
        harness.send(b"10", 5000)
    harness.send(b"11", 4000)
    harness.timers.run(5000)
    assert len(harness.found()) == 11


def test_old_log_files_are_deleted_with_the_messages(harness: TimerHarness) -> None:
    for number in range(500):
        harness.send(b"%d" % number, 1000)
    harness.timers.run(2000)
    files = harness.folder / "timerlog"
    assert len(list(files.iterdir())) == 3
    for _ in range(60):
        harness.put("T", b"0" * 60_000)
        harness.write_batch.commit()
    assert drop_segments(harness.store, force=True)
    harness.timers.run(31_000)
    assert len(list(files.iterdir())) == 1
    stored = harness.store.reader.max_offset("T", 0)
    harness.send(b"500", 1000)
    harness.timers.run(2000)
    assert harness.store.reader.max_offset("T", 0) == stored + 1
