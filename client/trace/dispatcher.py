"""TraceDispatcher: collects trace records and sends them to the trace topic in the background.

Never blocks a producer or consumer: records are counted and dropped when the buffer is full. Call `append`
from any thread, everything else in the loop.
"""

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, Protocol

from firearrow._native.protocol.name_rules import GROUP_CHARS_MAX
from firearrow.client.base.errors import RocketMQError
from firearrow.client.base.message import Message
from firearrow.client.base.options import ClientOptions, ProducerOptions
from firearrow.client.trace.records import TraceRecord, searchable

log = logging.getLogger("firearrow.client")

WAITING_MAX = 2048
"""At most this many contexts are buffered."""
BODY_BYTES_MAX = 128000
KEYS_BYTES_MAX = 24000
"""The limit for one trace message, so that its properties stay below the limit of the protocol."""
FLUSH_S = 5.0
CLOSE_S = 5.0
SENDING_MAX = 4
SENDER_OPTIONS = ProducerOptions(send_timeout_s=5, message_bytes_max=BODY_BYTES_MAX)
_numbers = itertools.count(1)


class TraceSide(StrEnum):
    PRODUCE = "PRODUCE"
    CONSUME = "CONSUME"


class TraceContext(NamedTuple):
    """Records of one event.

    `topic` is the topic of the traced message: records of a topic share trace messages.
    """

    topic: str
    records: Sequence[TraceRecord]


class TraceSender(Protocol):
    """The producer that sends traces; it is never traced itself."""

    async def start(self) -> object: ...
    async def send(self, message: Message, /) -> object: ...
    async def close(self) -> None: ...


def sender_group(group: str, side: TraceSide) -> str:
    """The group of the producer that sends the traces of `group`, truncated to the maximum length."""
    number = str(next(_numbers))
    prefix = "_INNER_TRACE_PRODUCER-"
    chars_left = GROUP_CHARS_MAX - len(prefix) - len(side) - len(number) - 2
    return f"{prefix}{group[:chars_left]}-{side}-{number}"


def sender_client(client: ClientOptions) -> ClientOptions:
    """The options of a separate client instance, which all traces for the same name servers share."""
    name = f"PID_CLIENT_INNER_TRACE_PRODUCER_{client.name_server}"
    return replace(client, instance_name=name, namespace=None, vip_channel=False)


def trace_dispatcher(
    producer: Callable[..., TraceSender],
    group: str,
    side: TraceSide,
    client: ClientOptions,
    topic: str,
    batch: int,
) -> "TraceDispatcher":
    """The dispatcher for a group.

    `producer` is the class that sends; it is passed in, since it imports this module.
    """
    sender = producer(sender_group(group, side), options=SENDER_OPTIONS, client=sender_client(client))
    return TraceDispatcher(sender, topic, batch)


class TraceDispatcher:
    """Sends `batch` contexts together, or fewer after `flush_s`. Must be closed after a start."""

    def __init__(self, sender: TraceSender, topic: str, batch: int, flush_s: float = FLUSH_S) -> None:
        self.topic = topic
        self.dropped = 0
        self._sender = sender
        self._batch = batch
        self._flush_s = flush_s
        self._waiting: deque[TraceContext] = deque()
        self._due = asyncio.Event()
        self._sending = asyncio.Semaphore(SENDING_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self) -> None:
        """If the sender cannot start, log it: traces are lost, messages are not affected."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._sender.start()
        except RocketMQError as error:
            log.info("no traces are sent to %s, the trace producer did not start: %s", self.topic, error)
        self._worker = self._loop.create_task(self._work())

    def append(self, context: TraceContext) -> bool:
        """Buffer the records; false: the buffer is full or closed, they are dropped."""
        if len(self._waiting) >= WAITING_MAX or self._closed:
            self.dropped += 1
            if self.dropped % WAITING_MAX == 1:
                log.info(
                    "traces for %s are dropped, they are not sent fast enough: %d so far",
                    self.topic,
                    self.dropped,
                )
            return False
        self._waiting.append(context)
        if len(self._waiting) >= self._batch and self._loop is not None and not self._due.is_set():
            self._loop.call_soon_threadsafe(self._due.set)
        return True

    def concerns(self, topic: str) -> bool:
        """Whether messages of this topic are traced; those of the trace topic itself are not."""
        return not topic.startswith(self.topic)

    async def close(self) -> None:
        """Send buffered traces for at most CLOSE_S and close the sender. No effect unless started."""
        if self._worker is None:
            return
        self._closed = True
        self._due.set()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._worker
                if self._tasks:
                    await asyncio.wait(self._tasks)
        except TimeoutError:
            log.info("traces for %s are lost, they were not sent within %g s", self.topic, CLOSE_S)
        finally:
            for task in self._tasks:
                task.cancel()
            await self._sender.close()

    async def _work(self) -> None:
        while self._waiting or not self._closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._flush_s):
                    await self._due.wait()
            self._due.clear()
            contexts = [self._waiting.popleft() for _ in range(len(self._waiting))]
            for message in trace_messages(contexts):
                await self._sending.acquire()
                task = asyncio.get_running_loop().create_task(self._send(message))
                self._tasks.add(task)
                task.add_done_callback(self._sent)

    async def _send(self, message: "TraceMessage") -> None:
        try:
            await self._sender.send(Message(self.topic, message.body, keys=message.keys))
        except RocketMQError as error:
            log.info("a trace of %d bytes for %s is lost: %s", len(message.body), self.topic, error)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._sending.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a trace for %s is lost", self.topic, exc_info=error)


@dataclass(frozen=True, slots=True)
class TraceMessage:
    body: bytes
    keys: tuple[str, ...]


def trace_messages(contexts: Iterable[TraceContext]) -> Iterator[TraceMessage]:
    """One or more messages for each topic, split between records at the size limits.

    Larger records are dropped.
    """
    by_topic: dict[str, list[TraceRecord]] = {}
    for context in contexts:
        by_topic.setdefault(context.topic, []).extend(context.records)
    for records in by_topic.values():
        yield from _split_records(records)


def _split_records(records: Iterable[TraceRecord]) -> Iterator[TraceMessage]:
    encoded: list[bytes] = []
    keys: set[str] = set()
    body_bytes = keys_bytes = 0
    for record in records:
        line = record.encode().encode("utf-8", "replace")
        if len(line) > BODY_BYTES_MAX:
            log.info("a trace record of %d bytes is dropped, the limit is %d", len(line), BODY_BYTES_MAX)
            continue
        found, found_bytes = _keys(record)
        if encoded and (body_bytes + len(line) > BODY_BYTES_MAX or keys_bytes + found_bytes > KEYS_BYTES_MAX):
            yield TraceMessage(b"".join(encoded), tuple(sorted(keys)))
            encoded, keys, body_bytes, keys_bytes = [], set(), 0, 0
        encoded.append(line)
        keys.update(found)
        body_bytes += len(line)
        keys_bytes += found_bytes
    if encoded:
        yield TraceMessage(b"".join(encoded), tuple(sorted(keys)))


def _keys(record: TraceRecord) -> tuple[list[str], int]:
    """The record's keys that fit into a message, and their size in bytes."""
    found: list[str] = []
    total = 0
    for key in searchable(record):
        total += len(key.encode("utf-8", "replace")) + 1
        if total > KEYS_BYTES_MAX:
            break
        found.append(key)
    return found, min(total, KEYS_BYTES_MAX)
