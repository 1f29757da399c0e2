"""TopicReader: reads the queues of topics by pulls, and changes no group's offset: what is stored, then what comes.

It pulls as TOOLS_CONSUMER, the group that every broker has for operators' tools, and never commits. Loop thread.
"""

import asyncio
import heapq
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TypeVar

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.store.log.record import RecordError
from firearrow._native.wire.command import FieldError
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import ClientError, ConfigError
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.times import time_ms
from firearrow.client.pull.pull_request import PullClient, PullQuery, PullResult, PullStatus
from firearrow.client.rebalance.subscription import Subscription

READER_GROUP = "TOOLS_CONSUMER"
BATCH, BATCH_BYTES = 32, 256 << 10
"""What brokers return at most for one pull, by default."""
PULL_TIMEOUT_S = 10.0
HELD_S, HELD_TIMEOUT_S = 15.0, 25.0
FAILED_WAIT_S = 1.0
NEW_QUEUES_EACH_S = 5.0
ARRIVED_MAX = 256
"""Messages that wait for output; then no more are pulled."""
REQUESTS_MAX = 64
LAST_MAX = 1_000_000

Kept = TypeVar("Kept")


class From(Enum):
    """Where reading starts in each queue."""

    START = auto()
    END = auto()
    LAST = auto()
    """`value` messages before the end of all queues together"""
    OFFSET = auto()
    TIME = auto()
    """ms since 1970"""


@dataclass(frozen=True, slots=True)
class Start:
    kind: From
    value: int = 0

    @staticmethod
    def parse(text: str) -> "Start":
        """`start`, `end`, `-10` (the last ten), an offset below 1,000,000,000, or a time. ConfigError."""
        if text in ("start", "end"):
            return Start(From[text.upper()])
        if re.fullmatch(r"-\d{1,9}", text, re.ASCII):
            return Start(From.LAST, min(int(text[1:]), LAST_MAX))
        if re.fullmatch(r"\d{1,9}", text, re.ASCII):
            return Start(From.OFFSET, int(text))
        try:
            return Start(From.TIME, time_ms(text))
        except ConfigError:
            raise ConfigError(
                f"{text!r} is no place to start: write start, end, -10, an offset, -15m or a time"
            ) from None


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets from `start` to before `end`."""

    start: int
    end: int


class TopicReader:
    """Reads one topic, all messages or those that brokers filter by `tags` or `sql`. Names are the user's.

    `failed` gets a sentence when a queue cannot be read for now, and nothing more until it was read again.
    """

    def __init__(
        self,
        admin: Admin,
        topic: str,
        *,
        tags: str | None = None,
        sql: str | None = None,
        failed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.topic = topic
        self._admin = admin
        self._wrapped = admin.namespace.wrap(topic)
        self._subscription = Subscription.of(self._wrapped, tags, sql)
        self._client = PullClient(admin.calls.instance, READER_GROUP)
        self._failed = failed
        self._requests = asyncio.Semaphore(REQUESTS_MAX)

    async def spans(self, start: Start) -> dict[MessageQueue, Span]:
        """What each queue holds now, from `start`. NoRoute, ClientError: a broker does not answer."""
        queues = await self._admin.queues(self.topic)
        spans = await asyncio.gather(*(self._span(queue, start) for queue in queues))
        return dict(zip(queues, spans, strict=True))

    async def unreadable(self) -> dict[MessageQueue, Span]:
        """Queues that hold messages and that no client may read, such as those beyond the read queues. NoRoute."""
        readable = set(await self._admin.queues(self.topic))
        route = self._admin.calls.instance.routes.known(self._wrapped)
        if route is None or route.static is not None:
            return {}
        others = [
            queue
            for data in route.queues
            for number in range(max(data.read_queues, data.write_queues))
            if (queue := MessageQueue(self.topic, data.broker_name, number)) not in readable
        ]
        spans = await asyncio.gather(*(self._span(queue, Start(From.START)) for queue in others))
        return {queue: span for queue, span in zip(others, spans, strict=True) if span.start < span.end}

    async def until(self, spans: Mapping[MessageQueue, Span], end_ms: int) -> dict[MessageQueue, Span]:
        """The same without most of what was stored after `end_ms`: the messages' own times decide."""
        return {queue: await self._cut(queue, span, end_ms) for queue, span in spans.items()}

    async def stored(self, spans: Mapping[MessageQueue, Span]) -> AsyncGenerator[ReceivedMessage, None]:
        """The messages of these spans, in the order of their store times; those of a queue in its order."""
        streams = [_Stream(self._pull, queue, span) for queue, span in spans.items() if span.start < span.end]
        try:
            heads = await asyncio.gather(*(stream.head() for stream in streams))
            heap = [(head.store_timestamp, i) for i, head in enumerate(heads) if head is not None]
            heapq.heapify(heap)
            while heap:
                stream = streams[heap[0][1]]
                yield self._as_user(stream.take())
                head = await stream.head()
                if head is None:
                    heapq.heappop(heap)
                else:
                    heapq.heapreplace(heap, (head.store_timestamp, heap[0][1]))
        finally:
            for stream in streams:
                stream.close()

    async def coming(self, spans: Mapping[MessageQueue, Span]) -> AsyncGenerator[ReceivedMessage, None]:
        """The messages after these spans as they come, also those of new queues and brokers; endless."""
        arrived: asyncio.Queue[ReceivedMessage] = asyncio.Queue(ARRIVED_MAX)
        reading = {
            queue: asyncio.create_task(self._follow(queue, span.end, arrived))
            for queue, span in spans.items()
        }
        finding = asyncio.create_task(self._find_queues(reading, arrived))
        try:
            while True:
                yield self._as_user(await arrived.get())
        finally:
            for task in (finding, *reading.values()):
                task.cancel()
            await asyncio.gather(finding, *reading.values(), return_exceptions=True)

    # ---- internal ----

    async def _span(self, queue: MessageQueue, start: Start) -> Span:
        async with self._requests:
            first, end = await self._admin.min_offset(queue), await self._admin.max_offset(queue)
            match start.kind:
                case From.START:
                    begin = first
                case From.END:
                    begin = end
                case From.LAST:
                    begin = end - start.value
                case From.OFFSET:
                    begin = start.value
                case From.TIME:
                    begin = await self._admin.offset_at(queue, start.value) if first < end else end
        return Span(min(max(begin, first), end), end)

    async def _cut(self, queue: MessageQueue, span: Span, end_ms: int) -> Span:
        if span.start >= span.end:
            return span
        after = await self._admin.offset_at(queue, end_ms + 1)
        return replace(span, end=max(min(after + 1, span.end), span.start))

    async def _pull(self, queue: MessageQueue, offset: int, batch: int, held: bool) -> PullResult:
        query = PullQuery(
            queue=replace(queue, topic=self._wrapped),
            subscription=self._subscription,
            offset=offset,
            batch=batch,
            batch_bytes=BATCH_BYTES,
            timeout_s=HELD_TIMEOUT_S if held else PULL_TIMEOUT_S,
            suspend_s=HELD_S if held else None,
            post_expression=True,
        )
        try:
            return await self._client.pull(query)
        except (FieldError, RecordError) as error:
            raise ClientError(f"{queue.broker_name}: the answer cannot be read: {error}") from error

    async def _follow(
        self, queue: MessageQueue, offset: int, arrived: asyncio.Queue[ReceivedMessage]
    ) -> None:
        fine = True
        while True:
            try:
                result = await self._pull(queue, offset, BATCH, True)
            except ClientError as error:
                if fine:
                    self._failed(f"{queue.topic} {queue.broker_name}/{queue.queue_id}: {error}; trying again")
                fine = False
                await asyncio.sleep(FAILED_WAIT_S)
                continue
            fine = True
            for message in result.messages:
                await arrived.put(message)
            offset = result.next_offset

    async def _find_queues(
        self,
        reading: dict[MessageQueue, asyncio.Task[None]],
        arrived: asyncio.Queue[ReceivedMessage],
    ) -> None:
        """Read new queues from their first message. A queue that has no route for a time keeps its place."""
        while True:
            await asyncio.sleep(NEW_QUEUES_EACH_S)
            try:
                now = set(await self._admin.queues(self.topic))
                new = {queue: await self._admin.min_offset(queue) for queue in now - reading.keys()}
            except ClientError as error:
                self._failed(f"{self.topic}: the queues cannot be looked up: {error}; trying again")
                continue
            for queue, offset in new.items():
                reading[queue] = asyncio.create_task(self._follow(queue, offset, arrived))

    def _as_user(self, message: ReceivedMessage) -> ReceivedMessage:
        message.topic = self._admin.namespace.unwrap(message.topic)
        return message


class _Stream:
    """One queue's messages of a span; the next pull runs while the last one's messages are used."""

    def __init__(
        self,
        pull: Callable[[MessageQueue, int, int, bool], Coroutine[None, None, PullResult]],
        queue: MessageQueue,
        span: Span,
    ) -> None:
        self._pull = pull
        self._queue = queue
        self._span = span
        self._buffer: list[ReceivedMessage] = []
        self._next: asyncio.Task[PullResult] | None = None
        self._asked_at = span.start
        self._request(span.start)

    async def head(self) -> ReceivedMessage | None:
        """The next message, which `take` takes; None: the end of the span. ClientError."""
        while not self._buffer and self._next is not None:
            result, asked_at = await self._next, self._asked_at
            if result.status is PullStatus.FOUND:
                fitting = [m for m in result.messages if m.queue_offset < self._span.end]
                self._buffer = fitting[::-1]
            elif result.next_offset <= asked_at:  # such as the end of a queue that was trimmed meanwhile
                self._next = None
                break
            self._request(result.next_offset)
        return self._buffer[-1] if self._buffer else None

    def take(self) -> ReceivedMessage:
        return self._buffer.pop()

    def close(self) -> None:
        if self._next is not None:
            self._next.cancel()

    def _request(self, offset: int) -> None:
        self._asked_at = offset
        self._next = None
        if offset < self._span.end:
            batch = min(BATCH, self._span.end - offset)
            self._next = asyncio.create_task(self._pull(self._queue, offset, batch, False))
            self._next.add_done_callback(_seen)


async def last_of(messages: AsyncIterator[Kept], count: int) -> Iterable[Kept]:
    """The last `count` messages, or what is kept of them."""
    kept: deque[Kept] = deque(maxlen=count)
    async for message in messages:
        kept.append(message)
    return kept


def _seen(pull: asyncio.Task[PullResult]) -> None:
    """The failure of a pull whose result is not needed any more is no news."""
    if not pull.cancelled():
        pull.exception()
