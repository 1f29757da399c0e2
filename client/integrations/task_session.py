"""TaskSession: the sending and receiving of a process that works on several queues, each with a group of its own.

`BlockingTaskSession` is the same for threads.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple, Self

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.extensions import Extensions
from firearrow.client.admin_api.records import read
from firearrow.client.base.errors import BrokerError, NoRoute, OnlyFireArrow
from firearrow.client.base.names import DLQ
from firearrow.client.base.options import ClientOptions
from firearrow.client.base.service_state import Startable
from firearrow.client.integrations.task_consumer import TaskConsumer
from firearrow.client.integrations.task_producer import TaskOptions, TaskProducer
from firearrow.client.threads.facade import Facade, Verb, makes

IN_FLIGHT_MAX = 1000


class QueueCounts(NamedTuple):
    """How many messages a queue has. `in_flight`: received and not acknowledged; of Apache's broker, which does not
    report them, those of this process."""

    visible: int
    delayed: int
    in_flight: int
    dead: int


class TaskSession(Startable):
    """It sends in the name of `producer_group`. Methods name the topic of a queue, and the group of its workers."""

    def __init__(self, producer_group: str, options: TaskOptions, client: ClientOptions) -> None:
        self._options = options
        self._client = client
        self._producer = TaskProducer(producer_group, options, client)
        self._consumers: dict[str, TaskConsumer] = {}
        """By group."""
        self._opening = asyncio.Lock()

    async def start(self) -> Self:
        self._bind()
        await self._producer.start()
        return self

    async def close(self) -> None:
        consumers, self._consumers = self._consumers, {}
        await asyncio.gather(*(consumer.close() for consumer in consumers.values()))
        await self._producer.close()

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        task_id: str,
        task_name: str,
        due_ms: int | None = None,
        priority: int | None = None,
    ) -> None:
        """See TaskProducer."""
        await self._producer.send(
            topic, body, task_id=task_id, task_name=task_name, due_ms=due_ms, priority=priority
        )

    async def open(self, topic: str, group: str) -> None:
        """Join the group, once; until `close`."""
        await self._consumer(topic, group)

    async def receive(self, topic: str, group: str, most: int, wait_s: float) -> list[ReceivedMessage]:
        return await (await self._consumer(topic, group)).receive(most, wait_s)

    async def ack(self, topic: str, group: str, message: ReceivedMessage) -> None:
        await (await self._consumer(topic, group)).ack(message)

    async def dead_letter(self, topic: str, group: str, message: ReceivedMessage) -> None:
        await (await self._consumer(topic, group)).dead_letter(message)

    async def release(self, topic: str, group: str, messages: Iterable[ReceivedMessage]) -> None:
        await (await self._consumer(topic, group)).release(messages)

    async def release_waiting(self, topic: str, group: str) -> None:
        await (await self._consumer(topic, group)).release_waiting()

    async def purge(self, topic: str, group: str) -> None:
        await (await self._consumer(topic, group)).purge()

    async def counts(self, topic: str, group: str) -> QueueCounts:
        async with Admin(client=self._client) as admin:
            in_flight = await _in_flight(admin, topic, group)
            if group in self._consumers:
                in_flight = max(in_flight, self._consumers[group].held)
            return QueueCounts(
                await visible_messages(admin, topic, group),
                await _delayed(admin, topic),
                in_flight,
                await _stored(admin, DLQ + group),
            )

    async def _consumer(self, topic: str, group: str) -> TaskConsumer:
        consumer = self._consumers.get(group)
        if consumer is not None:
            return consumer
        async with self._opening:
            if group not in self._consumers:
                made = TaskConsumer(group, (topic,), self._producer, self._options, self._client)
                self._consumers[group] = await made.start()
            return self._consumers[group]


class BlockingTaskSession(Facade[TaskSession]):
    """Any thread."""

    @makes(TaskSession)
    def __init__(self, make: Callable[[], TaskSession]) -> None:
        super().__init__(make)

    send = Verb(TaskSession.send)
    open = Verb(TaskSession.open)
    receive = Verb(TaskSession.receive)
    ack = Verb(TaskSession.ack)
    dead_letter = Verb(TaskSession.dead_letter)
    release = Verb(TaskSession.release)
    release_waiting = Verb(TaskSession.release_waiting)
    purge = Verb(TaskSession.purge)
    counts = Verb(TaskSession.counts)


async def visible_messages(admin: Admin, topic: str, group: str) -> int:
    """How many wait for a consumer. Those that come again count as well: they are in the retry topic of the group."""
    lag = await admin.consumer_lag(group)
    if any(queue.topic == topic for queue in lag.queues):
        return lag.messages
    return await _stored(admin, topic) + lag.messages


async def _stored(admin: Admin, topic: str) -> int:
    try:
        stats = await admin.topic_stats(topic)
    except (NoRoute, BrokerError):
        return 0
    return sum(queue.max_offset - queue.min_offset for queue in stats.values())


async def _delayed(admin: Admin, topic: str) -> int:
    """Timers that wait in brokers."""
    name = admin.namespace.wrap(topic)
    answers = await admin.calls.ask_masters(RequestCode.GET_TIMER_METRICS)
    return sum(
        read(answer.body, lambda metrics: metrics.members("timingCount").members(name).number("count"))
        for answer in answers
    )


async def _in_flight(admin: Admin, topic: str, group: str) -> int:
    try:
        listing = await Extensions(admin).pop_in_flight(group, topic, limit=IN_FLIGHT_MAX)
    except OnlyFireArrow:
        return 0
    return len(listing.rows)
