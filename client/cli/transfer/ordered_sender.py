"""OrderedSender: sends messages to given queues, in order. To each queue one request is under way at a time, which has
as many messages as were waiting; requests to different queues run beside each other. Loop thread.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from firearrow._native.wire.codes import ResponseCode
from firearrow.client.base.errors import BrokerError, MessageRefused, RocketMQError
from firearrow.client.base.message import Message, MessageQueue, SendResult
from firearrow.client.cli.messages.send import Pace
from firearrow.client.send.batch import encoded_bytes
from firearrow.client.send.producer import Producer

BATCH_BYTES, BATCH_COUNT = 512 << 10, 256
WAITING, WAITING_BYTES = 8192, 32 << 20
RATE_PART = 0.25
"""Of a second's messages, as many may be in one request."""


class Item(NamedTuple):
    """`source` and `position`: where the message comes from, for the checkpoint."""

    message: Message
    source: str
    position: int
    size: int


Stored = Callable[[MessageQueue, Sequence[Item], SendResult], None]
Refused = Callable[[Item, RocketMQError], None]


class OrderedSender:
    """`stored` gets what a request has stored, `refused` a message that cannot be sent as it is. An error of a request
    ends all: `put` and `drain` raise it."""

    def __init__(
        self,
        producer: Producer,
        pace: Pace,
        stored: Stored,
        refused: Refused,
        *,
        rate: float | None,
        batches: bool,
    ) -> None:
        self._producer = producer
        self._pace = pace
        self._count_max = BATCH_COUNT if rate is None else max(1, min(BATCH_COUNT, int(rate * RATE_PART)))
        if not batches:
            self._count_max = 1
        self._stored, self._refused = stored, refused
        self._waiting: dict[MessageQueue, deque[Item]] = {}
        self._workers: dict[MessageQueue, asyncio.Task[None]] = {}
        self._count = self._bytes = 0
        self._changed = asyncio.Event()
        self._error: Exception | None = None

    async def put(self, queue: MessageQueue, item: Item) -> None:
        """Wait until there is space, then take the message. RocketMQError: a request has failed."""
        while self._count >= WAITING or (self._count and self._bytes + item.size > WAITING_BYTES):
            await self._change()
        self._raise()
        self._count, self._bytes = self._count + 1, self._bytes + item.size
        self._waiting.setdefault(queue, deque()).append(item)
        if queue not in self._workers:
            self._workers[queue] = asyncio.create_task(self._work(queue))

    async def drain(self) -> None:
        """Wait until all that was put is stored or refused. RocketMQError."""
        while self._count:
            await self._change()
        self._raise()

    async def close(self) -> None:
        for worker in self._workers.values():
            worker.cancel()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)

    # ---- internal ----

    async def _change(self) -> None:
        self._raise()
        self._changed.clear()
        await self._changed.wait()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    async def _work(self, queue: MessageQueue) -> None:
        waiting = self._waiting[queue]
        try:
            while waiting and self._error is None:
                batch = self._next(waiting)
                for item in batch:
                    await self._pace.wait(item.size)
                await self._send(queue, batch)
        except Exception as error:  # of a request, or of what was called with its result
            self._error = error
            self._changed.set()
        finally:
            del self._workers[queue]

    def _next(self, waiting: deque[Item]) -> list[Item]:
        batch, size = [waiting.popleft()], 0
        if _goes_alone(batch[0].message):
            return batch
        size = batch[0].size
        while waiting and len(batch) < self._count_max:
            item = waiting[0]
            if size + item.size > BATCH_BYTES or _goes_alone(item.message):
                break
            batch.append(waiting.popleft())
            size += item.size
        return batch

    async def _send(self, queue: MessageQueue, batch: list[Item]) -> None:
        """RocketMQError: it is not known whether the batch is stored, or no broker takes it."""
        try:
            if len(batch) == 1:
                result = await self._producer.send(batch[0].message, queue=queue)
            else:
                result = await self._producer.send_batch([item.message for item in batch], queue=queue)
        except (MessageRefused, BrokerError) as error:
            if isinstance(error, BrokerError) and error.code != ResponseCode.MESSAGE_ILLEGAL:
                raise
            if len(batch) == 1:
                self._ended(batch)
                self._refused(batch[0], error)
                return
            for item in batch:  # one of them
                await self._send(queue, [item])
            return
        self._ended(batch)
        self._stored(queue, batch, result)

    def _ended(self, batch: Sequence[Item]) -> None:
        self._count -= len(batch)
        self._bytes -= sum(item.size for item in batch)
        self._changed.set()


def _goes_alone(message: Message) -> bool:
    """What brokers do not take in a batch: empty bodies, and topics of groups. Large bodies are compressed alone."""
    return not message.body or len(message.body) > BATCH_BYTES // 2 or "%" in message.topic


def size_of(message: Message) -> int:
    """In a request."""
    return encoded_bytes(message)
