"""OffsetReset: an operator sets a group to another place (220) while its consumers run.

The queues are given up first, so that nothing that was pulled before can move the offsets again; then they are begun
anew at the place. One reset at a time. Event loop only.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.message import MessageQueue
from firearrow.client.rebalance import fastjson
from firearrow.client.rebalance.offset_store import OffsetStore
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.rebalance.rebalance import Rebalancer

log = logging.getLogger("firearrow.client")
SETTLE_S = 10.0
"""What handlers that run get to come to an end; with locks, at most so long for each queue."""


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
            content = fastjson.loads(request.body)
            if not isinstance(content, dict):
                raise fastjson.JsonError("an object with offsetTable is wanted")
            offsets = fastjson.queue_offsets(content.get("offsetTable") or {})
        for queue, offset in offsets.items():
            if offset < 0:
                raise fastjson.JsonError(f"{queue}: {offset} is no offset")
        return ResetRequest(request.text("topic"), request.text("group"), offsets)


@dataclass(slots=True, kw_only=True)
class OffsetReset:
    """`pause` stops pulls and rebalancing, `resume` starts both again, whatever happened between. `orderly`: in order,
    a queue is waited for by its lock."""

    rebalancer: Rebalancer
    offsets: OffsetStore
    pause: Callable[[], None]
    resume: Callable[[], Awaitable[None]]
    orderly: bool = False
    settle_s: float = SETTLE_S
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    _alone: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Queues that are not ours are passed over."""
        async with self._alone:
            self.pause()
            try:
                held = {
                    queue: process_queue
                    for queue, process_queue in self.rebalancer.table.items()
                    if queue.topic == topic and queue in offsets
                }
                for process_queue in held.values():
                    process_queue.dropped = True
                    process_queue.clear()
                if held and not self.orderly:
                    await self.sleep(self.settle_s)
                for queue, process_queue in held.items():
                    await self._move(queue, process_queue, offsets[queue])
                log.info("%s: %d queues were set to other offsets", topic, len(held))
            finally:
                await self.resume()

    async def _move(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        if self.orderly:
            try:
                async with asyncio.timeout(self.settle_s), process_queue.consume_lock:
                    pass
            except TimeoutError:
                log.warning("%s is still worked on, its offset is set nevertheless", queue)
        self.offsets.remove(queue)  # a frozen one would stay
        self.offsets.update(queue, offset)
        await self.rebalancer.remove(queue)
