"""PopConsumer: takes messages from brokers one batch at a time, and says of each message itself what came of it.

Brokers share messages out, not queues: any number of consumers of a group take from the same queue, and none holds the
others up. What is not acknowledged while it is hidden comes back to the group. Event loop only.
"""

import logging
from collections.abc import AsyncIterator, Iterable

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.compression import open_body
from firearrow.client.base.errors import ClientError, ConfigError, NotRunning
from firearrow.client.base.message import MessageQueue, Property
from firearrow.client.base.names import check_group, check_topic
from firearrow.client.base.options import (
    ClientOptions,
    ConsumeFromWhere,
    PopConsumerOptions,
    client_options,
)
from firearrow.client.base.service_state import ServiceState, now_ms
from firearrow.client.pop.ack import AckClient
from firearrow.client.pop.pop_prefetcher import PopPrefetcher, PopSource, ReceiveOptions
from firearrow.client.pop.pop_request import ANY_QUEUE, PopRequest
from firearrow.client.pop.receipt_handles import receipt_handle_of
from firearrow.client.rebalance.subscription import Subscription
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.routes import PERM_READ
from firearrow.client.remoting.service import Service

log = logging.getLogger("firearrow.client")


class PopConsumer(Service):
    """Usable once: `async with`, or `start` and `close`. Brokers must be of version 5 or later, or FireArrow.

    A `receive` that is cancelled loses nothing: what its request brings goes to the next `receive`.
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
        self._prefetcher: PopPrefetcher | None = None
        self._acks: AckClient | None = None

    # ---- life ----

    async def _begin(self, instance: ClientInstance) -> None:
        """ConfigError: this client id has a consumer of this group already."""
        await instance.join_consumer(self)
        self._acks = AckClient(instance, self.group, self._client.api_timeout_s)
        self._prefetcher = PopPrefetcher(instance, open_body, self._wanted, now_ms)
        for topic in self.topics():
            await self._ensure_known(instance, topic)

    async def _end(self, instance: ClientInstance) -> None:
        """Messages that were received can no longer be acknowledged; they come back to the group."""
        sources, self._prefetcher, self._acks = self._prefetcher, None, None
        if sources is not None:
            await sources.close()
        await instance.leave_consumer(self)

    # ---- what is wanted ----

    def subscribe(self, topic: str, tags: str | None = None, *, sql: str | None = None) -> None:
        """At any time. `tags` as `a || b`, or an SQL expression. ConfigError."""
        wrapped = self._namespace.wrap(check_topic(topic))
        self._subscriptions[wrapped] = Subscription.of(wrapped, tags, sql)
        if self._instance is not None:
            self._instance.spawn(self._ensure_known(self._instance, wrapped))

    def unsubscribe(self, topic: str) -> None:
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
        """Up to `batch` (1 to 32) messages of `topic`, or of any that is subscribed; an empty list after `wait_s`.

        For `invisible_s` nobody else gets them. BrokerError: the broker's refusal; NoRoute, TransportError: there is
        none, or it does not answer. With several topics or brokers an error comes only when all of them fail.
        """
        sources, _ = self._running()
        options = self.options
        receive_options = ReceiveOptions(
            batch=options.batch if batch is None else batch,
            invisible_ms=_ms("invisible_s", options.invisible_s if invisible_s is None else invisible_s),
            wait_s=options.wait_s if wait_s is None else wait_s,
        )
        if not 1 <= receive_options.batch <= 32 or receive_options.wait_s < 0:
            raise ConfigError(f"batch must be 1..32 and wait_s at least 0, not {batch} and {wait_s}")
        places = await self._places(topic)
        try:
            return await sources.receive(places, receive_options)
        except NotRunning:  # closed meanwhile
            return []

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """One message after the other, until the consumer is closed. Acknowledge each: nothing does it for you."""
        while self.running:
            for message in await self.receive():
                yield message

    async def ack(self, message: ReceivedMessage) -> None:
        """Done with it. Too late is no error: then the message is out again. BrokerError, TransportError."""
        await self._running()[1].ack(self._topic(message), receipt_handle_of(message))

    async def ack_batch(self, messages: Iterable[ReceivedMessage]) -> None:
        """Done with all of these, in as few requests as can be."""
        pairs = [(self._topic(message), receipt_handle_of(message)) for message in messages]
        await self._running()[1].ack_many(pairs)

    async def change_invisible(self, message: ReceivedMessage, seconds: float) -> None:
        """Visible again in `seconds` from now: more time for us, or soon to somebody else.

        The message has a new receipt then. BrokerError, TransportError: nothing has changed as far as we know.
        """
        _, acks = self._running()
        receipt = await acks.change_invisible(
            self._topic(message), receipt_handle_of(message), _ms("seconds", seconds)
        )
        message.put_property(Property.POP_CHECK_POINT, receipt.text)

    @property
    def running(self) -> bool:
        return self.state is ServiceState.RUNNING

    # ---- as the instance sees us ----

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

    async def rebalance(self) -> bool:
        """Queues belong to nobody here."""
        return True

    async def persist_offsets(self) -> None:
        """Brokers keep the offsets of groups that pop."""

    # ---- inside ----

    def _running(self) -> tuple[PopPrefetcher, AckClient]:
        if self._prefetcher is None or self._acks is None:
            raise self._not_running()
        return self._prefetcher, self._acks

    async def _ensure_known(self, instance: ClientInstance, topic: str) -> None:
        """Brokers of a topic hear of us. A topic without a route may come to have one later."""
        try:
            await instance.routes.refresh(topic)
        except ClientError as error:
            log.warning("%s: %s", topic, error)
        instance.heartbeats.forget()
        await instance.heartbeat_all()

    async def _places(self, topic: str | None) -> list[PopSource]:
        """Every broker of every topic that is asked for. ConfigError: not subscribed. NoRoute: none is known."""
        instance = self.instance
        if topic is not None and self._namespace.wrap(topic) not in self._subscriptions:
            raise ConfigError(f"{topic} is not subscribed")
        if not self._subscriptions:
            raise ConfigError("nothing is subscribed")
        wanted = self.topics() if topic is None else {self._namespace.wrap(topic)}
        failure: ClientError | None = None
        sources: list[PopSource] = []
        for name in sorted(wanted):
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
            raise failure or ClientError(f"no queue of {', '.join(sorted(wanted))} can be read")
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

    def _wanted(self, source: PopSource, message: ReceivedMessage) -> bool:
        """Brokers tell tags by their hash: another tag of the same hash is acknowledged and passed over."""
        tags = source.pop.subscription.tags
        if not tags or message.tags in tags:
            return True
        self.instance.spawn(self.ack(message))
        return False

    def _topic(self, message: ReceivedMessage) -> str:
        return self._namespace.wrap(message.topic)


def _ms(name: str, seconds: float) -> int:
    if not 0 < seconds <= 3 * 86400:
        raise ConfigError(f"{name}: {seconds} is not within 0..{3 * 86400}")
    return max(int(seconds * 1000), 1)
