"""Measure how fast messages are sent, received, and sent and received.

The load is one Python process: what it cannot do says nothing about the broker.
"""

import asyncio
import os
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from firearrow.client.base.errors import ClientError, ConfigError
from firearrow.client.base.message import Message, SendResult, SendStatus
from firearrow.client.base.options import ProducerOptions, PullConsumerOptions
from firearrow.client.cli.command import FOUND_TROUBLE, Call, Command, Verb, count, positive
from firearrow.client.cli.output import Column, Kind
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.send.producer import Producer

SECONDS, COUNT, RECEIVED_COUNT = 10.0, 10_000_000, 100_000
BYTES_MAX, IN_FLIGHT_MAX = 4 << 20, 8192
FAILURES_MAX = 10
PULL_BATCH = 32
PERCENTILES = {"p50Ms": 0.5, "p90Ms": 0.9, "p99Ms": 0.99, "p999Ms": 0.999}
NUMBER_BYTES = 8
COLUMNS = (
    Column("messages", "messages", Kind.COUNT),
    Column("failed", "failed", Kind.COUNT),
    Column("unsafe", "stored unsafely", Kind.COUNT),
    Column("seconds", "seconds"),
    Column("messagesPerSecond", "messages per second", Kind.COUNT),
    Column("bytesPerSecond", "bytes per second", Kind.BYTES),
    Column("p50Ms", "median ms"),
    Column("p90Ms", "90 % within ms"),
    Column("p99Ms", "99 % within ms"),
    Column("p999Ms", "99.9 % within ms"),
    Column("maxMs", "longest ms"),
)


def main(arguments: Sequence[str]) -> int:
    command = Command("bench", __doc__)
    verb = command.verb("send", send)
    _load(verb)
    verb = command.verb("receive", receive)
    _load(verb)
    verb = command.verb("roundtrip", roundtrip)
    _load(verb)
    return command.run(arguments)


def _load(verb: Verb) -> None:
    verb.argument("--count", type=count, metavar="N", help="maximum number of messages")
    verb.argument(
        "--seconds", type=positive, metavar="S", help=f"maximum duration in seconds (default {SECONDS:.0f})"
    )
    verb.argument("--size", type=count, default=128, metavar="BYTES", help="size of a body (default 128)")
    verb.argument("--in-flight", type=count, default=64, metavar="N", help="messages in flight (default 64)")
    verb.argument("--queues", type=count, default=8, metavar="N", help="queues of the topic (default 8)")


class Load:
    """Messages from workers, until the count or the time is reached, and how long each took (seconds)."""

    def __init__(self, call: Call, count_max: int) -> None:
        given = call.arguments
        if given.in_flight > IN_FLIGHT_MAX or given.size > BYTES_MAX:
            raise ConfigError(f"at most {IN_FLIGHT_MAX} messages in flight, and {BYTES_MAX} bytes of size")
        self.times_s = array("d")
        self.failed = self.unsafe = 0
        """`unsafe`: stored, but not as safely as the broker promises."""
        self.error: ClientError | None = None
        self._workers = given.in_flight
        self._left = count_max
        self._seconds = given.seconds or SECONDS

    async def run(self, one: Callable[[], Awaitable[object]]) -> float:
        """Call `one` for each message; the seconds that all of them took."""
        started = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._workers):
                tasks.create_task(self._work(one, started + self._seconds))
        return time.perf_counter() - started

    async def _work(self, one: Callable[[], Awaitable[object]], until: float) -> None:
        while self._left > 0 and self.failed < FAILURES_MAX:
            self._left -= 1
            began = time.perf_counter()
            if began >= until:
                return
            try:
                result = await one()
            except ClientError as error:
                self.failed, self.error = self.failed + 1, error
                continue
            self.times_s.append(time.perf_counter() - began)
            self.unsafe += isinstance(result, SendResult) and result.status is not SendStatus.SEND_OK


@asynccontextmanager
async def _temporary_topic(call: Call) -> AsyncIterator[str]:
    """A new topic; it and the group of its name are deleted at the end, also after Ctrl-C."""
    admin = await call.admin()
    name = f"firearrow-bench-{os.urandom(6).hex()}"
    try:
        await admin.create_topic(name, call.arguments.queues)
        yield name
    finally:
        await admin.delete_group(name)
        await admin.delete_topic(name)


async def _producer(call: Call, topic: str) -> Producer:
    options = ProducerOptions(compress_over_bytes=BYTES_MAX + 1)
    return await call.enter(Producer(topic, client=call.options, options=options))


async def send(call: Call) -> int:
    """Measure how fast messages are stored. They go to a new topic, which is deleted at the end.

    firearrow bench send --seconds 5 --size 1024
    firearrow bench send --in-flight 1
    """
    load = Load(call, call.arguments.count or COUNT)
    async with _temporary_topic(call) as topic:
        body = os.urandom(call.arguments.size)
        producer = await _producer(call, topic)
        seconds = await load.run(lambda: producer.send(Message(topic, body)))
        await producer.close()
    return _report(call, len(load.times_s), seconds, load.times_s, load)


async def receive(call: Call) -> int:
    """Measure how fast stored messages are received; times are those of one batch. The messages are stored first, in
    a new topic, which is deleted at the end.

        firearrow bench receive
        firearrow bench receive --count 20000 --size 1024
    """
    # one member reads all queues from their first messages
    given = call.arguments
    load = Load(call, given.count or RECEIVED_COUNT)
    times_s = array("d")
    received = 0
    async with _temporary_topic(call) as topic:
        body = os.urandom(given.size)
        producer = await _producer(call, topic)
        await load.run(lambda: producer.send(Message(topic, body)))
        await producer.close()
        consumer = await _consumer(call, topic)
        started = now = time.perf_counter()
        until = started + (given.seconds or SECONDS)
        try:
            while received < len(load.times_s) and now < until:
                messages = await consumer.poll(until - now)
                began, now = now, time.perf_counter()
                received += len(messages)
                times_s.append(now - began)
        finally:
            await consumer.close(commit=False)  # before its topic is deleted
    return _report(call, received, now - started, times_s, load)


async def _consumer(call: Call, topic: str) -> PullConsumer:
    """It reads all queues from their first message."""
    admin = await call.admin()
    consumer = PullConsumer(
        topic, client=call.options, options=PullConsumerOptions(auto_commit=False, pull_batch=PULL_BATCH)
    )
    queues = await admin.queues(topic)
    consumer.assign(queues)
    await call.enter(consumer)
    for queue in queues:
        await consumer.seek(queue, 0)
    return consumer


async def roundtrip(call: Call) -> int:
    """Measure how long messages take from the producer to a consumer. They go through a new topic, which is deleted
    at the end.

        firearrow bench roundtrip --in-flight 1
        firearrow bench roundtrip --seconds 5
    """
    given = call.arguments
    load = Load(call, given.count or COUNT)
    waiting: dict[int, asyncio.Future[None]] = {}
    body = os.urandom(max(given.size - NUMBER_BYTES, 0))
    numbers = iter(range(1 << 62))
    async with _temporary_topic(call) as topic:
        consumer, producer = await _consumer(call, topic), await _producer(call, topic)

        async def collect() -> None:
            while True:
                for message in await consumer.poll():
                    came = waiting.get(int.from_bytes(message.body[:NUMBER_BYTES]))
                    if came is not None and not came.done():
                        came.set_result(None)

        async def one() -> SendResult:
            number = next(numbers)
            came = waiting[number] = asyncio.get_running_loop().create_future()
            try:
                result = await producer.send(Message(topic, number.to_bytes(NUMBER_BYTES) + body))
                async with asyncio.timeout(given.timeout):
                    await came
                return result
            except TimeoutError:
                raise ClientError(f"a message did not come within {given.timeout:g} s") from None
            finally:
                del waiting[number]

        collecting = asyncio.create_task(collect())
        try:
            seconds = await load.run(one)
        finally:
            collecting.cancel()
            await asyncio.gather(collecting, return_exceptions=True)
            await consumer.close(commit=False)  # before its topic is deleted
            await producer.close()
    return _report(call, len(load.times_s), seconds, load.times_s, load)


def _report(call: Call, messages: int, seconds: float, times_s: "array[float]", load: Load) -> int:
    ordered = sorted(times_s)
    values: dict[str, Any] = {
        "messages": messages,
        "failed": load.failed,
        "unsafe": load.unsafe,
        "seconds": round(seconds, 3),
        "messagesPerSecond": round(messages / seconds) if seconds else 0,
        "bytesPerSecond": round(messages * call.arguments.size / seconds) if seconds else 0,
    }
    for name, share in PERCENTILES.items():
        values[name] = round(ordered[int(share * (len(ordered) - 1))] * 1000, 3) if ordered else None
    values["maxMs"] = round(ordered[-1] * 1000, 3) if ordered else None
    call.output.record(values, COLUMNS)
    if load.error is not None:
        call.output.note(f"the last of {load.failed} failures: {load.error}")
    if load.unsafe:
        call.output.note(
            f"{load.unsafe:,} were stored, but not as safely as the broker promises: not SEND_OK"
        )
    return FOUND_TROUBLE if load.failed or load.unsafe else 0
