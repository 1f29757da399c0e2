"""Messages that the retry topic refuses: retried later, not lost, and no other message waits for them."""

from dataclasses import replace
from pathlib import Path

import pytest

from firearrow._native.protocol.name_rules import TIMER_TOPIC
from firearrow.broker.base.message import Message
from firearrow.broker.pop.checkpoints import PopCheckPoint, deliver_ms
from firearrow.broker.pop.revive import RETRY_MS, RETRY_MS_MAX
from firearrow.broker.tables.topics import TopicTable
from tests.pop.revive_harness import INVISIBLE_MS, RETRY, ReviveHarness, filled


class FullTopicTableHarness(ReviveHarness):
    """Its topic table is full; `delayed` has the messages for the timer."""

    def __init__(self, folder: Path) -> None:
        self.delayed: list[Message] = []
        super().__init__(folder)

    def _schedule(self, message: Message) -> None:  # type: ignore[override]
        self.delayed.append(replace(message))
        message.topic, message.queue_id = TIMER_TOPIC, 0

    def full(self, full: bool) -> None:
        self.topics._topics_max = len(list(self.topics)) if full else 1000


@pytest.fixture
def harness(tmp_path: Path) -> FullTopicTableHarness:
    harness = FullTopicTableHarness(tmp_path)
    harness.full(True)
    return harness


def test_it_is_retried_later(harness: FullTopicTableHarness) -> None:
    filled(harness, 2)
    harness.pop(0, 1)
    harness.timers.run(INVISIBLE_MS + 20_000)
    assert RETRY not in harness.topics
    points = [PopCheckPoint.of(message.body) for message in harness.delayed]
    assert [point.offsets for point in points] == [[0], [1]]
    assert [point.invisible_ms for point in points] == [2 * max(INVISIBLE_MS, RETRY_MS)] * 2
    for point, message in zip(points, harness.delayed, strict=True):
        assert deliver_ms(message.properties) == point.revive_ms - 1000
        assert (point.topic, point.group, point.start_offset) == ("T", "G", point.offsets[0])
    assert harness.revive.pending == 0, "no message waits for them"
    harness.full(False)
    for message in harness.delayed:
        harness.appender.put(message, hooks=False)
    harness.timers.run(2 * INVISIBLE_MS + 30_000)
    assert harness.revived() == [b"0", b"1"]


def test_the_time_between_retries_is_bounded(harness: FullTopicTableHarness) -> None:
    filled(harness, 1)
    point = harness.pop(0)
    for _ in range(15):
        harness.clock.advance(point.invisible_ms)
        harness.timers.run(20_000)
        message = harness.delayed.pop()
        point = PopCheckPoint.of(message.body)
        harness.appender.put(message, hooks=False)
    assert point.invisible_ms == RETRY_MS_MAX


def test_retry_topics_of_the_second_kind_can_be_created(harness: FullTopicTableHarness) -> None:
    table = TopicTable(harness.clock)
    assert table.create("%RETRY%G+T", 1).name == "%RETRY%G+T"
    for name in ("T+T", "%RETRY%G+T+T", "%DLQ%G+T"):
        with pytest.raises(ValueError, match="illegal characters"):
            table.create(name, 1)
