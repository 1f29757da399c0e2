"""Trace: what became of messages, gathered and sent to the trace topic behind the back of who produces and consumes.

Never holds up a sender: what finds no room is counted and dropped. `append` from any thread, all else in the loop.
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

from firearrow.client.base.errors import RocketMQError
from firearrow.client.base.message import Message
from firearrow.client.base.names import GROUP_CHARS_MAX
from firearrow.client.base.options import ClientOptions, ProducerOptions
from firearrow.client.trace.records import TraceRecord, searchable

log = logging.getLogger("firearrow.client")

WAITING_MAX = 2048
"""Contexts that wait to be sent."""
BODY_BYTES_MAX = 128000
KEYS_BYTES_MAX = 24000
"""Of one trace message, that its properties stay below what the wire can carry."""
FLUSH_S = 5.0
CLOSE_S = 5.0
SENDING_MAX = 4
SENDER_OPTIONS = ProducerOptions(send_timeout_s=5, message_bytes_max=BODY_BYTES_MAX)
_numbers = itertools.count(1)


class TraceSide(StrEnum):
    PRODUCE = "PRODUCE"
    CONSUME = "CONSUME"


class TraceContext(NamedTuple):
    """Records that belong together. `topic` is that of the message: records of one topic share a trace message."""

    topic: str
    records: Sequence[TraceRecord]


class TraceSender(Protocol):
    """The producer that takes traces away; it is never traced itself."""

    async def start(self) -> object: ...
    async def send(self, message: Message, /) -> object: ...
    async def close(self) -> None: ...


def sender_group(group: str, side: TraceSide) -> str:
    """The group of the producer that sends the traces of `group`, cut where brokers would refuse it."""
    number = str(next(_numbers))
    prefix = "_INNER_TRACE_PRODUCER-"
    room = GROUP_CHARS_MAX - len(prefix) - len(side) - len(number) - 2
    return f"{prefix}{group[:room]}-{side}-{number}"


def sender_client(client: ClientOptions) -> ClientOptions:
    """Traces have sockets of their own, shared by all that trace to the same name servers."""
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
    """For a group of producers or consumers; `producer` is the class that sends (it imports us)."""
    sender = producer(sender_group(group, side), options=SENDER_OPTIONS, client=sender_client(client))
    return TraceDispatcher(sender, topic, batch)


class TraceDispatcher:
    """`batch` contexts are sent together, fewer after `flush_s`. Once started it is to be closed."""

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
        """A sender that cannot start is logged: it costs traces, not messages."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._sender.start()
        except RocketMQError as error:
            log.warning("nothing is traced to %s: %s", self.topic, error)
        self._worker = self._loop.create_task(self._work())

    def append(self, context: TraceContext) -> bool:
        """Take it if there is room; false: it is dropped."""
        if len(self._waiting) >= WAITING_MAX or self._closed:
            self.dropped += 1
            if self.dropped % WAITING_MAX == 1:
                log.warning("traces for %s do not leave fast enough: %d dropped", self.topic, self.dropped)
            return False
        self._waiting.append(context)
        if len(self._waiting) >= self._batch and self._loop is not None and not self._due.is_set():
            self._loop.call_soon_threadsafe(self._due.set)
        return True

    def concerns(self, topic: str) -> bool:
        """Whether messages of this topic are traced: those of the trace topic itself are not."""
        return not topic.startswith(self.topic)

    async def close(self) -> None:
        """Send what waits, for at most CLOSE_S, and close the sender. Nothing to do unless started."""
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
            log.warning("traces for %s are lost: not sent within %g s", self.topic, CLOSE_S)
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
            for package in trace_messages(contexts):
                await self._sending.acquire()
                task = asyncio.get_running_loop().create_task(self._send(package))
                self._tasks.add(task)
                task.add_done_callback(self._sent)

    async def _send(self, package: "TraceMessage") -> None:
        try:
            await self._sender.send(Message(self.topic, package.body, keys=package.keys))
        except RocketMQError as error:
            log.warning("a trace of %d bytes for %s is lost: %s", len(package.body), self.topic, error)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._sending.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a trace is lost", exc_info=error)


@dataclass(frozen=True, slots=True)
class TraceMessage:
    """One trace message."""

    body: bytes
    keys: tuple[str, ...]


def trace_messages(contexts: Iterable[TraceContext]) -> Iterator[TraceMessage]:
    """The contexts of each topic together, cut between records before a limit. A record over it alone is dropped."""
    by_topic: dict[str, list[TraceRecord]] = {}
    for context in contexts:
        by_topic.setdefault(context.topic, []).extend(context.records)
    for records in by_topic.values():
        yield from _split_records(records)


def _split_records(records: Iterable[TraceRecord]) -> Iterator[TraceMessage]:
    pieces: list[bytes] = []
    keys: set[str] = set()
    body_bytes = keys_bytes = 0
    for record in records:
        piece = record.encode().encode("utf-8", "replace")
        if len(piece) > BODY_BYTES_MAX:
            log.warning("a trace record of %d bytes is dropped, at most %d fit", len(piece), BODY_BYTES_MAX)
            continue
        found, found_bytes = _keys(record)
        if pieces and (body_bytes + len(piece) > BODY_BYTES_MAX or keys_bytes + found_bytes > KEYS_BYTES_MAX):
            yield TraceMessage(b"".join(pieces), tuple(sorted(keys)))
            pieces, keys, body_bytes, keys_bytes = [], set(), 0, 0
        pieces.append(piece)
        keys.update(found)
        body_bytes += len(piece)
        keys_bytes += found_bytes
    if pieces:
        yield TraceMessage(b"".join(pieces), tuple(sorted(keys)))


def _keys(record: TraceRecord) -> tuple[list[str], int]:
    """What fits of it, and how many bytes that is."""
    found: list[str] = []
    total = 0
    for key in searchable(record):
        total += len(key.encode("utf-8", "replace")) + 1
        if total > KEYS_BYTES_MAX:
            break
        found.append(key)
    return found, min(total, KEYS_BYTES_MAX)
