"""TestRocketMQBroker: a broker in memory for tests of an application; with `with_real=True` the real one.

In memory, a publish calls the handlers of the topic at once, and an error of a handler reaches the caller. Tags filter;
SQL92 expressions, delays and redelivery need the real broker.
"""

import asyncio
import uuid
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import MagicMock

from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound
from faststream.response import Response

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import Message, MessageQueue, SendResult, SendStatus
from firearrow.client.base.names import Namespace
from firearrow.client.base.options import ProducerOptions
from firearrow.client.integrations.faststream.broker import RocketMQBroker
from firearrow.client.integrations.faststream.message import RawMessage
from firearrow.client.integrations.faststream.producer import RocketMQFastProducer
from firearrow.client.integrations.faststream.publisher import BatchPublisher, TopicPublisher
from firearrow.client.integrations.faststream.response import RocketMQPublishCommand
from firearrow.client.integrations.faststream.subscriber import RocketMQSubscriber
from firearrow.client.rebalance.subscription import Subscription
from firearrow.client.send.prepare import MessagePreparer, unique_ids
from firearrow.client.send.request_reply import MessageRecord, decoded

IN_MEMORY = "in-memory"
"""The name of the test's broker."""


class TestRocketMQBroker(TestBroker[RocketMQBroker, EnterType], broker=RocketMQBroker):
    """`async with TestRocketMQBroker(broker) as broker:`."""

    def create_publisher_fake_subscriber(
        self, broker: RocketMQBroker, publisher: TopicPublisher | BatchPublisher
    ) -> tuple[RocketMQSubscriber, bool]:
        """The subscriber whose calls the publisher's mock shows, and whether the application has it."""
        for subscriber in _subscribers(self.brokers):
            if publisher.topic in subscriber.topics:
                return subscriber, True
        group = f"{broker.config.group}-test-{uuid.uuid4().hex[:12]}"
        batch = isinstance(publisher, BatchPublisher)
        return broker.subscriber(publisher.topic, group=group, batch=batch, persistent=False), False

    @contextmanager
    def _patch_producer(self, broker: RocketMQBroker) -> Generator[None, None, None]:
        with change_producer(broker.config.broker_config, InMemoryProducer(broker, self.brokers)):
            yield

    async def _fake_connect(self, broker: RocketMQBroker, *args: Any, **kwargs: Any) -> None:
        return MagicMock()  # type: ignore[return-value]  # FastStream's declares None, and uses what is returned


class InMemoryProducer(RocketMQFastProducer):
    """Passes messages to the subscribers of the brokers."""

    def __init__(self, broker: RocketMQBroker, brokers: Sequence[RocketMQBroker]) -> None:
        super().__init__(broker._parser, broker._decoder)
        self._brokers = brokers
        self._preparer = MessagePreparer(
            broker.config.group, ProducerOptions(), Namespace(None), unique_ids(), False
        )
        self.serializer = broker.config.fd_config._serializer
        self.codec = broker.config.broker_codec or self.codec

    def __bool__(self) -> bool:
        return True

    async def publish(self, cmd: RocketMQPublishCommand) -> SendResult:
        message = await self._message(cmd)
        received = self._received(message)
        for subscriber in self._matching(message):
            await subscriber.process_message((received,) if subscriber.consumption.batch else received)
        return _result(message)

    async def publish_batch(self, cmd: RocketMQPublishCommand) -> list[SendResult]:
        messages = await self._batch(cmd)
        for subscriber in self._matching(messages[0]):
            if subscriber.consumption.batch:
                await subscriber.process_message(tuple(map(self._received, messages)))
                continue
            for message in messages:
                await subscriber.process_message(self._received(message))
        return [_result(message) for message in messages]

    async def request(self, cmd: RocketMQPublishCommand) -> ReceivedMessage:
        """SubscriberNotFound: there is none of the topic. TimeoutError."""
        message = await self._message(cmd)
        for subscriber in self._matching(message):
            received = self._received(message)
            raw: RawMessage = (received,) if subscriber.consumption.batch else received
            async with asyncio.timeout(cmd.timeout):
                return await self._reply(await subscriber.process_message(raw))
        raise SubscriberNotFound

    async def _reply(self, response: Response) -> ReceivedMessage:
        reply = RocketMQPublishCommand.from_cmd(response.as_publish_command())
        reply.destination = "reply"
        return self._received(await self._message(reply))

    def _matching(self, message: Message) -> Iterable[RocketMQSubscriber]:
        """All that broadcast, and one of each other group."""
        groups: set[str] = set()
        for subscriber in _subscribers(self._brokers):
            options = subscriber.consumption
            if message.topic not in subscriber.topics:
                continue
            tags = Subscription.of(message.topic, options.tags, options.sql).tags
            if tags and message.tags not in tags:
                continue
            if options.broadcasting or subscriber.group not in groups:
                groups.add(subscriber.group)
                yield subscriber

    def _received(self, message: Message) -> ReceivedMessage:
        """As a consumer gets it. MessageRefused: it cannot be sent."""
        properties = self._preparer.prepare(message).properties
        record = MessageRecord(
            topic=message.topic.encode(), properties=properties, body=message.body, flag=message.flag
        )
        return decoded(record, IN_MEMORY)


def _subscribers(brokers: Iterable[RocketMQBroker]) -> list[RocketMQSubscriber]:
    return [cast("RocketMQSubscriber", subscriber) for broker in brokers for subscriber in broker.subscribers]


def _result(message: Message) -> SendResult:
    unique_id = message.unique_id or ""
    return SendResult(SendStatus.SEND_OK, unique_id, "", MessageQueue(message.topic, IN_MEMORY, 0), 0)
