"""DueRouting: the queue of a message that is due, where its topic has changed. tests/integration/test_due_messages has
the rest, with a broker."""

import logging

import pytest

from firearrow._native.store.message_store import PutRefused, PutStatus
from firearrow.broker.append.due_routing import LOG_PAUSE_MS, DueRouting
from firearrow.broker.append.retry_routing import RetryRouting
from firearrow.broker.base.event_counts import REDIRECTED, EventCounts
from firearrow.broker.base.message import Message
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.locks import RebalanceLocks
from firearrow.broker.tables.topics import TopicConfig, TopicTable
from tests.support.clock import ManualClock


class Routing:
    def __init__(self) -> None:
        self.clock, self.events = ManualClock(), EventCounts()
        self.topics, groups = TopicTable(self.clock), GroupTable(self.clock)
        retries = RetryRouting(self.topics, groups, RebalanceLocks(self.clock))
        self.due = DueRouting(self.topics, retries, self.events, self.clock)

    def __call__(self, topic: str, queue_id: int) -> tuple[str, int]:
        message = Message(topic, queue_id, b"x")
        self.due.route(message)
        return message.topic, message.queue_id


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (TopicConfig("T", 8, 8), ("T", 5)),
        (TopicConfig("T", 4, 8), ("T", 1)),
        (TopicConfig("T", 8, 3), ("T", 2)),
        (TopicConfig("T", 2, 0), ("T", 1)),
        (TopicConfig("T", 0, 8), ("%DLQ%SCHEDULE_CONSUMER", 0)),
        (TopicConfig("T", 8, 8, attributes={"queue.type": "BatchCQ"}), ("T", 5)),
    ],
)
def test_it_goes_to_a_queue_that_is_read(config: TopicConfig, found: tuple[str, int]) -> None:
    routing = Routing()
    routing.topics._put([config])
    assert routing("T", 5) == found
    assert routing.events.total(REDIRECTED) == (found != ("T", 5))


@pytest.mark.parametrize(
    ("topic", "properties", "origins"),
    [
        ("Deleted", {}, (None, "Deleted")),
        ("Deleted", {"RETRY_TOPIC": "secret", "DLQ_ORIGIN_TOPIC": "secret"}, (None, "Deleted")),
        ("Deleted", {"REAL_TOPIC": "Deleted", "DLQ_ORIGIN_TOPIC": "secret"}, (None, "Deleted")),
        ("%RETRY%", {"RETRY_TOPIC": "T", "REAL_TOPIC": "%RETRY%"}, ("T", None)),
    ],
)
def test_dead_letters_come_from_the_topic_that_they_were_due_for(
    topic: str, properties: dict[str, str], origins: tuple[str | None, str | None]
) -> None:
    """An operator sends them there again, whatever their senders have written."""
    message = Message(topic, 0, b"x", dict(properties))
    routing = Routing()
    routing.topics._put([TopicConfig("%RETRY%", 0, 8)])
    routing.due.route(message)
    assert message.topic.startswith("%DLQ%")
    assert (message.properties.get("RETRY_TOPIC"), message.properties.get("DLQ_ORIGIN_TOPIC")) == origins


def test_a_deleted_dead_letter_topic_is_created_again() -> None:
    routing = Routing()
    assert routing("%DLQ%G", 0) == ("%DLQ%G", 0)
    assert "%DLQ%G" in routing.topics


def test_without_a_topic_for_the_dead_letters_it_is_refused_and_nothing_waits() -> None:
    """As a message that its own topic refuses: the services skip it with an error, and go on."""
    routing = Routing()
    routing.topics._topics_max = len(routing.topics)
    with pytest.raises(PutRefused) as refused:
        routing("Deleted", 0)
    assert refused.value.status == PutStatus.MESSAGE_ILLEGAL


def test_many_are_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    routing = Routing()
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            routing("Deleted", 0)
        assert len(caplog.records) == 1
        routing.clock.advance(LOG_PAUSE_MS)
        routing("Deleted", 0)
    assert len(caplog.records) == 2
    assert routing.events.total(REDIRECTED) == 6


def test_an_expanded_retry_topic_is_known_after_a_while() -> None:
    clock = ManualClock()
    topics = TopicTable(clock)
    topics.create("%RETRY%G", 2)
    topics.expand("%RETRY%G", 6)
    clock.advance(30_000)
    topics.expand("%RETRY%G", 8)
    config = topics.get("%RETRY%G")
    assert config is not None
    assert (config.read_queues, config.write_queues, topics.known_queues(config)) == (8, 8, 2)
    clock.advance(60_001)
    assert topics.known_queues(config) == 8
    topics.expand("%RETRY%G", 3)
    topics.expand("none", 3)
    assert topics.get("%RETRY%G") == config
    assert "none" not in topics
    topics.expand("%RETRY%G", 9)
    topics.delete("%RETRY%G")
    assert topics._expanded == {}
