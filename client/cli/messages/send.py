"""Send one message, many copies of it, or one for each line."""

import asyncio
import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from firearrow.client.base.errors import ClientError, ConfigError, RocketMQError
from firearrow.client.base.message import Message, SendResult, SendStatus
from firearrow.client.base.options import ProducerOptions
from firearrow.client.base.times import duration_ms, now_ms, time_ms
from firearrow.client.cli.command import FOUND_TROUBLE, OK, Call, Command, count, positive
from firearrow.client.cli.formats import pairs
from firearrow.client.cli.messages.send_delay import set_due_time
from firearrow.client.cli.output import Column, Kind, Output
from firearrow.client.send.producer import Producer

GROUP = "firearrow-cli"
BODY_BYTES_MAX = 4 << 20
IN_FLIGHT = 1024
IN_FLIGHT_BYTES = 32 << 20
CHUNK_BYTES = 1 << 16
FAILURES_SHOWN = 3
SENT_COLUMNS = (
    Column("status", "status"),
    Column("queueId", "queueId", Kind.COUNT),
    Column("offset", "offset", Kind.COUNT),
    Column("dueMs", "due", Kind.TIME),
)
SUMMARY_COLUMNS = (
    Column("sent", "sent", Kind.COUNT),
    Column("failed", "failed", Kind.COUNT),
    Column("unsafe", "stored unsafely", Kind.COUNT),
    Column("bytes", "bytes", Kind.BYTES),
    Column("ms", "took", Kind.AGE),
)


def declared() -> Command:
    """The command with its verbs."""
    command = Command("send", __doc__)
    verb = command.only(send)
    verb.argument("topic")
    verb.argument(
        "body", nargs="?", help="text, @FILE, or - for the standard input (default if that is not a terminal)"
    )
    verb.argument("--tag", help="tag of the message")
    verb.argument("--key", action="append", default=[], help="key to find the message by; can be repeated")
    verb.argument(
        "--property",
        action="append",
        default=[],
        metavar="K=V",
        help="property of the message; can be repeated",
    )
    verb.argument(
        "--shard", metavar="KEY", help="sharding key: messages of one key go to one queue, in order"
    )
    verb.argument("--delay", metavar="TIME", help="deliver after this time, such as 10s")
    verb.argument("--at", metavar="TIME", help="deliver at this time")
    verb.argument("--count", type=count, default=1, metavar="N", help="send the message N times")
    verb.argument("--rate", type=positive, metavar="N", help="send at most N messages per second")
    verb.argument("--each-line", action="store_true", help="send each line of the body as a message")
    return command


def main(arguments: Sequence[str]) -> int:
    return declared().run(arguments)


async def send(call: Call) -> int:
    """Send one message, many copies of it, or one message for each line. The exit code is 1 if one was refused, or
    stored without the safety that the broker promises.

        firearrow send orders '{"id": 42}' --tag new --key 42
        firearrow send orders @orders.txt --each-line --rate 100
    """
    given = call.arguments
    _check(given)
    message = _message(given)
    if given.delay is not None or given.at is not None:
        due_ms = time_ms(given.at) if given.at is not None else now_ms() + duration_ms(given.delay)
        call.output.note(await set_due_time(await call.admin(), message, due_ms, given.delay))
    options = ProducerOptions(message_bytes_max=BODY_BYTES_MAX, send_timeout_s=call.arguments.timeout)
    producer = await call.enter(Producer(GROUP, client=call.options, options=options))
    if given.each_line or given.count > 1:
        return await _send_many(call, producer, message)
    message.body = _body(given.body)
    result = await producer.send(message)
    call.output.record(_sent(message, result), SENT_COLUMNS)
    return OK if is_safe(call.output, {result.status: 1}) else FOUND_TROUBLE


def _check(given: Any) -> None:  # noqa: ANN401 (argparse's values)
    if given.delay is not None and given.at is not None:
        raise ConfigError("give --delay or --at, not both")
    if given.each_line and given.count > 1:
        raise ConfigError("give --each-line or --count, not both")
    if given.body is None and sys.stdin.isatty() and not given.each_line:
        raise ConfigError("give the body: a text, @FILE, or - to type it")


def _message(given: Any) -> Message:  # noqa: ANN401 (argparse's values)
    return Message(
        given.topic,
        b"",
        tags=given.tag,
        keys=given.key,
        properties=pairs(given.property),
        sharding_key=given.shard,
    )


def _body(text: str | bytes | None) -> bytes:
    """Bytes are the body itself, as the console has it. ConfigError: the file cannot be read, or is too long."""
    if isinstance(text, bytes):
        return text
    if text is not None and text != "-" and not text.startswith("@"):
        return os.fsencode(text)
    with _opened(text) as fd:
        body = bytearray()
        while len(body) <= BODY_BYTES_MAX and (chunk := os.read(fd, CHUNK_BYTES)):
            body += chunk
    if len(body) > BODY_BYTES_MAX:
        raise ConfigError(f"the body has over {BODY_BYTES_MAX} bytes, the most that a message may have")
    return bytes(body)


@contextlib.contextmanager
def _opened(text: str | None) -> Iterator[int]:
    """The descriptor of `@FILE` or of the input."""
    if text is None or not text.startswith("@"):
        yield sys.stdin.fileno()
        return
    try:
        fd = os.open(text[1:], os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"cannot read {text[1:]}: {error.strerror}") from None
    try:
        yield fd
    except OSError as error:
        raise ConfigError(f"cannot read {text[1:]}: {error.strerror}") from None
    finally:
        os.close(fd)


def _sent(message: Message, result: SendResult) -> dict[str, Any]:
    row: dict[str, Any] = {
        "status": result.status.name,
        "topic": message.topic,
        "broker": result.queue.broker_name,
        "queueId": result.queue.queue_id,
        "offset": result.queue_offset,
        "msgId": result.message_id,
        "offsetMsgId": result.offset_message_id,
    }
    if message.deliver_at_ms is not None:
        row["dueMs"] = message.deliver_at_ms
    return row | ({"recallHandle": result.recall_handle} if result.recall_handle else {})


UNSAFE = {
    SendStatus.FLUSH_DISK_TIMEOUT: "are not on the disk yet: a power cut can lose them",
    SendStatus.SLAVE_NOT_AVAILABLE: "are at the master only: no slave follows it, see `firearrow replica status`",
    SendStatus.FLUSH_SLAVE_TIMEOUT: "have not reached a slave in time: they may be at the master only",
}
"""What a status means for messages that a broker has stored."""


def is_safe(output: Output, counts: Mapping[SendStatus, int]) -> bool:
    """Whether all messages were stored as safely as the broker promises; if not, notes say what that means."""
    for status, number in counts.items():
        if status in UNSAFE:
            output.note(f"{number:,} stored with {status.name}: they {UNSAFE[status]}")
    return not counts.keys() & UNSAFE.keys()


# ---- many messages ----


@dataclass(slots=True)
class _Progress:
    """`sent`: how many brokers stored, by `statuses`; `failed`: how many were not stored, as far as is known."""

    failed: int = 0
    bytes: int = 0
    statuses: Counter[SendStatus] = field(default_factory=Counter)
    error: RocketMQError | None = None

    @property
    def sent(self) -> int:
        return self.statuses.total()

    @property
    def unsafe(self) -> int:
        return self.sent - self.statuses[SendStatus.SEND_OK]


async def _send_many(call: Call, producer: Producer, message: Message) -> int:
    """Send many, pipelined: the next ones do not wait for the answers of the ones before. Prints a summary."""
    given, progress, began_s = call.arguments, _Progress(), time.monotonic()
    bodies = _lines(given.body) if given.each_line else _copies(given)
    pace = Pace(given.rate)
    sending = _Sending(producer, progress, call)
    try:
        async for body in bodies:
            await pace.wait()
            await sending.submit(replace(message, body=body, properties=dict(message.properties)))
            if progress.failed >= IN_FLIGHT and not progress.sent:
                break
    finally:
        await sending.finished()
    if progress.error is not None and not progress.sent:
        raise progress.error
    seconds = time.monotonic() - began_s
    row = {"topic": given.topic, "sent": progress.sent, "failed": progress.failed, "unsafe": progress.unsafe}
    if call.output.json:
        row["statuses"] = {
            status.name: number
            for status, number in sorted(progress.statuses.items(), key=lambda pair: pair[0].value)
        }
    row["bytes"] = progress.bytes
    call.output.record(
        row | {"ms": round(seconds * 1000), "perSecond": round(progress.sent / max(seconds, 0.001))},
        SUMMARY_COLUMNS,
    )
    return OK if is_safe(call.output, progress.statuses) and not progress.failed else FOUND_TROUBLE


class _Sending:
    """Messages in flight, bounded by number and bytes."""

    def __init__(self, producer: Producer, progress: _Progress, call: Call) -> None:
        self._producer = producer
        self._progress = progress
        self._call = call
        self._count = self._bytes = 0
        self._freed = asyncio.Event()

    async def submit(self, message: Message) -> None:
        size = len(message.body)
        while self._count >= IN_FLIGHT or (self._count and self._bytes + size > IN_FLIGHT_BYTES):
            self._freed.clear()
            await self._freed.wait()
        self._count += 1
        self._bytes += size
        try:
            future = self._producer.submit(message)
        except ClientError as refused:
            self._done(size, refused)
            return
        future.add_done_callback(lambda done: self._done(size, done.exception() or done.result()))

    async def finished(self) -> None:
        while self._count:
            self._freed.clear()
            await self._freed.wait()

    def _done(self, size: int, result: SendResult | BaseException) -> None:
        progress = self._progress
        self._count -= 1
        self._bytes -= size
        self._freed.set()
        if isinstance(result, SendResult):
            progress.statuses[result.status] += 1
            progress.bytes += size
            return
        progress.failed += 1
        if isinstance(result, RocketMQError) and progress.error is None:
            progress.error = result
        if progress.failed <= FAILURES_SHOWN:
            self._call.output.note(f"not sent: {result}")


class Pace:
    """At most this number of messages, and of bytes, a second; None: as fast as possible. What was not used for a
    second may be used at once."""

    def __init__(self, rate: float | None, bytes_rate: float | None = None) -> None:
        self._each_s = 1 / rate if rate else 0.0
        self._byte_s = 1 / bytes_rate if bytes_rate else 0.0
        self._next_s = self._next_byte_s = time.monotonic()

    async def wait(self, size: int = 0) -> None:
        """Wait until a message of `size` bytes may follow."""
        if not self._each_s and not self._byte_s:
            return
        now_s = time.monotonic()
        next_s = max(self._next_s, self._next_byte_s)
        if next_s > now_s:
            await asyncio.sleep(next_s - now_s)
        self._next_s = max(self._next_s, now_s - 1) + self._each_s
        self._next_byte_s = max(self._next_byte_s, now_s - 1) + self._byte_s * size


async def _copies(given: Any) -> AsyncGenerator[bytes, None]:  # noqa: ANN401 (argparse's values)
    body = _body(given.body)
    for _ in range(given.count):
        yield body


async def _lines(text: str | None) -> AsyncGenerator[bytes, None]:
    """The lines of a text, a file or the input, without their ends; empty lines are skipped.

    ConfigError: a line is too long for a message.
    """
    if text is not None and text != "-" and not text.startswith("@"):
        for line in os.fsencode(text).splitlines():
            if line:
                yield line
        return
    with _opened(text) as fd:
        rest = b""
        async for chunk in _chunks(fd):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line := line.removesuffix(b"\r"):
                    yield line
            if len(rest) > BODY_BYTES_MAX:
                raise ConfigError(
                    f"a line has over {BODY_BYTES_MAX} bytes, the most that a message may have; "
                    "the lines before it were sent"
                )
        if rest:
            yield rest


async def _chunks(fd: int) -> AsyncGenerator[bytes, None]:
    """Waits in the loop where the kernel lets it (pipes, terminals), so that Ctrl-C ends it; files never wait."""
    while True:
        try:
            await _readable(fd)
        except PermissionError:  # a file
            await asyncio.sleep(0)
        chunk = os.read(fd, CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


async def _readable(fd: int) -> None:
    """Until a read would not block. PermissionError: the kernel cannot wait for this."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(fd, ready)
    try:
        await readable
    finally:
        loop.remove_reader(fd)
