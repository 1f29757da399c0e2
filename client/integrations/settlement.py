"""Settlement: acknowledges the messages of a PopConsumer, returns them, or makes them dead letters. Event loop only.

The consumer renews them (`auto_renew`). While no broker answers, each request is made again as long as it keeps them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import RocketMQError
from firearrow.client.consumers.pop_consumer import PopConsumer

log = logging.getLogger("firearrow.client")

BATCH = 32
"""Acknowledgements of one request."""


class Settlement:
    """What is not settled in the end comes again after its invisible time."""

    def __init__(self, consumer: PopConsumer) -> None:
        self.consumer = consumer
        self._acks: list[ReceivedMessage] = []
        """Those of the next request."""
        self._next_acks: asyncio.Task[None] | None = None
        self._acking = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    # ---- messages ----

    async def ack(self, message: ReceivedMessage) -> None:
        """It is done."""
        await asyncio.shield(self.ack_soon(message))

    def ack_soon(self, message: ReceivedMessage) -> asyncio.Task[None]:
        """The same, in one request with those that come while the last one is not answered."""
        if self._next_acks is None or len(self._acks) >= BATCH:
            self._acks = []
            self._next_acks = self.spawn(self._send_acks(self._acks))
        self._acks.append(message)
        return self._next_acks

    async def _send_acks(self, messages: list[ReceivedMessage]) -> None:
        async with self._acking:
            if messages is self._acks:
                self._next_acks = None
            try:
                return await self.consumer.ack_batch(messages)
            except RocketMQError as error:  # perhaps of one of them
                log.debug("%d messages are acknowledged one by one: %s", len(messages), error)
        await asyncio.gather(*(self._settle(message, self.consumer.ack) for message in messages))

    async def dead_letter(self, message: ReceivedMessage) -> None:
        """Move it to the dead letters of the group."""
        await self._settle(message, self.consumer.dead_letter)

    async def release(self, message: ReceivedMessage, seconds: float) -> None:
        """Return it to the group, which gets it then. That counts as a delivery."""
        await self._settle(message, partial(self.consumer.change_invisible, seconds=seconds))

    async def _settle(
        self, message: ReceivedMessage, request: Callable[[ReceivedMessage], Awaitable[None]]
    ) -> None:
        try:
            await self.consumer.settle([message], partial(request, message))
        except RocketMQError as error:  # or closed meanwhile
            log.info("%r was not settled, and comes again: %s", message, error)

    # ---- tasks ----

    def spawn(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, RocketMQError):
            log.debug("a request failed: %s", error)  # no caller may be there to get it
        else:
            log.error("a message was not settled: unexpected error", exc_info=error)

    async def finish(self, timeout_s: float) -> None:
        """Until brokers know what became of all messages, at most `timeout_s`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def close(self) -> None:
        """Close the consumer; its messages come again after their invisible time."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.consumer.close()
