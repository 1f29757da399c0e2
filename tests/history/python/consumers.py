"""Consumers of every kind, each in a separate group, except for `shared`, which has members in other languages.

Every fortieth message of the concurrent group fails once and is redelivered by its retry topic.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import RocketMQError
from firearrow.client.base.message import MessageQueue, Property
from firearrow.client.base.options import (
    ClientOptions,
    ConsumeFromWhere,
    PopConsumerOptions,
    PullConsumerOptions,
    PushConsumerOptions,
)
from firearrow.client.consume.consume_results import Answer, Retry
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.pop.receipt_handles import receipt_handle_of
from tests.history.python.emit import emit, emit_got
from tests.history.python.senders import LATER, PLAIN

FIRST = ConsumeFromWhere.FIRST_OFFSET
FAILS_EVERY = 40
INVISIBLE_S = 2.0


class Consumers:
    """`start` and `close` may alternate; members come back with their group's offsets."""

    def __init__(self, name: str, name_server: str, home: Path) -> None:
        self._name = name
        self._name_server = name_server
        self._home = home
        self._push: list[PushConsumer] = []
        self._pull: PullConsumer | None = None
        self._pop: PopConsumer | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._push = [
            self._pusher(f"{self._name}-concurrent", PLAIN, "concurrent", fails=True),
            self._pusher(f"{self._name}-orderly", PLAIN, "orderly"),
            self._pusher(f"{self._name}-later", LATER, "concurrent"),
            self._pusher("shared", PLAIN, "concurrent", shared=True),
        ]
        for consumer in self._push:
            await consumer.start()
        self._tasks = [asyncio.create_task(self._exact()), asyncio.create_task(self._popped())]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for consumer in self._push:
            await consumer.close()

    def _client(self) -> ClientOptions:
        return ClientOptions(
            name_server=self._name_server,
            poll_name_server_s=0.5,
            heartbeat_s=0.5,
            persist_offsets_s=0.3,
            rebalance_s=0.5,
            exception_delay_s=0.1,
        )

    def _pusher(
        self, group: str, topic: str, how: str, *, shared: bool = False, fails: bool = False
    ) -> PushConsumer:
        emit("joined", group=group, topic=topic, how=how, shared=shared)
        options = PushConsumerOptions(
            orderly=how == "orderly", from_where=FIRST, threads=4, local_offsets=self._home, suspend_s=0.1
        )
        consumer = PushConsumer(group, client=self._client(), options=options)

        async def handle(messages: Sequence[ReceivedMessage]) -> Answer:
            answer: Answer = None
            for message in messages:
                again = fails and message.reconsume_times == 0 and message.queue_offset % FAILS_EVERY == 0
                emit_got(group, message, ok=not again)
                answer = Retry(1) if again else answer
            return answer

        consumer.subscribe(topic, handle)
        return consumer

    async def _exact(self) -> None:
        """Commits each batch and waits for the response; a batch whose commit failed is committed by the next."""
        group = f"{self._name}-exact"
        emit("joined", group=group, topic=PLAIN, how="exact")
        options = PullConsumerOptions(from_where=FIRST, auto_commit=False, pull_batch=32)
        async with PullConsumer(group, client=self._client(), options=options) as consumer:
            await self._assign(consumer)
            while True:
                messages = await consumer.poll(timeout_s=1)
                for message in messages:
                    emit_got(group, message)
                if messages:
                    with contextlib.suppress(RocketMQError):
                        await self._commit(consumer, group, messages[-1])

    async def _assign(self, consumer: PullConsumer) -> None:
        while True:
            try:
                consumer.assign(await consumer.fetch_queues(PLAIN))
                return
            except RocketMQError:
                await asyncio.sleep(0.1)

    async def _commit(self, consumer: PullConsumer, group: str, last: ReceivedMessage) -> None:
        (queue,) = (each for each in consumer.assignment() if each.queue_id == last.queue_id)
        offset = last.queue_offset + 1
        position = {"group": group, "topic": PLAIN, "queue": queue.queue_id, "offset": offset}
        emit("commit", **position, at=time.time_ns())
        await self._committed(consumer, queue, offset)
        emit("committed", **position, at=time.time_ns())

    async def _committed(self, consumer: PullConsumer, queue: MessageQueue, offset: int) -> None:
        """The consumer itself commits offsets without waiting for a response; its store can wait."""
        await consumer.commit({queue: offset}, persist=False)
        assert consumer._runtime is not None
        await consumer._runtime.offsets.commit(queue, offset)  # type: ignore[attr-defined]

    async def _popped(self) -> None:
        group = f"{self._name}-pop"
        emit("joined", group=group, topic=PLAIN, how="pop")
        options = PopConsumerOptions(from_where=FIRST, invisible_s=INVISIBLE_S, wait_s=1)
        async with PopConsumer(group, client=self._client(), options=options) as consumer:
            consumer.subscribe(PLAIN)
            while True:
                try:
                    messages = await consumer.receive()
                except RocketMQError:
                    await asyncio.sleep(0.1)
                    continue
                await asyncio.gather(*(self._ack(consumer, group, message) for message in messages))

    async def _ack(self, consumer: PopConsumer, group: str, message: ReceivedMessage) -> None:
        assert Property.POP_CHECK_POINT in message.properties
        emit_got(group, message, popped=receipt_handle_of(message).pop_ms * 1_000_000)
        name = message.body.split(b"|", 1)[0].decode("ascii", "replace")
        try:
            await consumer.ack(message)
        except RocketMQError:
            return
        emit("acked", group=group, id=name, at=time.time_ns())
