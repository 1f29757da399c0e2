"""Where a consumer starts in a new queue, and PullRequest, the state of the pulls of one queue.

It starts at the stored offset, or else where `from_where` states; that offset is then stored as well, so that the
next owner of the queue starts at the same one. If the stored offset cannot be read, the queue is not pulled at
all: an unknown offset is not a missing one. Event loop only.
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
    async def offset_since(self, queue: MessageQueue, time_ms: int) -> int: ...


StartOffset = Callable[[MessageQueue], Awaitable[int]]


def start_offset(
    store: OffsetStore,
    queue_offsets: QueueOffsetSource,
    where: ConsumeFromWhere,
    from_ms: int,
    how: ReadOffset = ReadOffset.STORE,
    since: Callable[[str], int] | None = None,
) -> StartOffset:
    """Java's computePullFromWhere as `await start(queue)`: ≥ 0.

    OffsetUnknown, ClientError. `from_ms`: for TIMESTAMP. `since(topic)`: when (ms) this consumer began to want
    the topic: with LAST_OFFSET it gets the messages stored from then on, also those of a queue that was created
    meanwhile. None: only messages stored after this call, as in Java.

    A broker of 4.9 answers 0 for a group without an offset while it has the queue's first message in memory.
    """

    async def start(queue: MessageQueue) -> int:
        stored = await store.read(queue, how)
        if stored == NOT_FOUND:
            offset = await _initial_offset(queue, queue_offsets, where, from_ms, since)
            if offset >= 0 and where is not ConsumeFromWhere.FIRST_OFFSET:
                store.update(queue, offset)
        else:
            offset = stored
        if offset < 0:
            raise OffsetUnknown(f"{queue}: {offset} is not a valid start offset")
        return offset

    return start


async def _initial_offset(
    queue: MessageQueue,
    queue_offsets: QueueOffsetSource,
    where: ConsumeFromWhere,
    from_ms: int,
    since: Callable[[str], int] | None,
) -> int:
    retry = queue.topic.startswith(RETRY)
    if where is ConsumeFromWhere.FIRST_OFFSET:
        return 0  # if that is too low, the answer to the first pull corrects it
    if where is ConsumeFromWhere.LAST_OFFSET:
        if retry:
            return 0
        if since is None:
            return await queue_offsets.max_offset(queue)
        return await queue_offsets.offset_since(queue, since(queue.topic))
    return await queue_offsets.max_offset(queue) if retry else await queue_offsets.offset_at(queue, from_ms)


@dataclass(slots=True, eq=False)
class PullRequest:
    """The next pull of one queue. There is exactly one for each ProcessQueue."""

    queue: MessageQueue
    process_queue: ProcessQueue
    next_offset: int
    previously_locked: bool = False
    """Orderly only: the start offset was read again after the queue was locked."""
