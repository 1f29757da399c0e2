"""RocketMQSubscriber: fetches messages and passes them to handlers, at most `max_workers` at a time."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from faststream._internal.endpoint.publisher import PublisherProto
from faststream._internal.endpoint.subscriber import SubscriberSpecification
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.subscriber.mixins import TasksMixin
from faststream._internal.endpoint.utils import process_msg
from faststream.message import StreamMessage
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSpec
from faststream.specification.schema import Operation, SubscriberSpec

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.compression import BodyUnreadable
from firearrow.client.base.errors import NoRoute, RocketMQError
from firearrow.client.base.options import MessageModel, PopConsumerOptions, PullConsumerOptions
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.integrations.faststream.configs import (
    Consumption,
    RocketMQBrokerConfig,
    RocketMQSubscriberConfig,
    SubscriberSpecificationOptions,
)
from firearrow.client.integrations.faststream.deliveries import (
    BroadcastDeliveries,
    Deliveries,
    PopDeliveries,
)
from firearrow.client.integrations.faststream.message import (
    RawMessage,
    RocketMQMessage,
    RocketMQParser,
    is_request,
)
from firearrow.client.integrations.faststream.producer import ReplyPublisher

WAIT_S = 1.0
"""How long a fetch waits for messages, and so a stop for the fetch."""
FAILED_PAUSE_S = 1.0


class RocketMQSubscriberSpecification(
    SubscriberSpecification[RocketMQBrokerConfig, SubscriberSpecificationOptions]
):
    """One channel for each topic in the AsyncAPI document."""

    __slots__ = ()

    @property
    def channel_labels(self) -> list[str]:
        prefix = self._outer_config.prefix
        return list(dict.fromkeys(f"{prefix}{topic}" for topic in self.config.topics))

    def get_schema(self) -> dict[str, SubscriberSpec]:
        payloads, topics, channels = self.get_payloads(), self.channel_labels, {}
        for topic in topics:
            name = self._channel_key(topic, split=len(topics) > 1)
            message = MessageSpec(title=f"{name}:Message", payload=resolve_payloads(payloads))
            channels[name] = SubscriberSpec(
                address=topic,
                description=self.description,
                operation=Operation(message=message, bindings=None),
                bindings=None,
            )
        return channels


class RocketMQSubscriber(TasksMixin):
    """The handler gets one message, or with `batch` a list."""

    _outer_config: RocketMQBrokerConfig

    def __init__(
        self,
        config: RocketMQSubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[Any],
    ) -> None:
        self.consumption: Consumption = config.consumption
        self.parser = RocketMQParser()
        if self.consumption.batch:
            config.parser, config.decoder = self.parser.parse_batch, self.parser.decode_batch
        else:
            config.parser, config.decoder = self.parser.parse_message, self.parser.decode_message
        super().__init__(config, specification, calls)
        self.running = False
        self._topics = config.topics
        self._deliveries: Deliveries | None = None
        self._waiting: deque[tuple[ReceivedMessage, ...]] = deque()
        self._working: set[asyncio.Task[None]] = set()
        self._free = asyncio.Event()

    @property
    def topics(self) -> list[str]:
        return [f"{self._outer_config.prefix}{topic}" for topic in self._topics]

    @property
    def group(self) -> str:
        return self.consumption.group or "-".join((self._outer_config.group, *self.topics))

    # ---- lifecycle ----

    async def start(self) -> None:
        await super().start()
        self._free = asyncio.Event()  # an event belongs to the loop in which it was waited for
        deliveries = self._make_deliveries()
        await deliveries.start()
        self._deliveries = self.parser.acknowledger = deliveries
        self._post_start()
        if self.calls:
            self.add_task(self._consume)

    async def stop(self) -> None:
        """Running handlers have `graceful_timeout`; what no handler got comes again at once."""
        self.running = False
        self._free.set()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=2 * WAIT_S)
        await super().stop()
        deliveries, self._deliveries = self._deliveries, None
        if deliveries is None:
            return
        late = self._working - {asyncio.current_task()}
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        while self._waiting:
            deliveries.finished(self._waiting.popleft(), handled=False)
        await deliveries.close()

    def _make_deliveries(self) -> Deliveries:
        options, config = self.consumption, self._outer_config
        if options.broadcasting:
            pull = PullConsumerOptions(
                model=MessageModel.BROADCASTING, from_where=options.from_where, auto_commit=False
            )
            puller = PullConsumer(self.group, options=pull, client=config.client)
            for topic in self.topics:
                puller.subscribe(topic, options.tags, sql=options.sql)
            return BroadcastDeliveries(puller)
        pop = PopConsumerOptions(
            from_where=options.from_where,
            orderly=options.orderly,
            invisible_s=options.invisible_s,
            auto_renew=True,
        )
        popper = PopConsumer(self.group, options=pop, client=config.client)
        for topic in self.topics:
            popper.subscribe(topic, options.tags, sql=options.sql)
        return PopDeliveries(popper, options)

    # ---- consuming ----

    async def _consume(self) -> None:
        """Fetch as many messages as workers and `prefetch` allow, for as long as the subscriber runs."""
        failed = False
        while self.running and self._deliveries is not None:
            count = self._capacity()
            if not count:
                self._free.clear()
                await self._free.wait()
                continue
            try:
                messages = await self._deliveries.fetch(count, WAIT_S)
            except RocketMQError as error:
                if not failed:
                    level = logging.INFO if isinstance(error, NoRoute) else logging.WARNING
                    self._log(level, f"Messages cannot be fetched, trying again: {error}")
                failed = True
                await asyncio.sleep(FAILED_PAUSE_S)
                continue
            if failed:
                self._log(logging.INFO, "Messages are fetched again")
            failed = False
            self._waiting.extend(self._units(messages))
            self._dispatch()

    def _units(self, messages: list[ReceivedMessage]) -> list[tuple[ReceivedMessage, ...]]:
        """The messages of each call of a handler."""
        if self.consumption.batch:
            return [tuple(messages)] if messages else []
        return [(message,) for message in messages]

    def _capacity(self) -> int:
        """How many messages to fetch now: none while more than half of `prefetch` wait.

        Of a queue in order, the next one comes when the last one is settled.
        """
        options = self.consumption
        calls = len(self._waiting) + len(self._working)
        if options.batch:
            return options.max_records if calls < options.max_workers else 0
        if options.orderly:
            return 1 if calls < options.max_workers else 0
        if len(self._waiting) > options.prefetch // 2:
            return 0
        return options.max_workers + options.prefetch - calls

    def _dispatch(self) -> None:
        while self.running and self._waiting and len(self._working) < self.consumption.max_workers:
            task = asyncio.get_running_loop().create_task(self._work(self._waiting.popleft()))
            self._working.add(task)
            task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        self._free.set()
        self._dispatch()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log(
                logging.ERROR, f"A message was not handled: {error!r}", exc_info=cast("Exception", error)
            )

    async def _work(self, messages: tuple[ReceivedMessage, ...]) -> None:
        deliveries = self._deliveries
        assert deliveries is not None
        handled = False
        try:
            if self.running:
                if await self._readable(messages, deliveries):
                    await self.consume(messages if self.consumption.batch else messages[0])
                handled = True
        finally:
            deliveries.finished(messages, handled=handled)

    async def _readable(self, messages: Sequence[ReceivedMessage], deliveries: Deliveries) -> bool:
        """A body that cannot be decompressed here is redelivered, maybe to a member that can, then a dead letter."""
        try:
            for message in messages:
                message.body  # noqa: B018 (decompresses it)
        except BodyUnreadable as error:
            self._log(logging.ERROR, f"A message cannot be read: {error}")
            await deliveries.nack(messages, None)
            return False
        return True

    # ---- without handlers ----

    async def get_one(self, *, timeout: float = 5.0) -> RocketMQMessage | None:
        """The next message, or batch; acknowledge it yourself. None after `timeout`."""
        assert not self.calls, "A subscriber with handlers cannot be read by `get_one`."
        assert self._deliveries is not None, "Start the subscriber first."
        count = self.consumption.max_records if self.consumption.batch else 1
        messages = await self._fetch_one(self._deliveries, count, timeout)
        if not messages:
            return None
        raw: RawMessage = tuple(messages) if self.consumption.batch else messages[0]
        self._deliveries.finished(messages)
        context = self._outer_config.context
        parser, decoder = self._get_parser_and_decoder()
        message = await process_msg(
            msg=raw,
            middlewares=(middleware(raw, context=context) for middleware in self._broker_middlewares),
            parser=parser,
            decoder=decoder,
        )
        found = cast("RocketMQMessage", message)
        if self.ack_policy is AckPolicy.ACK_FIRST:
            await found.ack()
        return found

    async def _fetch_one(self, deliveries: Deliveries, count: int, wait_s: float) -> list[ReceivedMessage]:
        """A topic without a route may be created meanwhile."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while True:
            left_s = max(deadline - loop.time(), 0)
            try:
                return await deliveries.fetch(count, left_s)
            except NoRoute:
                if left_s == 0:
                    return []
            await asyncio.sleep(min(FAILED_PAUSE_S, left_s))

    async def __aiter__(self) -> AsyncIterator[RocketMQMessage]:
        while self._deliveries is not None:
            message = await self.get_one(timeout=WAIT_S)
            if message is not None:
                yield message

    # ---- FastStream's hooks ----

    def _log(
        self,
        log_level: int | None,
        message: str,
        extra: dict[str, Any] | None = None,
        exc_info: Exception | None = None,
    ) -> None:
        """A line that belongs to no message names the topics and the group as well."""
        super()._log(log_level, message, extra or self.get_log_context(None), exc_info)

    def _make_response_publisher(self, message: StreamMessage[Any]) -> Sequence[PublisherProto]:
        first = cast("RocketMQMessage", message).messages[0]
        request = first if is_request(first) and "reply_to" not in message.headers else None
        return (ReplyPublisher(self._outer_config.producer, message.reply_to, request),)

    def get_log_context(self, message: StreamMessage[Any] | None) -> dict[str, str]:
        raw = None if message is None else cast("RocketMQMessage", message).messages[0]
        return {
            "topic": ",".join(self.topics) if raw is None else raw.topic,
            "group": self.group,
            "message_id": getattr(message, "message_id", ""),
        }
