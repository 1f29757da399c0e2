"""Where a consumer begins in a queue it was given: at what is stored, else where the group wants to begin.

An offset that could not be determined is not one that does not exist: then the queue is not begun at all.

PullRequest: what one queue asks the broker for next. There is exactly one for each ProcessQueue. Event loop only.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from firearrow.client.base.errors import OffsetUnknown
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.names import RETRY
from firearrow.client.base.options import ConsumeFromWhere
from firearrow.client.rebalance.offset_store import NOT_FOUND, OffsetStore, ReadOffset
from firearrow.client.rebalance.process_queue import ProcessQueue


class QueueOffsetSource(Protocol):
    async def max_offset(self, queue: MessageQueue) -> int: ...
    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int: ...


StartOffset = Callable[[MessageQueue], Awaitable[int]]


def start_offset(
    store: OffsetStore,
    queue_offsets: QueueOffsetSource,
    where: ConsumeFromWhere,
    from_ms: int,
    how: ReadOffset = ReadOffset.STORE,
) -> StartOffset:
    """Java's computePullFromWhere as `await start(queue)`: ≥ 0. OffsetUnknown, ClientError. `from_ms`: for TIMESTAMP.

    Brokers answer 0 for a group without offset as long as the queue still has its first message in memory: a new
    LAST_OFFSET group of a young topic begins at 0.
    """

    async def start(queue: MessageQueue) -> int:
        stored = await store.read(queue, how)
        found = await _without_stored(queue, queue_offsets, where, from_ms) if stored == NOT_FOUND else stored
        if found < 0:
            raise OffsetUnknown(f"{queue}: {found} is no offset to begin at")
        return found

    return start


async def _without_stored(
    queue: MessageQueue, queue_offsets: QueueOffsetSource, where: ConsumeFromWhere, from_ms: int
) -> int:
    retry = queue.topic.startswith(RETRY)
    if where is ConsumeFromWhere.FIRST_OFFSET:
        return 0  # if that is too low, the broker says so with the first pull
    if where is ConsumeFromWhere.LAST_OFFSET:
        return 0 if retry else await queue_offsets.max_offset(queue)
    return await queue_offsets.max_offset(queue) if retry else await queue_offsets.offset_at(queue, from_ms)


@dataclass(slots=True, eq=False)
class PullRequest:
    queue: MessageQueue
    process_queue: ProcessQueue
    next_offset: int
    previously_locked: bool = False
    """In order only: the start was asked for again since the queue was locked."""
    failures: int = 0
    """Pulls that failed since the last that did not."""
