"""PopConsumer: receives messages from brokers batch by batch; the user acknowledges each message.

Brokers distribute messages, not queues: any number of consumers of a group receive from the same queue
without blocking each other. A message that is not acknowledged within its invisible time is redelivered.
Event loop only.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import ResponseCode
from firearrow.client.base.call_hooks import Call, CallKind, call_hooks
from firearrow.client.base.compression import open_body
from firearrow.client.base.errors import BrokerError, ClientError, ConfigError, NotRunning
from firearrow.client.base.message import MessageQueue, Property
from firearrow.client.base.names import check_group, check_topic
from firearrow.client.base.options import (
    ClientOptions,
    ConsumeFromWhere,
    PopConsumerOptions,
    client_options,
)
from firearrow.client.base.service_state import ServiceState, now_ms
from firearrow.client.consume.consume_results import DEAD_LETTER
from firearrow.client.consume.send_back import request_send_back
from firearrow.client.pop.ack import AckClient
from firearrow.client.pop.auto_renewal import AutoRenewal
from firearrow.client.pop.pop_prefetcher import PopPrefetcher, PopSource, ReceiveOptions
from firearrow.client.pop.pop_request import ANY_QUEUE, PopRequest
from firearrow.client.pop.receipt_handles import receipt_handle_of
from firearrow.client.pop.start_after_last import StartAfterLast
from firearrow.client.rebalance.subscription import Subscription
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.routes import PERM_READ
from firearrow.client.remoting.service import Service

log = logging.getLogger("firearrow.client")
NO_CALL = nullcontext()
AGAIN_S = 1.0
"""Pause after messages could not be settled."""
BUSY = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR)
"""Of a broker that may take the request later; the last one if its store is full, for example."""


class _Parts(NamedTuple):
    """Of a consumer that runs."""

    prefetcher: PopPrefetcher
    acks: AckClient
    renewal: AutoRenewal


class PopConsumer(Service):
    """Use it once: `async with`, or `start` and `close`. Needs brokers of version 5 or later, or FireArrow.

    Cancelling `receive` loses nothing: the messages of its request go to the next `receive`.
    """

    def __init__(
        self,
        group: str,
        *,
        name_server: str | None = None,
        options: PopConsumerOptions | None = None,
        client: ClientOptions | None = None,
    ) -> None:
        self.options = options or PopConsumerOptions()
        super().__init__("consumer", client_options(client, name_server))
        self.group = self._namespace.wrap(check_group(group))
        self._subscriptions: dict[str, Subscription] = {}
        self._parts: _Parts | None = None
        self._first: StartAfterLast | None = None

    # ---- lifecycle ----

    async def _begin(self, instance: ClientInstance) -> None:
        """ConfigError: this client id already has a consumer of this group."""
        await instance.join_consumer(self)
        if self.options.from_where is ConsumeFromWhere.LAST_OFFSET:
            self._first = StartAfterLast(instance, self.group)
        prefetcher = PopPrefetcher(
            instance,
            open_body,
            self._matches_filter,
            now_ms,
            None if self._first is None else self._first.ensure,
        )
        acks = AckClient(instance, self.group, self._client.api_timeout_s)
        self._parts = _Parts(prefetcher, acks, AutoRenewal(self._hide))
        for topic in self.topics():
            await self._ensure_known(instance, topic)

    async def _end(self, instance: ClientInstance) -> None:
        """Received messages can no longer be acknowledged; they are redelivered to the group."""
        parts, self._parts = self._parts, None
        if parts is not None:
            await parts.prefetcher.close()
            await parts.renewal.close()
        await instance.leave_consumer(self)

    # ---- subscriptions ----

    def subscribe(self, topic: str, tags: str | None = None, *, sql: str | None = None) -> None:
        """Subscribe, before or after `start`. `tags` as `a || b`, or an SQL92 expression. ConfigError."""
        self._check_open_here()
        wrapped = self._namespace.wrap(check_topic(topic))
        self._subscriptions[wrapped] = Subscription.of(wrapped, tags, sql)
        if self._instance is not None:
            self._instance.spawn(self._ensure_known(self._instance, wrapped))

    def unsubscribe(self, topic: str) -> None:
        self._check_open_here()
        self._subscriptions.pop(self._namespace.wrap(topic), None)

    # ---- messages ----

    async def receive(
        self,
        batch: int | None = None,
        *,
        topic: str | None = None,
        invisible_s: float | None = None,
        wait_s: float | None = None,
    ) -> list[ReceivedMessage]:
        """Up to `batch` (1 to 32) messages of `topic`, or of all topics; an empty list after `wait_s`.

        No other consumer gets them for `invisible_s`. BrokerError: the broker refused; NoRoute: there is no
        broker; TransportError: it does not answer. With several topics or brokers, raises only if all of them
        fail.
        """
        if not call_hooks:
            return await self._receive(batch, topic, invisible_s, wait_s)
        with Call(CallKind.RECEIVE, "receive", self._caller(self.group), is_batch=True) as call:
            messages = await self._receive(batch, topic, invisible_s, wait_s)
            call.messages = [*messages]
        return messages

    async def _receive(
        self, batch: int | None, topic: str | None, invisible_s: float | None, wait_s: float | None
    ) -> list[ReceivedMessage]:
        parts = self._running()
        options = self.options
        receive_options = ReceiveOptions(
            batch=options.batch if batch is None else batch,
            invisible_ms=_ms("invisible_s", options.invisible_s if invisible_s is None else invisible_s),
            wait_s=options.wait_s if wait_s is None else wait_s,
        )
        if not 1 <= receive_options.batch <= 32 or receive_options.wait_s < 0:
            raise ConfigError(
                "batch must be 1..32 and wait_s at least 0, "
                f"not {receive_options.batch} and {receive_options.wait_s}"
            )
        try:
            messages = await parts.prefetcher.receive(await self._pop_sources(topic), receive_options)
        except NotRunning:  # it was closed while we waited
            return []
        except ClientError as error:
            self._reports.last_error.set(error)
            raise
        if options.auto_renew:
            for message in messages:
                parts.renewal.hold(message)
        return messages

    async def wait(self, wait_s: float | None = None, *, topic: str | None = None) -> bool:
        """Whether brokers have messages of `topic`, or of any topic, within `wait_s`; takes none.

        Other members may take them first: then `receive` returns an empty list. A broker reports a message that was
        hidden only once it is visible again. Errors as of `receive`.
        """
        prefetcher = self._running().prefetcher
        wait = self.options.wait_s if wait_s is None else wait_s
        if wait < 0:
            raise ConfigError(f"wait_s must be at least 0, not {wait}")
        try:
            return await prefetcher.wait(await self._pop_sources(topic), wait)
        except NotRunning:  # it was closed while we waited
            return False
        except ClientError as error:
            self._reports.last_error.set(error)
            raise

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Yield messages until the consumer is closed. Acknowledge each one yourself.

        A loop that is left leaves the rest of what it received to other members, once their invisible time is over.
        """
        while self.running:
            received = iter(await self.receive())
            try:
                for message in received:
                    yield message
            finally:
                self.not_given(received)

    async def ack(self, message: ReceivedMessage) -> None:
        """Acknowledge a message.

        Being late is not an error, but it is redelivered. BrokerError, TransportError: with `auto_renew` it is kept.
        """
        parts = self._running()
        async with parts.renewal.settling(message):
            with self._settling("ack", [message]):
                await parts.acks.ack(self._topic(message), receipt_handle_of(message))

    async def ack_batch(self, messages: Iterable[ReceivedMessage]) -> None:
        """Acknowledge several messages with as few requests as possible."""
        parts = self._running()
        acked = list(messages)
        async with parts.renewal.settling(*acked):
            pairs = [(self._topic(message), receipt_handle_of(message)) for message in acked]
            with self._settling("ack", acked, is_batch=True):
                await parts.acks.ack_many(pairs)

    async def change_invisible(self, message: ReceivedMessage, seconds: float) -> None:
        """Make the message visible `seconds` from now: to get more time, or to have it redelivered soon.

        The message gets a new receipt handle, and is not renewed any more. BrokerError, TransportError: the handle has
        not changed.
        """
        async with self._running().renewal.settling(message):
            with self._settling("change_invisible", [message]):
                await self._hide(message, seconds)

    async def dead_letter(self, message: ReceivedMessage) -> None:
        """Copy the message to the group's dead-letter topic, then acknowledge it.

        BrokerError, TransportError: it may have been copied already, and is redelivered unless you try again.
        """
        self._running()
        await request_send_back(
            self.instance,
            self.group,
            message,
            self._topic(message),
            delay_level=DEAD_LETTER,
            max_reconsume_times=0,
        )
        await self.ack(message)

    def holds(self, message: ReceivedMessage) -> bool:
        """Whether `auto_renew` keeps the message: it was neither settled, nor lost because brokers did not answer."""
        return self._running().renewal.holds(message)

    async def settle(
        self, messages: Sequence[ReceivedMessage], request: Callable[[], Awaitable[None]]
    ) -> None:
        """Make the request, which settles messages, again while brokers do not answer and `auto_renew` keeps them.

        BrokerError: a broker refused; other ClientErrors: a message was not kept as long as no broker answered. Then
        they come again after their invisible time.
        """
        while True:
            try:
                return await request()
            except ClientError as error:
                is_refused = isinstance(error, BrokerError) and error.code not in BUSY
                if is_refused or not all(map(self.holds, messages)):
                    self.not_given(messages)
                    raise
            await asyncio.sleep(AGAIN_S)

    def not_given(self, messages: Iterable[ReceivedMessage]) -> None:
        """Renew these no more: they come again after their invisible time, unless they are settled first.

        The loop that received them was left before it yielded them, or their handler has returned without an answer.
        """
        if self._parts is not None:
            self._parts.renewal.drop(messages)

    @property
    def held(self) -> int:
        """How many messages `auto_renew` keeps."""
        return self._running().renewal.held

    @property
    def running(self) -> bool:
        return self.state is ServiceState.RUNNING

    # ---- ConsumerRole: called by the client instance ----

    def topics(self) -> set[str]:
        return set(self._subscriptions)

    def heartbeat_data(self) -> dict[str, object]:
        return {
            "groupName": self.group,
            "consumeType": "CONSUME_POP",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": self.options.from_where.value,
            "subscriptionDataSet": [one.heartbeat_json() for one in self._subscriptions.values()],
            "unitMode": self._client.unit_name is not None,
        }

    @property
    def rebalances(self) -> bool:
        """POP consumers own no queues."""
        return False

    async def rebalance(self) -> bool:
        return True

    async def persist_offsets(self) -> None:
        """Nothing to do: brokers keep the offsets of groups that pop."""

    # ---- internal ----

    def _settling(
        self, name: str, messages: list[ReceivedMessage], *, is_batch: bool = False
    ) -> AbstractContextManager[object]:
        """For hooks."""
        if not call_hooks:
            return NO_CALL
        return Call(CallKind.SETTLE, name, self._caller(self.group), messages, is_batch)

    def _running(self) -> _Parts:
        if self._parts is None:
            raise self._not_running()
        self._check_loop()
        return self._parts

    async def _hide(self, message: ReceivedMessage, seconds: float) -> None:
        """It gets its new receipt handle."""
        receipt = await self._running().acks.change_invisible(
            self._topic(message), receipt_handle_of(message), _ms("seconds", seconds)
        )
        message.put_property(Property.POP_CHECK_POINT, receipt.text)

    async def _ensure_known(self, instance: ClientInstance, topic: str) -> None:
        """Send a heartbeat to the topic's brokers. A topic without a route may be created later."""
        try:
            await instance.routes.refresh(topic)
        except ClientError as error:
            log.info("topic %s: its brokers are not known yet: %s", topic, error)
        instance.heartbeats.forget()
        await instance.heartbeat_all()
        if self._first is not None:
            await self._first.begin(topic)

    async def _pop_sources(self, topic: str | None) -> list[PopSource]:
        """All brokers of the topic, or of all topics.

        ConfigError: not subscribed. NoRoute: no broker is known.
        """
        instance = self.instance
        if topic is not None and self._namespace.wrap(topic) not in self._subscriptions:
            raise ConfigError(f"topic {topic} is not subscribed: call subscribe first")
        if not self._subscriptions:
            raise ConfigError("no topic is subscribed: call subscribe first")
        topics = self.topics() if topic is None else {self._namespace.wrap(topic)}
        failure: ClientError | None = None
        sources: list[PopSource] = []
        for name in sorted(topics):
            try:
                await instance.routes.subscribe_queues(name)
            except ClientError as error:
                failure = error
                continue
            route = instance.routes.known(name)
            assert route is not None
            sources += [
                self._source(name, data.broker_name)
                for data in route.queues
                if data.perm & PERM_READ and data.read_queues > 0
            ]
        if not sources:
            raise failure or ClientError(f"topics {', '.join(sorted(topics))} have no readable queue")
        return sources

    def _source(self, topic: str, broker_name: str) -> PopSource:
        pop = PopRequest(
            group=self.group,
            queue=MessageQueue(topic, broker_name, ANY_QUEUE),
            subscription=self._subscriptions[topic],
            batch=0,
            invisible_ms=0,
            wait_ms=0,
            from_first=self.options.from_where is ConsumeFromWhere.FIRST_OFFSET,
            in_order=self.options.orderly,
        )
        return PopSource(pop, self._namespace.unwrap(topic))

    def _matches_filter(self, source: PopSource, message: ReceivedMessage) -> bool:
        """Brokers filter by hash: acknowledge and skip a message whose tag only has the same hash."""
        tags = source.pop.subscription.tags
        if not tags or message.tags in tags:
            return True
        acks = self._running().acks
        self.instance.spawn(acks.ack(self._topic(message), receipt_handle_of(message)))
        return False

    def _topic(self, message: ReceivedMessage) -> str:
        return self._namespace.wrap(message.topic)


def _ms(name: str, seconds: float) -> int:
    if not 0 < seconds <= 3 * 86400:
        raise ConfigError(f"{name}: {seconds} must be greater than 0 and at most {3 * 86400}")
    return max(int(seconds * 1000), 1)
