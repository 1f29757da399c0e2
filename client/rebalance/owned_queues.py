"""Holding: the queues that a member has, how each is begun and how it is given up.

Knows nothing of who should have what. A queue goes only when its offset is where the next owner reads it.
Event loop only.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from firearrow.client.base.errors import ClientError, OffsetUnknown
from firearrow.client.base.message import MessageQueue
from firearrow.client.rebalance.offset_store import OffsetStore
from firearrow.client.rebalance.process_queue import PULL_IDLE_S, ProcessQueue
from firearrow.client.rebalance.queue_locks import QueueLocks
from firearrow.client.rebalance.start_offset import PullRequest, StartOffset

log = logging.getLogger("firearrow.client")

UNLOCK_DELAY_S = 20.0
BUSY_S = 0.5
"""How long a queue in order that is to be given away is waited for, round by round."""
CONCURRENT_MAX = 32
"""Queues whose start is asked for at a time."""

Queues = frozenset[MessageQueue]
Table = dict[MessageQueue, ProcessQueue]


@dataclass(slots=True, kw_only=True)
class OwnedQueuesContext:
    """What a Holding works with; RebalanceParts says more of each."""

    offsets: OffsetStore
    start_offset: StartOffset
    locks: QueueLocks | None
    active: bool
    leaving: Callable[[MessageQueue], None] | None
    refused: Callable[[], None]
    """Another member still has locks that we want."""
    new_process_queue: Callable[[], ProcessQueue] = ProcessQueue
    clock: Callable[[], float] = time.monotonic


class OwnedQueues:
    """`table`: the queues that are pulled, `pop_table`: those that are popped. A dropped one is on its way out."""

    def __init__(self, parts: OwnedQueuesContext, table: Table) -> None:
        self._parts = parts
        self.table = table
        self.pop_table: Table = {}
        self.stopped = False
        """Nothing is begun any more."""

    async def drop(self, topic: str, wanted: Queues) -> bool:
        """Give up what is not wanted, or was not pulled for long; whether any is gone."""
        now = self._parts.clock()
        leaving: dict[MessageQueue, ProcessQueue] = {}
        for queue, process_queue in self.table.items():
            if queue.topic != topic:
                continue
            idle = not self._parts.active and process_queue.pull_expired(now)
            if queue not in wanted or idle or process_queue.dropped:
                process_queue.dropped = True
                leaving[queue] = process_queue
        return await self._leave(leaving)

    async def leave_topics(self, topics: Collection[str]) -> bool:
        """Give up the queues of all other topics; whether all are gone. Java forgets their offsets."""
        for queue in [queue for queue in self.pop_table if queue.topic not in topics]:
            self.pop_table.pop(queue).dropped = True
        leaving = {queue: held for queue, held in self.table.items() if queue.topic not in topics}
        for process_queue in leaving.values():
            process_queue.dropped = True
        await self._leave(leaving)
        return all(queue.topic in topics for queue in self.table)

    async def remove(self, queue: MessageQueue) -> None:
        """Give one queue up, whatever the rules say; a later round may begin it anew."""
        process_queue = self.table.get(queue)
        if process_queue is not None:
            process_queue.dropped = True
            await self._release(queue, process_queue)
            self._forget(self.table, queue, process_queue)

    def close(self) -> None:
        """Nothing is ours any more. Offsets must have been persisted before."""
        for table in (self.table, self.pop_table):
            for process_queue in table.values():
                process_queue.dropped = True
            table.clear()

    async def add(self, wanted: Queues) -> list[PullRequest]:
        """Begin those of these that are not held; one whose lock or start cannot be had is left out."""
        new = sorted(queue for queue in wanted if queue not in self.table)
        locks = self._parts.locks
        if locks is not None and new:
            ours = await locks.lock_queues(new)
            if len(ours) < len(new):
                log.info("%d of %d queues are still locked by others", len(new) - len(ours), len(new))
                self._parts.refused()
            new = [queue for queue in new if queue in ours]
        requests: list[PullRequest] = []
        for first in range(0, len(new), CONCURRENT_MAX):
            found = await asyncio.gather(*(self._new(queue) for queue in new[first : first + CONCURRENT_MAX]))
            requests += [request for request in found if request is not None]
        if self.stopped and locks is not None:
            await locks.unlock_queues(queue for queue in new if queue not in self.table)
        return requests

    def drop_pops(self, topic: str, wanted: Queues) -> bool:
        oldest = self._parts.clock() - PULL_IDLE_S
        leaving = [
            queue
            for queue, process_queue in self.pop_table.items()
            if queue.topic == topic and (queue not in wanted or process_queue.last_pop_s < oldest)
        ]
        for queue in leaving:
            self.pop_table.pop(queue).dropped = True
        return bool(leaving)

    def add_pops(self, wanted: Queues) -> list[tuple[MessageQueue, ProcessQueue]]:
        new = sorted(queue for queue in wanted if queue not in self.pop_table)
        pops = [(queue, self._parts.new_process_queue()) for queue in new]
        self.pop_table.update(pops)
        return pops

    def is_settled(self, topic: str, mine: Queues) -> bool:
        """Just these are held. Java does not look at what leaves and comes back to it after 20 s only."""
        held = [
            (queue, process_queue.dropped)
            for table in (self.table, self.pop_table)
            for queue, process_queue in table.items()
            if queue.topic == topic
        ]
        return not any(dropped for _, dropped in held) and {queue for queue, _ in held} == mine

    async def _leave(self, leaving: Mapping[MessageQueue, ProcessQueue]) -> bool:
        """Give these up; whether any is gone. One that is busy stays, dropped, for the next round."""
        gone = await asyncio.gather(*(self._release(*item) for item in leaving.items()))
        for (queue, process_queue), is_gone in zip(leaving.items(), gone, strict=True):
            if is_gone:
                self._forget(self.table, queue, process_queue)
        return any(gone)

    async def _release(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        """False: a handler works on it in order, so nobody else may have it yet."""
        offsets, locks = self._parts.offsets, self._parts.locks
        if self._parts.leaving is not None:
            self._parts.leaving(queue)
        await offsets.persist(queue)
        if locks is None:
            offsets.remove(queue)
            return True
        lock = process_queue.consume_lock
        forced = process_queue.dropped and self._parts.clock() > process_queue.last_lock_s + UNLOCK_DELAY_S
        if not forced:
            try:
                async with asyncio.timeout(BUSY_S):
                    await lock.acquire()
            except TimeoutError:
                process_queue.try_unlock_times += 1
                return False
        try:
            await offsets.persist(queue)  # before the lock goes: the next owner reads it
            offsets.remove(queue)
            process_queue.locked = False
            await locks.unlock_queues((queue,))
        finally:
            if not forced:
                lock.release()
        return True

    async def _new(self, queue: MessageQueue) -> PullRequest | None:
        """None: where it begins could not be found out."""
        self._parts.offsets.remove(queue)
        process_queue = self._parts.new_process_queue()
        process_queue.locked = True
        try:
            start = await self._parts.start_offset(queue)
        except (ClientError, OffsetUnknown) as error:
            log.warning("%s is not begun: %s", queue, error)
            return None
        if queue in self.table or self.stopped:
            return None
        self.table[queue] = process_queue
        return PullRequest(queue, process_queue, start)

    @staticmethod
    def _forget(
        table: dict[MessageQueue, ProcessQueue], queue: MessageQueue, process_queue: ProcessQueue
    ) -> None:
        if table.get(queue) is process_queue:
            del table[queue]
