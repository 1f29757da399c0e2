"""FireArrow's client under load: `python -m bench.client_firearrow WORKLOAD NAME_SERVER TOPIC MESSAGES`.

Prints one JSON object: `rate` (messages per second, or round trips for `ping`) and `cpu_us` (CPU of this
process per message).
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import cast

import uvloop

from firearrow._native.wire.send_request import SendFrames
from firearrow.client import (
    ConsumeFromWhere,
    Message,
    Producer,
    ProducerOptions,
    PushConsumer,
    PushConsumerOptions,
    ReceivedMessage,
    SendResult,
    SendStatus,
)

SMALL, LARGE = b"x" * 128, b"x" * 1024
BATCH = 200
DEPTH = 2048
LIMIT_S = 120


async def send(name_server: str, topic: str, messages: int, *, auto_batch: bool = False) -> None:
    """Messages of 128 bytes, one request each, `DEPTH` in flight."""
    loop = asyncio.get_running_loop()
    options = ProducerOptions(auto_batch=auto_batch)
    async with Producer("bench-client", name_server=name_server, options=options) as producer:
        await producer.send(Message(topic, SMALL))
        finished = loop.create_future()
        left = unanswered = messages

        def answered(future: asyncio.Future[SendResult]) -> None:
            nonlocal left, unanswered
            if future.result().status is not SendStatus.SEND_OK and not finished.done():
                finished.set_exception(RuntimeError(f"not stored: {future.result()}"))
            unanswered -= 1
            if left:
                left -= 1
                producer.submit(Message(topic, SMALL)).add_done_callback(answered)
            elif not unanswered and not finished.done():
                finished.set_result(None)

        clock.start()
        for _ in range(min(DEPTH, messages)):
            left -= 1
            producer.submit(Message(topic, SMALL)).add_done_callback(answered)
        await finished
        clock.stop()


async def auto(name_server: str, topic: str, messages: int) -> None:
    """The same in automatic batches."""
    await send(name_server, topic, messages, auto_batch=True)


async def batch(name_server: str, topic: str, messages: int, body: bytes = SMALL) -> None:
    """Messages of 128 bytes, `BATCH` per request, four requests in flight. Includes making the messages."""
    async with Producer("bench-client", name_server=name_server) as producer:
        await producer.send(Message(topic, SMALL))

        async def one_after_the_other(requests: int) -> None:
            for _ in range(requests):
                (await producer.send_batch([Message(topic, body) for _ in range(BATCH)])).raise_for_status()

        clock.start()
        await asyncio.gather(*(one_after_the_other(messages // BATCH // 4) for _ in range(4)))
        clock.stop()


async def batch_large(name_server: str, topic: str, messages: int) -> None:
    await batch(name_server, topic, messages, LARGE)


async def fill(name_server: str, topic: str, messages: int) -> None:
    """Fill the topic for `push`: messages of 1 KiB, spread evenly over all queues."""
    async with Producer("bench-client", name_server=name_server) as producer:
        clock.start()
        for _ in range(messages // BATCH):
            (await producer.send_batch([Message(topic, LARGE) for _ in range(BATCH)])).raise_for_status()
        clock.stop()


async def ping(name_server: str, topic: str, messages: int) -> None:
    """Messages of 128 bytes, one after the other."""
    async with Producer("bench-client", name_server=name_server) as producer:
        await producer.send(Message(topic, SMALL))
        clock.start()
        for _ in range(messages):
            await producer.send(Message(topic, SMALL))
        clock.stop()


async def bare(name_server: str, topic: str, messages: int) -> None:
    """The same round trips without a client: a prepared frame and a bare protocol."""
    async with Producer("bench-client", name_server=name_server) as producer:
        stored = await producer.send(Message(topic, SMALL))
        address = producer.instance.routes.master(stored.queue.broker_name)
    frame = SendFrames("bench-client", topic).frame(
        1, 0, 0, b"UNIQ_KEY\x01" + b"0" * 32 + b"\x02WAIT\x01true\x02", SMALL
    )
    await echo(str(address), frame, messages)


async def echo(address: str, what: str | bytes, messages: int) -> None:
    """Round trips of 400 bytes with a server that sends something back."""
    frame = what if isinstance(what, bytes) else (396).to_bytes(4) + bytes(396)
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    _, pinger = await loop.create_connection(lambda: Pinger(loop), host, int(port))
    clock.start()
    for _ in range(messages):
        await pinger.ping(frame)
    clock.stop()


class Pinger(asyncio.Protocol):
    """The minimum that a coroutine needs to send something and wait for the response."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def ping(self, frame: bytes) -> asyncio.Future[bytes]:
        self.answer: asyncio.Future[bytes] = self.loop.create_future()
        self.transport.write(frame)
        return self.answer

    def data_received(self, data: bytes) -> None:
        self.answer.set_result(data)


async def push(name_server: str, topic: str, messages: int, batch_size: int = 32) -> None:
    """Consume the topic's messages with a batch handler that does nothing."""
    finished = asyncio.Event()
    left = messages
    options = PushConsumerOptions(
        from_where=ConsumeFromWhere.FIRST_OFFSET,
        batch_size=batch_size,
        queue_messages_max=65535,
        span_max=65535,
    )
    consumer = PushConsumer(f"bench-{time.time_ns()}", name_server=name_server, options=options)

    async def handle(received: list[ReceivedMessage]) -> None:
        nonlocal left
        if left == messages:
            clock.start()
        left -= len(received)
        if left <= 0 and not finished.is_set():
            clock.stop()
            finished.set()

    consumer.subscribe(topic, handle)
    async with consumer:
        await finished.wait()


async def push_single(name_server: str, topic: str, messages: int) -> None:
    """The same with one message for each call of the handler."""
    await push(name_server, topic, messages, 1)


class Clock:
    """Wall and CPU time of the measured part."""

    def start(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        self.wall, self.cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu


clock = Clock()
WORKLOADS: dict[str, Callable[[str, str, int], Awaitable[None]]] = {
    "send": send,
    "auto": auto,
    "batch": batch,
    "batch-large": batch_large,
    "bare": bare,
    "echo": echo,
    "fill": fill,
    "ping": ping,
    "push": push,
    "push-single": push_single,
}


async def run(workload: str, name_server: str, topic: str, messages: int) -> dict[str, float]:
    async with asyncio.timeout(LIMIT_S):
        await WORKLOADS[workload](name_server, topic, messages)
    return {"rate": messages / clock.wall, "cpu_us": clock.cpu / messages * 1e6}


if __name__ == "__main__":
    name, address, where, count = sys.argv[1:]
    print(json.dumps(uvloop.run(run(name, address, where, int(count)))))
