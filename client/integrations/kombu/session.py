"""Session: the client that all connections of a process with the same settings share.

`acquire` and `release`: any thread. All else of a Session runs in the client's loop thread, by `run`. A forked child
has none: it makes its own at first use.
"""

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from kombu.transport.virtual.base import BrokerState

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import ResponseCode
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base import process_exit
from firearrow.client.base.errors import BrokerError, NoRoute, NotRunning, TransportError
from firearrow.client.base.message import Message, MessageQueue, message_copy
from firearrow.client.base.names import Namespace
from firearrow.client.base.options import ConsumeFromWhere, PopConsumerOptions
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.integrations.kombu.envelope import (
    RawMessage,
    delay,
    priority_of,
    to_exchange,
    to_message,
)
from firearrow.client.integrations.kombu.feeds import Admission, QueueFeed
from firearrow.client.integrations.kombu.leases import Lease, Leases, Window
from firearrow.client.integrations.kombu.names import exchange_topic, retry_topics
from firearrow.client.integrations.kombu.revoked import recall
from firearrow.client.integrations.kombu.settings import Place
from firearrow.client.integrations.kombu.temporary_queues import GROUP, TemporaryQueue
from firearrow.client.integrations.settlement import Settlement
from firearrow.client.integrations.task_producer import create_topic, topic_exists
from firearrow.client.integrations.task_session import visible_messages
from firearrow.client.integrations.topic_names import queue_of, topic_of
from firearrow.client.send.producer import Producer
from firearrow.client.send.queue_selection import Selector
from firearrow.client.threads.loop_thread import LoopThread

log = logging.getLogger("firearrow.client")
Result = TypeVar("Result")

LINGER_S = 30.0
"""How long a session stays without connections, and a temporary queue without consumers: both often come back."""
ABSENT_S, ABSENT_MAX = 2.0, 10_000
"""How long a topic that does not exist is not looked up again, and how many such topics are known."""
SETTLE_S = 5.0
"""How long the end waits for acknowledgements."""
PURGE_BATCH = 32


class Session:
    """Closed when the process ends, if not before (process_exit)."""

    drain_s = SETTLE_S

    def __init__(self, place: Place, thread: LoopThread) -> None:
        self.place = place
        self.settings = place.settings
        self.users = 0
        self._client = place.client_options()
        self._namespace = Namespace(self._client.namespace)
        self.producer = Producer(GROUP, client=self._client)
        self.admin = Admin(client=self._client)
        self.leases = Leases()
        self._admission = Admission(self.leases, place.settings.max_deliveries, self._forward)
        self._thread = thread
        self._pid = os.getpid()
        self._settlements: dict[str, Settlement] = {}
        """By queue, with the member of the queue's group in this process."""
        self._starting = asyncio.Lock()
        self._temporary: dict[str, TemporaryQueue] = {}
        self._present: set[str] = set()
        self._absent: dict[str, float] = {}
        """Topic → until when it is not looked up."""
        self.state = BrokerState()
        """Exchanges and bindings that this process declared. Any thread."""
        self._priorities: dict[str, int] = {}
        """Queue with priorities → their number."""

    # ---- threads ----

    @property
    def is_here(self) -> bool:
        """Whether it belongs to this process."""
        return os.getpid() == self._pid

    def run(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Run a coroutine in the loop and wait. Any thread but the loop's."""
        return self._thread.run(work)

    def post(self, function: Callable[[], object]) -> None:
        """Have the loop call it soon. Any thread."""
        self._thread.post(function)

    # ---- life ----

    async def open(self) -> None:
        """ClientError: no name server answers."""
        await self.producer.start()
        try:
            await self.admin.start()
            await self._reach()
        except BaseException:
            await self.admin.close()
            await self.producer.close()
            raise
        process_exit.opened(self)

    async def _reach(self) -> None:
        try:
            await self.admin.cluster_info()
        except BrokerError as error:  # a name server that answers is enough
            log.debug("the cluster is not listed: %s", error)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._thread.loop

    def report_unsent(self) -> None:
        """Its messages come again."""

    async def close(self) -> None:
        process_exit.closed(self)
        for queue in self._temporary.values():
            queue.close()
        self._temporary.clear()
        await self.settled()
        for settlement in self._settlements.values():
            await settlement.close()
        await self.admin.close()
        await self.producer.close()

    # ---- topics ----

    async def exists(self, topic: str) -> bool:
        if topic in self._present:
            return True
        if self._absent.get(topic, 0) > time.monotonic():
            return False
        try:
            found = await topic_exists(self.admin, topic)
        except TransportError:
            if topic not in self._absent:
                raise
            return False  # no topic is created while no name server answers
        if not found:
            if len(self._absent) >= ABSENT_MAX:
                self._absent.clear()
            self._absent[topic] = time.monotonic() + ABSENT_S
            return False
        self._present.add(topic)
        self._absent.pop(topic, None)
        return True

    async def declare(self, queue: str, priorities: int = 0) -> None:
        """Create the queue's topic and group unless they exist. `priorities`: 0 is the lowest one. ClientError."""
        if priorities:
            self._priorities[queue] = priorities
        topic = topic_of(queue)
        self._absent.pop(topic, None)
        if await self.exists(topic):
            return
        await self._create(topic, self.settings.queues, priorities)
        await self.admin.create_group(topic)

    async def declare_exchange(self, exchange: str) -> str:
        """Its topic, for temporary queues."""
        topic = exchange_topic(exchange)
        self._absent.pop(topic, None)
        if not await self.exists(topic):
            await self._create(topic, 1)
        return topic

    async def _create(self, topic: str, queues: int, priorities: int = 0) -> None:
        await create_topic(self.admin, topic, queues, priorities)
        self._present.add(topic)
        self._absent.pop(topic, None)

    async def delete(self, queue: str) -> None:
        """Delete the topic and the group of a queue, with all messages."""
        settlement = self._settlements.pop(queue, None)
        if settlement is not None:
            await settlement.close()
        topic = topic_of(queue)
        self._forget_bindings(queue)
        self._present.discard(topic)
        self._priorities.pop(queue, None)
        await self.admin.delete_group(topic)
        for name in (topic, *retry_topics(topic, topic)):
            await self.admin.delete_topic(name)

    # ---- sending ----

    async def publish(self, exchange: str, routing_key: str, raw: RawMessage, queues: Sequence[str]) -> bool:
        """To `queues`, and to the temporary queues of all processes. False: to no queue. ClientError: perhaps stored.

        Of the default exchange, `queues` is the one that the routing key names, if there is such a queue.
        """
        if exchange:
            has_temporary = await self.exists(exchange_topic(exchange))  # if this raises, nothing was sent
            for queue in queues:
                await self._send(queue, raw)
            return (has_temporary and await self._send_to_exchange(exchange, routing_key, raw)) or bool(
                queues
            )
        for queue in queues:
            if await self.exists(topic_of(queue)):
                await self._send(queue, raw)
                return True
        return await self._send_to_exchange("", routing_key, raw)

    async def _send(self, queue: str, raw: RawMessage) -> None:
        topic = topic_of(queue)
        message = to_message(topic, raw, self.settings.delay_max)
        selector = self._selector(queue, raw)
        try:
            await self.producer.send(message, selector=selector)
        except (NoRoute, BrokerError) as error:
            if isinstance(error, BrokerError) and error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            self._present.discard(topic)  # another process deleted it
            await self.declare(queue, self._priorities.get(queue, 0))
            await self.producer.send(message, selector=selector)

    def _selector(self, queue: str, raw: RawMessage) -> Selector | None:
        priorities = self._priorities.get(queue)
        return None if priorities is None else partial(_by_priority, priority_of(raw, priorities))

    async def _send_to_exchange(self, exchange: str, routing_key: str, raw: RawMessage) -> bool:
        """False: no temporary queue was ever bound to the exchange."""
        topic = exchange_topic(exchange)
        if not await self.exists(topic):
            return False
        await self.producer.send(to_exchange(topic, routing_key, raw))
        return True

    async def _forward(self, message: ReceivedMessage, raw: RawMessage, delay_s: float) -> None:
        next_one = message_copy(message, message.topic)
        delay(next_one, delay_s, self.settings.delay_max)
        await self.producer.send(next_one, selector=self._selector(queue_of(message.topic), raw))

    async def recall(self, tasks: Sequence[str]) -> int:
        """Recall those that wait for their ETA at a broker; how many."""
        recalled = 0
        for task in tasks:
            recalled += await recall(
                task, self.admin, self._namespace, self.producer.recall, self.producer.send
            )
        return recalled

    # ---- receiving ----

    async def settlement(self, queue: str) -> Settlement:
        """Its consumer runs."""
        async with self._starting:
            found = self._settlements.get(queue)
            if found is None:
                await self.declare(queue, self._priorities.get(queue, 0))
                topic = topic_of(queue)
                options = PopConsumerOptions(
                    from_where=ConsumeFromWhere.FIRST_OFFSET,
                    invisible_s=self.settings.visibility_timeout,
                    auto_renew=True,
                )
                consumer = PopConsumer(topic, client=self._client, options=options)
                consumer.subscribe(topic)
                await consumer.start()
                found = self._settlements[queue] = Settlement(consumer)
            return found

    async def feed(self, queue: str, window: Window, deliver: Callable[[Lease], None]) -> QueueFeed:
        return QueueFeed(await self.settlement(queue), window, self._admission, deliver)

    async def pop(self, queue: str) -> Lease | None:
        """One message, without waiting."""
        settlement = await self.settlement(queue)
        while True:
            messages = await settlement.consumer.receive(1, wait_s=0)
            if not messages:
                return None
            lease = self.leases.open(settlement, messages[0], None)
            if self._admission.admit(lease):
                return lease

    async def purge(self, queue: str) -> int:
        """Take all messages that are visible; returns their number."""
        consumer = (await self.settlement(queue)).consumer
        count = 0
        while messages := await consumer.receive(PURGE_BATCH, wait_s=0):
            await consumer.ack_batch(messages)
            count += len(messages)
        return count

    async def size(self, queue: str) -> int:
        """Messages that wait for a consumer, without those whose ETA is not reached."""
        topic = topic_of(queue)
        return await visible_messages(self.admin, topic, topic)

    def ack(self, lease: Lease) -> None:
        self.leases.ack(lease)

    def give_back(self, lease: Lease) -> None:
        self.leases.give_back(lease)

    def reject(self, lease: Lease) -> None:
        self.leases.dead_letter(lease, "it was rejected")

    async def settled(self) -> None:
        """Until brokers know what became of all messages, or for SETTLE_S."""
        await asyncio.gather(*(one.finish(SETTLE_S) for one in self._settlements.values()))

    # ---- temporary queues ----

    def temporary(self, queue: str) -> TemporaryQueue | None:
        return self._temporary.get(queue)

    async def declare_temporary(self, queue: str, priorities: int = 0) -> TemporaryQueue:
        """Bound to the default exchange from the first time on. `priorities`: see `declare`."""
        found = self._temporary.get(queue)
        if found is None:
            found = TemporaryQueue(queue, self.producer.instance, priorities)
            topic = await self.declare_exchange("")
            await found.bind(self._namespace.wrap(topic), queue)
            self._temporary[queue] = found
        return found

    async def bind_temporary(
        self, queue: TemporaryQueue, exchange: str, routing_key: str | None, pattern: str | None
    ) -> None:
        topic = await self.declare_exchange(exchange)
        await queue.bind(self._namespace.wrap(topic), routing_key, pattern)

    async def delete_temporary(self, queue: str) -> None:
        self._delete_temporary(queue)

    def _delete_temporary(self, queue: str) -> None:
        self._forget_bindings(queue)
        found = self._temporary.pop(queue, None)
        if found is not None:
            found.close()

    def abandoned(self, queue: TemporaryQueue) -> None:
        """A consumer left: without another one in time, the queue is deleted."""

        def delete_unused() -> None:
            if self._temporary.get(queue.name) is queue and not queue.has_listener:
                self._delete_temporary(queue.name)

        self.loop.call_later(LINGER_S, delete_unused)

    def _forget_bindings(self, queue: str) -> None:
        for exchange in list(self.state.exchanges.values()):
            exchange["table"] = [row for row in exchange["table"] if row[2] != queue]
        self.state.queue_bindings_delete(queue)


def _by_priority(priority: int, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Of topics of type PRIORITY, brokers pop the queue with the highest id first; that of a delayed message stays."""
    nearest = min(abs(queue.queue_id - priority) for queue in queues)
    return random.choice([queue for queue in queues if abs(queue.queue_id - priority) == nearest])


class _Sessions:
    """Those of this process. Loop thread only."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.by_place: dict[Place, Session] = {}
        self.closing: set[asyncio.Task[None]] = set()

    async def acquire(self, place: Place, thread: LoopThread) -> Session:
        async with self.lock:
            session = self.by_place.get(place)
            if session is None:
                session = Session(place, thread)
                await session.open()
                self.by_place[place] = session
            session.users += 1
            return session

    def release(self, session: Session) -> None:
        session.users -= 1
        if not session.users:
            asyncio.get_running_loop().call_later(LINGER_S, self._close_unused, session)

    def _close_unused(self, session: Session) -> None:
        if session.users == 0 and self.by_place.get(session.place) is session:
            del self.by_place[session.place]
            task = asyncio.get_running_loop().create_task(session.close())
            self.closing.add(task)
            task.add_done_callback(self.closing.discard)


_sessions = _Sessions()
_of_parents: list[_Sessions] = []
"""Never released: a child must not tear down what it shares with its parent."""


def acquire(place: Place) -> Session:
    """The session of this process; pair each call with a `release`. ClientError: no name server answers."""
    thread = LoopThread.current()
    return thread.run(lambda: _sessions.acquire(place, thread))


def release(session: Session) -> None:
    """The last one closes it after a while."""
    if session.is_here:
        with contextlib.suppress(NotRunning):  # the process ends
            session.post(lambda: _sessions.release(session))


def _forked() -> None:
    global _sessions  # noqa: PLW0603
    _of_parents.append(_sessions)
    _sessions = _Sessions()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
