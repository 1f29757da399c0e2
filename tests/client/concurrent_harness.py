"""ConcurrentHarness: a ConcurrentService over one ProcessQueue, and handlers for it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import MessageQueue
from firearrow.client.consume.concurrent_service import ConcurrentService
from firearrow.client.consume.consume_results import (
    concurrent_verdict,
)
from firearrow.client.consume.invoke_listener import Handlers
from firearrow.client.consume.listeners import Handler, HandlerThreads
from firearrow.client.rebalance.process_queue import ProcessQueue
from tests.client.records import received
from tests.client.services import Back, ManualScheduler, Offsets, Stats, calls_of, settled

QUEUE = MessageQueue("orders", "broker-a", 0)
RETRIES = MessageQueue("%RETRY%workers", "broker-a", 0)


class ConcurrentHarness:
    """A service over one ProcessQueue."""

    def __init__(
        self,
        handler: Handler | dict[str, Handler],
        *,
        batch_size: int = 4,
        at_a_time: int = 3,
        takes: Callable[[ReceivedMessage], bool] = lambda message: True,
        broadcasting: bool = False,
        hooks: tuple[Any, ...] = (),
        queue: MessageQueue = QUEUE,
    ) -> None:
        self.time, self.offsets, self.stats, self.back = ManualScheduler(), Offsets(), Stats(), Back(takes)
        self.queue, self.process_queue = queue, ProcessQueue(self.time)
        self.threads = HandlerThreads("test", at_a_time)
        self.calls = calls_of(
            handler, concurrent_verdict, self.stats, self.time, threads=self.threads, hooks=hooks
        )
        self.service = ConcurrentService(
            Handlers(
                calls=self.calls,
                threads=self.threads,
                at_a_time=at_a_time,
                batch_size=batch_size,
                later=self.time.later,
            ),
            offsets=self.offsets,
            send_back=None if broadcasting else self.back,
            queues=lambda: [self.process_queue],
            every=self.time.every,
            timeout_s=900,
        )

    async def pulled(self, *offsets: int, **properties: str) -> list[ReceivedMessage]:
        messages = received(self.queue, offsets, **properties)
        self.submit(messages)
        await settled()
        return messages

    def submit(self, messages: list[ReceivedMessage]) -> None:
        dispatch = self.process_queue.put(messages)
        self.service.submit(messages, self.process_queue, self.queue, dispatch)


def answering(answer: object) -> Handler:
    async def handler(messages: list[ReceivedMessage]) -> object:
        return answer

    return handler


@dataclass
class Gate:
    """A handler whose calls wait until the test releases each of them with its result."""

    calls: list[tuple[list[int], asyncio.Future[object]]] = field(default_factory=list)

    async def __call__(self, messages: list[ReceivedMessage]) -> object:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.calls.append(([message.queue_offset for message in messages], future))
        return await future

    async def answer(self, call: int, answer: object = None) -> None:
        self.calls[call][1].set_result(answer)
        await settled()
