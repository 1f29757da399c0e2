"""Which queues are read: by name, by pattern, by number; and waiting for a topic that is not there yet."""

import pytest

from firearrow.spark_tools.base.errors import TopicNotFound
from firearrow.spark_tools.plan.topics import AssignedQueues, TopicSelection, when_there
from tests.spark.fakes import FakeLog, queue_of
from tests.support.clock import ManualClock

THERE = ("Orders", "Payments", "%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "TBW102")


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog()
    for topic in THERE:
        log.add(queue_of(0, topic))
    log.add(queue_of(1, "Orders"))
    log.add(queue_of(1, "Orders", "broker-b"))
    return log


def found(log: FakeLog, wanted: TopicSelection) -> list[str]:
    return [f"{queue.topic}@{queue.broker_name}:{queue.queue_id}" for queue in wanted.queues(log)]


def test_topics_by_name_the_system_s_too(log: FakeLog) -> None:
    assert found(log, TopicSelection(("Payments", "%DLQ%g", "TBW102"))) == [
        "%DLQ%g@broker-a:0",
        "Payments@broker-a:0",
        "TBW102@broker-a:0",
    ]
    assert found(log, TopicSelection(("Orders",))) == [
        "Orders@broker-a:0",
        "Orders@broker-a:1",
        "Orders@broker-b:1",
    ]


def test_an_unknown_name_is_missed(log: FakeLog) -> None:
    with pytest.raises(TopicNotFound, match="Bills"):
        TopicSelection(("Orders", "Bills")).queues(log)


def test_a_pattern_matches_whole_names_and_nothing_of_the_system(log: FakeLog) -> None:
    assert found(log, TopicSelection(pattern="Pay.*")) == ["Payments@broker-a:0"]
    assert {queue.topic for queue in TopicSelection(pattern=".*").queues(log)} == {"Orders", "Payments"}
    assert {queue.topic for queue in TopicSelection(pattern="%.*").queues(log)} == {"%RETRY%g", "%DLQ%g"}


def test_a_pattern_without_match_says_what_there_is(log: FakeLog) -> None:
    with pytest.raises(
        TopicNotFound, match=r"topicPattern Bills matches no topic; existing topics: Orders, Payments$"
    ):
        TopicSelection(pattern="Bills").queues(log)
    assert TopicSelection(pattern="Bills").queues_there(log) == []


def test_none_of_the_three_is_all_that_people_made(log: FakeLog) -> None:
    assert {queue.topic for queue in TopicSelection().queues(log)} == {"Orders", "Payments"}
    with pytest.raises(TopicNotFound, match="no topic found; existing topics: none"):
        TopicSelection().queues(FakeLog())


def test_queues_by_number_at_one_broker_or_at_each(log: FakeLog) -> None:
    assert found(log, TopicSelection(assigned=(AssignedQueues("Orders", None, frozenset({1})),))) == [
        "Orders@broker-a:1",
        "Orders@broker-b:1",
    ]
    assert found(log, TopicSelection(assigned=(AssignedQueues("Orders", "broker-b", frozenset({1})),))) == [
        "Orders@broker-b:1"
    ]
    with pytest.raises(TopicNotFound, match="topic Orders at broker broker-b has no queue 0, 2; assign"):
        found(log, TopicSelection(assigned=(AssignedQueues("Orders", "broker-b", frozenset({0, 1, 2})),)))


class ClockOfLog(ManualClock):
    """After `then` seconds the topic Late is added to the log."""

    def __init__(self, log: FakeLog, then: float) -> None:
        super().__init__(50_000)
        self.log, self.then = log, self.now + then

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.now >= self.then:
            self.log.add(queue_of(0, "Late"))


def test_a_topic_is_waited_for() -> None:
    log = FakeLog()
    clock = ClockOfLog(log, then=30)
    assert when_there(lambda: TopicSelection(("Late",)).queues(log), 60, clock, clock.sleep) == [
        queue_of(0, "Late")
    ]
    assert clock.now == 80


def test_waiting_ends() -> None:
    log = FakeLog()
    clock = ClockOfLog(log, then=30)
    with pytest.raises(TopicNotFound, match=r"no topic Late \(waited 12.5 s\)"):
        when_there(lambda: TopicSelection(("Late",)).queues(log), 12.5, clock, clock.sleep)
    assert clock.now == 62.5
    with pytest.raises(TopicNotFound, match="no topic Late; set waitForTopic to wait for it"):
        when_there(lambda: TopicSelection(("Late",)).queues(log), 0, clock, clock.sleep)
