"""The stream cursor: where it begins, how far it may read, and what is reported when something is gone."""

from typing import Any

import pytest

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import DataLoss, TopicNotFound
from firearrow.spark_tools.plan.options import STREAM, SourceOptions
from firearrow.spark_tools.plan.stream_offsets import REFRESH_S, RELIST_S, StreamCursor
from tests.spark.fakes import FakeLog, queue_of
from tests.support.clock import ManualClock

Q0, Q1, Q2 = queue_of(0), queue_of(1), queue_of(2)


class Stream:
    """A StreamCursor over a log in memory, and the time."""

    def __init__(self, log: FakeLog, **options: str) -> None:
        self.log, self.clock = log, ManualClock(0)
        given = {"path": "/memory", "topic": "Orders", "startingOffsets": "earliest", **options}
        self.lost: list[tuple[str, str]] = []
        self.cursor = StreamCursor(
            log,
            SourceOptions.of(given, STREAM),
            clock=self.clock,
            pause=self.pass_time,
            lost=lambda part, why: self.lost.append((str(part), why)),
        )

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds * 1000)

    def end(self, starts: dict[MessageQueue, int], *, limited: bool = True) -> dict[MessageQueue, int]:
        self.pass_time(RELIST_S)
        return self.cursor.end(starts, limited)

    def parts(self, starts: dict[MessageQueue, int], ends: dict[MessageQueue, int]) -> list[str]:
        self.pass_time(RELIST_S)
        return [str(each) for part in self.cursor.parts(starts, ends) for each in part]


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog()
    log.add(Q0, 10)
    log.add(Q1, 20)
    log.expire(Q1, 5)
    return log


def test_it_begins_at_the_configured_offset_and_always_there(log: FakeLog) -> None:
    assert Stream(log).cursor.first() == {Q0: 0, Q1: 5}
    stream = Stream(log, startingOffsets="latest")
    assert stream.cursor.first() == {Q0: 10, Q1: 20}
    log.add(Q0, 3)
    stream.pass_time(60)
    assert stream.cursor.first() == {Q0: 10, Q1: 20}


def test_what_is_gone_at_the_start_is_named(log: FakeLog) -> None:
    offsets = '{"Orders": {"broker-a": {"1": 2}}}'
    with pytest.raises(DataLoss, match=r"1\[2\.\.5\)"):
        Stream(log, startingOffsets=offsets).cursor.first()
    assert Stream(log, startingOffsets=offsets, failOnDataLoss="false").cursor.first() == {Q0: 0, Q1: 5}


def test_the_end_moves_with_the_log(log: FakeLog) -> None:
    stream = Stream(log)
    assert stream.end({Q0: 0, Q1: 5}) == {Q0: 10, Q1: 20}
    log.add(Q0, 1)
    assert stream.end({Q0: 10, Q1: 20}) == {Q0: 11, Q1: 20}
    assert stream.end({Q0: 11, Q1: 20}) == {Q0: 11, Q1: 20}


def test_the_log_is_not_looked_at_with_every_poll(log: FakeLog) -> None:
    stream = Stream(log)
    for _ in range(100):
        stream.cursor.end({Q0: 0, Q1: 5}, True)
    assert log.asked_bounds == 1
    stream.pass_time(REFRESH_S)
    stream.cursor.end({Q0: 0, Q1: 5}, True)
    assert log.asked_bounds == 2


def test_new_queues_begin_at_their_first_message(log: FakeLog) -> None:
    stream = Stream(log, startingOffsets="latest")
    starts = stream.cursor.first()
    log.add(Q2, 9)
    log.expire(Q2, 2)
    ends = stream.end(starts)
    assert ends == {Q0: 10, Q1: 20, Q2: 9}
    assert stream.parts(starts, ends) == ["Orders@broker-a:2[2..9)"]
    assert stream.end(ends) == ends


def test_new_topics_of_a_pattern_begin_at_their_first_message(log: FakeLog) -> None:
    given = {"path": "/m", "topicPattern": "Ord.*", "startingOffsets": "latest"}
    clock = ManualClock(0)
    cursor = StreamCursor(log, SourceOptions.of(given, STREAM), clock=clock)
    starts = cursor.first()
    log.add(queue_of(0, "Ordinary"), 3)
    clock.advance((RELIST_S - 1) * 1000)
    assert cursor.end(starts, True) == starts
    clock.advance(1000)
    assert cursor.end(starts, True) == {**starts, queue_of(0, "Ordinary"): 3}


def test_a_pattern_may_match_nothing_yet() -> None:
    log, clock = FakeLog(), ManualClock(0)
    cursor = StreamCursor(log, SourceOptions.of({"path": "/m", "topicPattern": "A.*"}, STREAM), clock=clock)
    assert cursor.first() == {}
    assert cursor.end({}, True) == {}
    log.add(queue_of(0, "Ab"), 2)
    clock.advance(RELIST_S * 1000)
    assert cursor.end({}, True) == {queue_of(0, "Ab"): 2}


def test_a_topic_is_missed_or_waited_for() -> None:
    with pytest.raises(TopicNotFound, match="waitForTopic"):
        Stream(FakeLog()).cursor.first()
    waiting = Stream(FakeLog(), waitForTopic="1m")
    waiting.cursor._pause = lambda seconds: waiting.log.add(Q0, 2)
    assert waiting.cursor.first() == {Q0: 0}


def test_limits_are_shared_and_can_be_overruled(log: FakeLog) -> None:
    stream = Stream(log, maxOffsetsPerTrigger="5")
    assert stream.end({Q0: 0, Q1: 5}) == {Q0: 2, Q1: 8}
    assert stream.end({Q0: 0, Q1: 5}, limited=False) == {Q0: 10, Q1: 20}


def test_bytes_are_limited(log: FakeLog) -> None:
    whole = log.bytes_of(next(iter(Stream(log).cursor.parts({Q0: 0}, {Q0: 10})[0])))
    ends = Stream(log, maxBytesPerTrigger=str(whole)).end({Q0: 0, Q1: 5})
    assert 0 < ends[Q0] < 10
    assert 5 < ends[Q1] < 20


def test_too_little_is_waited_with(log: FakeLog) -> None:
    stream = Stream(log, minOffsetsPerTrigger="26", maxTriggerDelay="1m")
    starts = {Q0: 0, Q1: 5}
    assert stream.end(starts) == starts
    log.add(Q0, 1)
    assert stream.end(starts) == {Q0: 11, Q1: 20}
    stream.pass_time(60)
    assert stream.end({Q0: 11, Q1: 19}) == {Q0: 11, Q1: 20}


def test_a_pinned_end_stays_and_waits_for_nothing(log: FakeLog) -> None:
    stream = Stream(log, minOffsetsPerTrigger="1000", maxOffsetsPerTrigger="10000")
    stream.cursor.pin()
    log.add(Q0, 5)
    log.add(Q2, 5)
    assert stream.end({Q0: 0, Q1: 5}) == {Q0: 10, Q1: 20}
    assert stream.end({Q0: 10, Q1: 20}) == {Q0: 10, Q1: 20}
    assert stream.cursor.newest() == {Q0: 15, Q1: 20, Q2: 5}


def test_a_pinned_end_is_reached_by_a_stream_that_was_ahead_of_it(log: FakeLog) -> None:
    stream = Stream(log)
    stream.cursor.pin()
    log.add(Q0, 5)
    assert stream.end({Q0: 12, Q1: 20}) == {Q0: 12, Q1: 20}


def test_an_end_that_went_back_is_loss_and_never_read_again(log: FakeLog) -> None:
    starts = {Q0: 25, Q1: 20}
    with pytest.raises(
        DataLoss, match=r"0\[10\.\.25\): the queue now ends at 10, before the stream's offset"
    ):
        Stream(log).end(starts)
    counting = Stream(log, failOnDataLoss="false")
    assert counting.end(starts) == starts
    assert counting.parts(starts, starts) == []


def test_a_loss_is_warned_of_once(log: FakeLog, caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream(log, failOnDataLoss="false")
    for _ in range(5):
        stream.end({Q0: 25, Q1: 20})
    assert len(caplog.records) == 1


def test_a_queue_that_vanished_is_loss(log: FakeLog) -> None:
    with pytest.raises(DataLoss, match=r"2\[7\.\.7\): the queue no longer exists"):
        Stream(log).end({Q0: 0, Q1: 5, Q2: 7})
    with pytest.raises(DataLoss, match=r"2\[7\.\.9\): the queue no longer exists"):
        Stream(log).parts({Q2: 7}, {Q2: 9})
    assert Stream(log, failOnDataLoss="false").end({Q2: 7}) == {Q0: 10, Q1: 20, Q2: 7}


def test_a_topic_that_is_deleted_later_is_loss_as_well(log: FakeLog) -> None:
    stream = Stream(log, failOnDataLoss="false")
    starts = stream.cursor.first()
    log.queues_there.clear()
    assert stream.end(starts) == starts


def test_a_topic_that_vanished_does_not_hide_the_others(log: FakeLog) -> None:
    other = queue_of(0, "Other")
    log.add(other, 1)
    stream = Stream(log, topic="Orders,Other", failOnDataLoss="false")
    starts = stream.cursor.first()
    log.add(Q0, 1)
    del log.queues_there[other]
    assert stream.end(starts) == {Q0: 11, Q1: 20, other: 0}
    strict = Stream(log, topic="Orders")
    strict.cursor.first()
    log.queues_there.clear()
    with pytest.raises(DataLoss, match="the queue no longer exists"):
        strict.end({Q0: 0, Q1: 5})


def test_a_topic_that_is_deleted_after_it_was_listed_is_loss(log: FakeLog) -> None:
    """A live reader raises for a topic that no broker has anymore."""
    other = queue_of(0, "Other")
    log.add(other, 1)
    stream = Stream(log, topic="Orders,Other", failOnDataLoss="false")
    starts = stream.cursor.first()
    del log.queues_there[other]
    log.strict = True
    stream.pass_time(REFRESH_S)
    assert stream.cursor.end(starts, True) == {Q0: 10, Q1: 20, other: 0}


def test_what_expired_since_it_was_planned_is_named(log: FakeLog) -> None:
    with pytest.raises(DataLoss, match=r"1\[3\.\.5\): expired: the queue begins at 5"):
        Stream(log).parts({Q1: 3}, {Q1: 9})
    with pytest.raises(DataLoss, match=r"0\[10\.\.13\): beyond the end"):
        Stream(log).parts({Q0: 3}, {Q0: 13})
    left = Stream(log, failOnDataLoss="false")
    assert left.parts({Q0: 3, Q1: 3}, {Q0: 13, Q1: 9}) == [
        "Orders@broker-a:0[3..10)",
        "Orders@broker-a:1[5..9)",
    ]


def test_each_expired_message_is_lost_once_however_small_the_batches_are(log: FakeLog) -> None:
    stream = Stream(log, failOnDataLoss="false")
    parts = [stream.parts({Q1: at}, {Q1: at + 2}) for at in (0, 2, 4)]
    assert parts == [[], [], ["Orders@broker-a:1[5..6)"]]
    why = "expired: the queue begins at 5"
    assert stream.lost == [(f"Orders@broker-a:1[{span})", why) for span in ("0..2", "2..4", "4..5")]


def test_a_queue_that_ends_before_the_stream_is_reported_once_until_it_has_come_up(log: FakeLog) -> None:
    stream = Stream(log, failOnDataLoss="false")
    for _ in range(3):
        stream.end({Q0: 14})
        log.add(Q0)
    assert stream.lost == [
        ("Orders@broker-a:0[10..14)", "the queue now ends at 10, before the stream's offset")
    ]
    log.add(Q0)
    stream.end({Q0: 14})
    stream.end({Q0: 20})
    assert [part for part, _ in stream.lost] == ["Orders@broker-a:0[10..14)", "Orders@broker-a:0[14..20)"]


def test_nothing_between_is_no_part(log: FakeLog) -> None:
    assert Stream(log).parts({Q0: 3, Q1: 9}, {Q0: 3, Q1: 9}) == []


def test_the_reader_stays_open(log: FakeLog) -> None:
    stream = Stream(log)
    calls: list[Any] = [stream.cursor.first(), stream.end({Q0: 0}), stream.parts({Q0: 0}, {Q0: 3})]
    assert len(calls) == 3
    assert log.opened == 1
