"""Messages that their retry topic does not take: tried again later, not lost, and nobody waits for them."""

from dataclasses import replace
from pathlib import Path

import pytest

from firearrow.broker.life.pop.checkpoints import CheckPoint, deliver_ms
from firearrow.broker.life.pop.revive import AGAIN_MS, AGAIN_MS_MAX
from firearrow.broker.messages import Message
from firearrow.broker.tables.names import TIMER_TOPIC
from firearrow.broker.tables.topics import TopicTable
from tests.life.test_pop_revive import INVISIBLE_MS, RETRY, Reviving, filled


class Crowded(Reviving):
    """Has no room for one more topic; what goes to the timer is kept."""

    def __init__(self, folder: Path) -> None:
        self.delayed: list[Message] = []
        super().__init__(folder)

    def _no_timers(self, message: Message) -> None:  # type: ignore[override]
        self.delayed.append(replace(message))
        message.topic, message.queue_id = TIMER_TOPIC, 0

    def full(self, full: bool) -> None:
        self.topics._topics_max = len(list(self.topics)) if full else 1000


@pytest.fixture
def room(tmp_path: Path) -> Crowded:
    room = Crowded(tmp_path)
    room.full(True)
    return room


def test_it_is_tried_again_later(room: Crowded) -> None:
    filled(room, 2)
    room.take(0, 1)
    room.timers.run(INVISIBLE_MS + 20_000)
    assert RETRY not in room.topics
    points = [CheckPoint.of(message.body) for message in room.delayed]
    assert [point.offsets for point in points] == [[0], [1]]
    assert [point.invisible_ms for point in points] == [2 * max(INVISIBLE_MS, AGAIN_MS)] * 2
    for point, message in zip(points, room.delayed, strict=True):
        assert deliver_ms(message.properties) == point.revive_ms - 1000
        assert (point.topic, point.group, point.start_offset) == ("T", "G", point.offsets[0])
    assert room.revive.pending == 0, "nobody waits for them"
    room.full(False)
    for message in room.delayed:
        room.appender.put(message, hooks=False)
    room.timers.run(2 * INVISIBLE_MS + 30_000)
    assert room.revived() == [b"0", b"1"]


def test_the_time_between_tries_is_bounded(room: Crowded) -> None:
    filled(room, 1)
    point = room.take(0)
    for _ in range(15):
        room.clock.advance(point.invisible_ms)
        room.timers.run(20_000)
        message = room.delayed.pop()
        point = CheckPoint.of(message.body)
        room.appender.put(message, hooks=False)
    assert point.invisible_ms == AGAIN_MS_MAX


def test_retry_topics_of_the_second_kind_can_be_made(room: Crowded) -> None:
    table = TopicTable(room.clock)
    assert table.create("%RETRY%G+T", 1).name == "%RETRY%G+T"
    for name in ("T+T", "%RETRY%G+T+T", "%DLQ%G+T"):
        with pytest.raises(ValueError, match="illegal characters"):
            table.create(name, 1)
