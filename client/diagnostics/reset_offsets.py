"""OffsetReset: an operator resets the offsets of a group (220) while its consumers run.

Drops the queues first, so that messages pulled before cannot change the offsets again; then the rebalance
starts them at the new offsets. One reset at a time. Event loop only.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from firearrow._native.protocol import fastjson
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.message import MessageQueue
from firearrow.client.rebalance.offset_store import OffsetStore
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.rebalance.rebalance import Rebalancer

log = logging.getLogger("firearrow.client")
SETTLE_S = 10.0
"""How long running handlers may take to finish; for orderly consumers, the limit for each queue."""


@dataclass(frozen=True, slots=True)
class ResetRequest:
    topic: str
    group: str
    offsets: dict[MessageQueue, int]

    @staticmethod
    def of(request: RemotingCommand) -> "ResetRequest":
        """FieldError, JsonError."""
        offsets: dict[MessageQueue, int] = {}
        if request.body:
            content = fastjson.loads_answer(request.body)
            if not isinstance(content, dict):
                raise fastjson.JsonError("the body must be an object with offsetTable")
            offsets = fastjson.queue_offsets(content.get("offsetTable") or {})
        for queue, offset in offsets.items():
            if offset < 0:
                raise fastjson.JsonError(f"{queue}: {offset} is not an offset")
        return ResetRequest(request.text("topic"), request.text("group"), offsets)


@dataclass(slots=True, kw_only=True)
class OffsetReset:
    """`pause` stops pulls and rebalancing, `resume` starts both again, also after an error.

    `orderly`: wait for each queue's consume lock instead of a fixed time.
    """

    rebalancer: Rebalancer
    offsets: OffsetStore
    pause: Callable[[], None]
    resume: Callable[[], Awaitable[None]]
    orderly: bool = False
    settle_s: float = SETTLE_S
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Reset the offsets of our queues; other queues are skipped."""
        async with self._lock:
            self.pause()
            try:
                ours = {
                    queue: process_queue
                    for queue, process_queue in self.rebalancer.table.items()
                    if queue.topic == topic and queue in offsets
                }
                for process_queue in ours.values():
                    process_queue.dropped = True
                    process_queue.clear()
                if ours and not self.orderly:
                    await self.sleep(self.settle_s)
                for queue, process_queue in ours.items():
                    await self._move(queue, process_queue, offsets[queue])
                log.info("topic %s: the offsets of %d queues were reset", topic, len(ours))
            finally:
                await self.resume()

    async def _move(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        if self.orderly:
            try:
                async with asyncio.timeout(self.settle_s), process_queue.consume_lock:
                    pass
            except TimeoutError:
                log.info("a handler still runs for %s, its offset is reset nevertheless", queue)
        self.offsets.remove(queue)  # since a frozen offset cannot be updated
        self.offsets.update(queue, offset)
        await self.rebalancer.remove(queue)
