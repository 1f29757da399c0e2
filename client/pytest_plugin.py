"""Pytest fixtures for tests of services that use RocketMQ; pytest finds them once FireArrow is installed.

`firearrow_broker` is one real broker for the whole session, ready in half a second, on free ports with a
temporary store. `firearrow_topic` is a new topic at it, and `messages_in` returns what a topic contains.
`firearrow_fresh_broker` is a broker for a single test, which may stop, kill and restart it.

Under pytest-xdist each worker is a session and so has a broker of its own. The client is imported when a
fixture first needs it: pytest loads this module in every run.
"""

import re
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import pytest

from firearrow.client.local_broker import LocalBroker

if TYPE_CHECKING:
    from firearrow.client import MessageQueue, ReceivedMessage
    from firearrow.client.blocking import Admin

__all__ = ["MessagesIn", "firearrow_broker", "firearrow_fresh_broker", "firearrow_topic", "messages_in"]


def __dir__() -> list[str]:
    return sorted(__all__)


NAME_CHARS = 80
"""Of a test's name in that of its topic. Brokers allow 127 characters for a topic."""
POLL_S = 0.02
READ_S = 10.0
"""For messages that are in the topic, so that reading them does not depend on how long they took to come."""
READER = "firearrow-messages-in"


class MessagesIn(Protocol):
    """`messages_in(topic, count=3)`: all messages of the topic, in the order in which they were stored."""

    def __call__(self, topic: str, count: int = 1, timeout_s: float = 10.0) -> "list[ReceivedMessage]": ...


@pytest.fixture(scope="session")
def firearrow_broker() -> Iterator[LocalBroker]:
    """Pass `firearrow_broker.name_server` to clients."""
    with LocalBroker(settings={"autoCreateTopicEnable": "true"}) as broker:
        yield broker


@pytest.fixture
def firearrow_fresh_broker() -> Iterator[LocalBroker]:
    """A broker for this test alone, which may stop, kill and restart it."""
    with LocalBroker(settings={"autoCreateTopicEnable": "true"}) as broker:
        yield broker


@pytest.fixture
def firearrow_topic(firearrow_broker: LocalBroker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic with four queues at `firearrow_broker`; it is deleted after the test."""
    from firearrow.client.blocking import Admin  # noqa: PLC0415

    test = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[:NAME_CHARS].strip("-")
    topic = f"{test}-{uuid.uuid4().hex[:12]}"
    with Admin(firearrow_broker.name_server) as admin:
        admin.create_topic(topic, queues=4)
    yield topic
    with Admin(firearrow_broker.name_server) as admin:
        admin.delete_topic(topic)


@pytest.fixture(scope="session")
def messages_in(firearrow_broker: LocalBroker) -> MessagesIn:
    """A function that waits until a topic of `firearrow_broker` has `count` messages and returns all of them.

    AssertionError: there are fewer after `timeout_s`. It blocks: call it with `await asyncio.to_thread(...)`
    if the service that is to send the messages runs in the test's event loop.
    """

    def messages_in(topic: str, count: int = 1, timeout_s: float = 10.0) -> "list[ReceivedMessage]":
        return _messages_in(firearrow_broker.name_server, topic, count, timeout_s)

    return messages_in


def _messages_in(name_server: str, topic: str, count: int, timeout_s: float) -> "list[ReceivedMessage]":
    from firearrow.client import ConsumeFromWhere, PullConsumerOptions  # noqa: PLC0415
    from firearrow.client.blocking import PullConsumer  # noqa: PLC0415

    sizes = _await_messages(name_server, topic, count, timeout_s)
    if not sizes:
        return []
    options = PullConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET, auto_commit=False)
    found: list[ReceivedMessage] = []
    deadline = time.monotonic() + READ_S
    with PullConsumer(READER, name_server=name_server, options=options) as consumer:
        consumer.assign(sizes)
        for queue in sizes:
            consumer.seek_to_begin(queue)
        while len(found) < sum(sizes.values()):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise AssertionError(f"topic {topic}: {len(found)} of {sizes} could be read in {READ_S} s")
            found += consumer.poll(left_s)
    return sorted(found, key=lambda message: message.physical_offset)


def _await_messages(name_server: str, topic: str, count: int, timeout_s: float) -> "dict[MessageQueue, int]":
    """Wait for `count` messages. Queue → how many messages it has, without those that have none."""
    from firearrow.client.blocking import Admin  # noqa: PLC0415

    deadline = time.monotonic() + timeout_s
    with Admin(name_server) as admin:
        while True:
            sizes = _sizes(admin, topic)
            if sum(sizes.values()) >= count:
                return sizes
            if time.monotonic() >= deadline:
                number = sum(sizes.values())
                raise AssertionError(f"topic {topic} has {number} messages after {timeout_s} s, not {count}")
            time.sleep(POLL_S)


def _sizes(admin: "Admin", topic: str) -> "dict[MessageQueue, int]":
    """Queue → how many messages it has; empty if the topic does not exist yet."""
    from firearrow.client import NoRoute  # noqa: PLC0415

    try:
        ranges = admin.topic_stats(topic)
    except NoRoute:
        return {}
    sizes = {queue: offsets.max_offset - offsets.min_offset for queue, offsets in ranges.items()}
    return {queue: size for queue, size in sizes.items() if size}
