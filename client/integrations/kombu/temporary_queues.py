"""TemporaryQueue: a queue that lives as long as its process, such as those for replies, events and remote control.

It has no topic: it pulls the topics of the exchanges that it is bound to, from their ends at that time, and keeps no
offsets. So each process gets all messages, and brokers keep nothing of one that died. Loop thread only, except `take`,
`put_back`, `purge` and `listen`.
"""

import asyncio
import logging
import math
import re
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import RocketMQError
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.service_state import now_ms
from firearrow.client.base.state_log import FAILING_S, QUIET_S, StateLog
from firearrow.client.integrations.kombu.envelope import (
    ROUTING_KEY,
    RawMessage,
    Unreadable,
    lifetime_s,
    of_message,
    priority_of,
    tag_of,
)
from firearrow.client.pull.pull_request import PullClient, PullQuery, PullStatus
from firearrow.client.rebalance.subscription import Subscription
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.queue_offsets import QueueOffsets

log = logging.getLogger("firearrow.client")

GROUP = "kombu"
KEPT_MAX = 10_000
"""Messages that no consumer takes; the oldest ones are dropped."""
BATCH, BATCH_BYTES = 32, 1 << 20
SUSPEND_S, TIMEOUT_S = 15.0, 25.0
RETRY_S = 0.5
ROUTE_S = 30.0
"""How often new brokers of a topic are looked for."""


class Source:
    """The topic of one exchange, and which of its messages the queue gets."""

    def __init__(self, instance: ClientInstance, topic: str, accept: Callable[[RawMessage], None]) -> None:
        self._instance = instance
        self._topic = topic
        self._accept = accept
        self._everything = False
        self._keys: set[str] = set()
        self._patterns: set[str] = set()
        self._offsets: dict[MessageQueue, int] = {}
        self._since_ms = 0
        self._client = PullClient(instance, GROUP)
        self._tasks: list[asyncio.Task[None]] = []
        self._failing = StateLog(
            log, "%s is pulled again, after %d failures", instance.loop.time, quiet_s=FAILING_S
        )

    async def begin(self) -> None:
        """The queue gets what is sent from now on. ClientError."""
        self._since_ms = now_ms()
        positions = QueueOffsets(self._instance)
        for queue in await self._instance.routes.subscribe_queues(self._topic):
            self._offsets[queue] = await positions.max_offset(queue)

    def add(self, routing_key: str | None, pattern: str | None) -> None:
        """Also messages with this key, or with one that matches the pattern; neither: all messages."""
        if pattern is not None:
            self._patterns.add(pattern)
        elif routing_key is not None:
            self._keys.add(routing_key)
        else:
            self._everything = True
        self.stop()
        loop = self._instance.loop
        self._tasks = [loop.create_task(self._pull(queue)) for queue in self._offsets]
        self._tasks.append(loop.create_task(self._look_for_brokers()))

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    def _wants(self, message: ReceivedMessage) -> bool:
        key = message.get_property(ROUTING_KEY) or ""
        return (
            self._everything or key in self._keys or any(re.match(pattern, key) for pattern in self._patterns)
        )

    async def _look_for_brokers(self) -> None:
        """A broker that is new, or was away at the beginning: what was stored since then counts."""
        positions = QueueOffsets(self._instance)
        while True:
            await asyncio.sleep(ROUTE_S)
            try:
                await self._instance.routes.refresh(self._topic)
                for queue in await self._instance.routes.subscribe_queues(self._topic):
                    if queue in self._offsets:
                        continue
                    self._offsets[queue] = await positions.offset_since(queue, self._since_ms)
                    self._tasks.append(self._instance.loop.create_task(self._pull(queue)))
            except RocketMQError as error:
                log.debug("topic %s: its brokers are not known now: %s", self._topic, error)

    async def _pull(self, queue: MessageQueue) -> None:
        by_tag = not (self._everything or self._patterns)
        tags = " || ".join(sorted(map(tag_of, self._keys))) if by_tag else None
        subscription = Subscription.of(self._topic, tags)
        while True:
            query = PullQuery(
                queue=queue,
                subscription=subscription,
                offset=self._offsets[queue],
                batch=BATCH,
                batch_bytes=BATCH_BYTES,
                timeout_s=TIMEOUT_S,
                suspend_s=SUSPEND_S,
                post_expression=True,
            )
            try:
                result = await self._client.pull(query)
            except RocketMQError as error:
                self._failing.is_there(queue, "%s: a pull failed: %s", queue, error)
                await asyncio.sleep(RETRY_S)
                continue
            except Exception:
                log.exception("%s: a pull failed", queue)
                await asyncio.sleep(RETRY_S)
                continue
            self._failing.is_absent(queue)
            self._offsets[queue] = result.next_offset
            if result.status is PullStatus.OFFSET_ILLEGAL:
                log.info("%s: continues at offset %d", queue, result.next_offset)
            for message in result.messages:
                if self._wants(message):
                    self._take(message)

    def _take(self, message: ReceivedMessage) -> None:
        try:
            self._accept(of_message(message))
        except Unreadable as error:
            log.info("ignored: %s", error)


class Kept(NamedTuple):
    raw: RawMessage
    until_s: float
    """When its `expiration` is over, by the monotonic clock."""


def _kept(raw: RawMessage) -> Kept:
    lifetime = lifetime_s(raw)
    return Kept(raw, math.inf if lifetime is None else time.monotonic() + lifetime)


def _first(kept: deque[Kept]) -> Kept | None:
    """Taken out; another thread may have been faster."""
    try:
        return kept.popleft()
    except IndexError:
        return None


class TemporaryQueue:
    """`priorities`: their number, 0 for a queue without. The highest one comes first."""

    def __init__(self, name: str, instance: ClientInstance, priorities: int = 0) -> None:
        self.name = name
        self._listeners: dict[str, Callable[[], None]] = {}
        """Consumer tag → what is called when there is something to take. Any thread changes it."""
        self._instance = instance
        self._sources: dict[str, Source] = {}
        self._kept = tuple(deque[Kept]() for _ in range(priorities or 1))
        """By priority."""
        self._full = StateLog(
            log, "queue %s: messages are taken again, %d were dropped", instance.loop.time, quiet_s=QUIET_S
        )

    async def bind(self, topic: str, routing_key: str | None, pattern: str | None = None) -> None:
        """`topic` of an exchange, as brokers know it. ClientError."""
        source = self._sources.get(topic)
        if source is None:
            source = Source(self._instance, topic, self._put)
            await source.begin()
            self._sources[topic] = source
        source.add(routing_key, pattern)

    def close(self) -> None:
        for source in self._sources.values():
            source.stop()
        self._sources.clear()
        self.purge()

    def listen(self, consumer_tag: str, listener: Callable[[], None]) -> None:
        """Call it for each message that is or will be here."""
        self._listeners[consumer_tag] = listener
        for _ in range(len(self)):
            listener()

    def listen_no_more(self, consumer_tag: str) -> None:
        self._listeners.pop(consumer_tag, None)

    @property
    def has_listener(self) -> bool:
        return bool(self._listeners)

    def take(self) -> RawMessage | None:
        """The oldest one of the highest priority. Those whose `expiration` is over are dropped."""
        for kept in reversed(self._kept):
            while (first := _first(kept)) is not None:
                if time.monotonic() < first.until_s:
                    return first.raw
        return None

    def put_back(self, raw: RawMessage) -> None:
        self._of_priority(raw).appendleft(_kept(raw))
        self._notify()

    def purge(self) -> int:
        count = len(self)
        for kept in self._kept:
            kept.clear()
        return count

    def __len__(self) -> int:
        return sum(map(len, self._kept))

    def _of_priority(self, raw: RawMessage) -> deque[Kept]:
        return self._kept[priority_of(raw, len(self._kept))]

    def _put(self, raw: RawMessage) -> None:
        if len(self) >= KEPT_MAX:
            any(_first(kept) for kept in self._kept)  # of the lowest priority
            self._full.is_there(
                self.name,
                "queue %s: no consumer takes its %d messages, the oldest are dropped",
                self.name,
                KEPT_MAX,
            )
        else:
            self._full.is_absent(self.name)
        self._of_priority(raw).append(_kept(raw))
        self._notify()

    def _notify(self) -> None:
        """The consumer that came last gets it."""
        for listener in list(self._listeners.values())[-1:]:
            listener()
