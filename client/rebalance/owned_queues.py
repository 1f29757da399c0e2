"""OwnedQueues: the queues that a member owns; acquires and releases them.

It does not decide which queues to own. A queue is released only after its offset is stored where the next
owner reads it. Event loop only.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from firearrow.client.base.errors import ClientError, OffsetUnknown, RocketMQError
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.state_log import FAILING_S, StateLog
from firearrow.client.rebalance.offset_store import OffsetStore
from firearrow.client.rebalance.process_queue import PULL_IDLE_S, ProcessQueue
from firearrow.client.rebalance.queue_locks import QueueLocks
from firearrow.client.rebalance.start_offset import PullRequest, StartOffset

log = logging.getLogger("firearrow.client")

UNLOCK_DELAY_S = 20.0
BUSY_S = 0.5
"""How long one rebalance waits for the handler of an orderly queue that is to be released."""
HOLD_UP_S = 1.0
"""How long a slow broker delays a rebalance."""
CONCURRENT_MAX = 32
"""Queues whose start offsets are read at a time."""

Queues = frozenset[MessageQueue]
Table = dict[MessageQueue, ProcessQueue]


@dataclass(slots=True, kw_only=True)
class OwnedQueuesContext:
    """What OwnedQueues works with; RebalanceContext explains the fields."""

    offsets: OffsetStore
    start_offset: StartOffset
    locks: QueueLocks | None
    active: bool
    leaving: Callable[[MessageQueue], None] | None
    refused: Callable[[], None]
    """Called when queues are to be acquired soon: other members have locks on them, or brokers are slow."""
    new_process_queue: Callable[[], ProcessQueue] = ProcessQueue
    clock: Callable[[], float] = time.monotonic


class OwnedQueues:
    """`table`: the pulled queues, `pop_table`: the popped ones. A dropped one is being released."""

    def __init__(self, context: OwnedQueuesContext, table: Table) -> None:
        self._context = context
        self.table = table
        self.pop_table: Table = {}
        self._acquiring: dict[asyncio.Task[list[PullRequest]], list[MessageQueue]] = {}
        self._late: list[PullRequest] = []
        """Of queues that were acquired only after `add` had returned."""
        self.stopped = False
        """No more queues are acquired."""
        unlocked = "topic %s: its queues are given to this member again, they were refused %d times"
        self._refused = StateLog(log, unlocked, context.clock)
        known = "broker %s answers again where queues begin, after %d failures"
        self._without_offset = StateLog(log, known, context.clock, quiet_s=FAILING_S)

    async def drop(self, topic: str, assigned: Queues) -> bool:
        """Release queues that are not assigned, or were not pulled for long.

        Returns whether any was released.
        """
        now = self._context.clock()
        leaving: dict[MessageQueue, ProcessQueue] = {}
        for queue, process_queue in self.table.items():
            if queue.topic != topic:
                continue
            idle = not self._context.active and process_queue.pull_expired(now)
            if queue not in assigned or idle or process_queue.dropped:
                process_queue.dropped = True
                leaving[queue] = process_queue
        return await self._leave(leaving)

    async def leave_topics(self, topics: Collection[str]) -> bool:
        """Release the queues of all other topics.

        Returns whether all are released. Java forgets their offsets.
        """
        for queue in [queue for queue in self.pop_table if queue.topic not in topics]:
            self.pop_table.pop(queue).dropped = True
        leaving = {queue: owned for queue, owned in self.table.items() if queue.topic not in topics}
        for process_queue in leaving.values():
            process_queue.dropped = True
        await self._leave(leaving)
        return all(queue.topic in topics for queue in self.table)

    async def remove(self, queue: MessageQueue) -> None:
        """Release one queue regardless of the rules; a later rebalance may acquire it again."""
        process_queue = self.table.get(queue)
        if process_queue is not None:
            process_queue.dropped = True
            await self._release(queue, process_queue)
            self._forget(self.table, queue, process_queue)

    def close(self) -> None:
        """Drop all queues. Offsets must have been persisted before."""
        for task in self._acquiring:
            task.cancel()
        for table in (self.table, self.pop_table):
            for process_queue in table.values():
                process_queue.dropped = True
            table.clear()

    async def add(self, assigned: Queues) -> list[PullRequest]:
        """Acquire queues not owned yet, except those without a lock or a known start offset.

        A broker that is slow does not delay the queues of the others: its queues are returned by a later call.
        """
        late = [one for one in self._late if one.queue in assigned]
        self._late = [one for one in self._late if one.queue not in assigned]
        requests = [one for one in late if self.table.get(one.queue) is one.process_queue]
        under_way = {queue for queues in self._acquiring.values() for queue in queues}
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in sorted(assigned - self.table.keys() - under_way):
            by_broker.setdefault(queue.broker_name, []).append(queue)
        if not by_broker:
            return requests
        tasks = {asyncio.create_task(self._add_of_one_broker(new)): new for new in by_broker.values()}
        self._acquiring.update(tasks)
        for task in tasks:
            task.add_done_callback(self._acquiring.pop)
        done, slow = await asyncio.wait(tasks, timeout=HOLD_UP_S)
        for task in slow:
            task.add_done_callback(self._added_late)
        for task in done:
            requests += task.result()
        return requests

    def _added_late(self, task: asyncio.Task[list[PullRequest]]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._late += task.result()
            self._context.refused()
        elif not isinstance(error, RocketMQError):
            log.error("queues could not be acquired", exc_info=error)

    async def _add_of_one_broker(self, new: list[MessageQueue]) -> list[PullRequest]:
        locks = self._context.locks
        if locks is not None and new:
            locked = await locks.lock_queues(new)
            if len(locked) < len(new):
                text = "%d of %d queues of topic %s are still locked by other members"
                self._refused.is_there(new[0].topic, text, len(new) - len(locked), len(new), new[0].topic)
                self._context.refused()
            else:
                self._refused.is_absent(new[0].topic)
            new = [queue for queue in new if queue in locked]
        requests: list[PullRequest] = []
        for first in range(0, len(new), CONCURRENT_MAX):
            batch = new[first : first + CONCURRENT_MAX]
            acquired = await asyncio.gather(*(self._acquire(queue) for queue in batch))
            requests += [request for request in acquired if request is not None]
        if self.stopped and locks is not None:
            await locks.unlock_queues(queue for queue in new if queue not in self.table)
        return requests

    def drop_pops(self, topic: str, assigned: Queues) -> bool:
        oldest = self._context.clock() - PULL_IDLE_S
        leaving = [
            queue
            for queue, process_queue in self.pop_table.items()
            if queue.topic == topic and (queue not in assigned or process_queue.last_pop_s < oldest)
        ]
        for queue in leaving:
            self.pop_table.pop(queue).dropped = True
        return bool(leaving)

    def add_pops(self, assigned: Queues) -> list[tuple[MessageQueue, ProcessQueue]]:
        new = sorted(queue for queue in assigned if queue not in self.pop_table)
        pops = [(queue, self._context.new_process_queue()) for queue in new]
        self.pop_table.update(pops)
        return pops

    @property
    def queues(self) -> Queues:
        """Pulled or popped, without those that are being released."""
        tables = (self.table, self.pop_table)
        return frozenset(queue for table in tables for queue, owned in table.items() if not owned.dropped)

    def is_settled(self, topic: str, mine: Queues) -> bool:
        """Exactly these are owned and none is being released.

        Java ignores the latter and checks again after 20 s.
        """
        owned = [
            (queue, process_queue.dropped)
            for table in (self.table, self.pop_table)
            for queue, process_queue in table.items()
            if queue.topic == topic
        ]
        return not any(dropped for _, dropped in owned) and {queue for queue, _ in owned} == mine

    async def _leave(self, leaving: Mapping[MessageQueue, ProcessQueue]) -> bool:
        """Release these and return whether any was. A busy one stays dropped until the next rebalance."""
        results = await asyncio.gather(*(self._release(*item) for item in leaving.items()))
        for (queue, process_queue), released in zip(leaving.items(), results, strict=True):
            if released:
                self._forget(self.table, queue, process_queue)
        return any(results)

    async def _release(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        """False: an orderly handler still works on the queue, so no other member may get it yet."""
        offsets, locks = self._context.offsets, self._context.locks
        if self._context.leaving is not None:
            self._context.leaving(queue)
        await offsets.persist(queue)
        if locks is None:
            offsets.remove(queue)
            return True
        lock = process_queue.consume_lock
        forced = process_queue.dropped and self._context.clock() > process_queue.last_lock_s + UNLOCK_DELAY_S
        if not forced:
            try:
                async with asyncio.timeout(BUSY_S):
                    await lock.acquire()
            except TimeoutError:
                process_queue.try_unlock_times += 1
                return False
        try:
            await offsets.persist(queue)  # before the unlock: the next owner reads it
            offsets.remove(queue)
            process_queue.locked = False
            await locks.unlock_queues((queue,))
        finally:
            if not forced:
                lock.release()
        return True

    async def _acquire(self, queue: MessageQueue) -> PullRequest | None:
        """None: the start offset could not be determined."""
        self._context.offsets.remove(queue)
        process_queue = self._context.new_process_queue()
        process_queue.locked = True
        try:
            start = await self._context.start_offset(queue)
        except (ClientError, OffsetUnknown) as error:
            text = "%s: not pulled yet, the start offset is unknown: %s"
            self._without_offset.failed(queue.broker_name, error, text, queue, error)
            return None
        self._without_offset.is_absent(queue.broker_name)
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
