"""Rebalancer: which queues are this member's, and the way from those it has to those it should have.

Never pulls and never heartbeats: the owner does, through the callables of RebalanceParts. What cannot be found out
changes nothing. Event loop only; one round at a time.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from firearrow.client.allocate import Strategy, name_of
from firearrow.client.assignment import RequestMode, assigned, members
from firearrow.client.errors import ClientError, NoRoute, OffsetUnknown
from firearrow.client.instance import Instance
from firearrow.client.locks import QueueLocks
from firearrow.client.message import MessageQueue, java_order
from firearrow.client.names import RETRY
from firearrow.client.offset_store import OffsetStore
from firearrow.client.options import MessageModel
from firearrow.client.process_queue import PULL_IDLE_S, ProcessQueue
from firearrow.client.pull_request import PullRequest
from firearrow.client.start_offset import StartOffset

log = logging.getLogger("firearrow.client")

BEGIN_AFTER_S = 0.5
LOCK_AGAIN_S = 0.5
UNLOCK_DELAY_S = 20.0
BUSY_S = 0.5
"""How long a queue in order that is to be given away is waited for, round by round."""
AT_ONCE = 32
"""Queues whose start is asked for at a time."""

Queues = frozenset[MessageQueue]
Later = Callable[[float, Callable[[], None]], object]


@dataclass(slots=True, kw_only=True)
class RebalanceParts:
    """What a Rebalancer works with.

    `begin` gets each new queue when it may be pulled, `begin_pop` likewise each one to be popped. `changed(topic, all,
    mine)` comes before: it renews the subscription's version, tells the brokers, then the user. `pop_retry(topic,
    wanted)` subscribes to POP's retry topic or gives it up, when the broker changes the mode of a topic.
    """

    instance: Instance
    group: str
    model: MessageModel
    strategy: Strategy
    offsets: OffsetStore
    topics: Callable[[], Iterable[str]]
    """Those subscribed to, the retry topic included."""
    start_offset: StartOffset
    begin: Callable[[PullRequest], None]
    changed: Callable[[str, Queues, Queues], Awaitable[None]]
    locks: QueueLocks | None = None
    """Given: queues are locked before they are begun (CLUSTERING, in order)."""
    active: bool = False
    """The user pulls: a queue may rest as long as it likes."""
    leaving: Callable[[MessageQueue], None] | None = None
    """Told of each queue that is given up, before its offset is persisted for the last time."""
    broker_assigns: bool = False
    begin_pop: Callable[[MessageQueue, ProcessQueue], None] | None = None
    pop_retry: Callable[[str, bool], None] | None = None
    new_process_queue: Callable[[], ProcessQueue] = ProcessQueue
    clock: Callable[[], float] = time.monotonic
    later: Later | None = None
    """The loop's `call_later` if none is given."""


class Rebalancer:
    """`table`: the queues that are pulled, `pop_table`: those that are popped. A dropped one is on its way out."""

    def __init__(self, parts: RebalanceParts, table: dict[MessageQueue, ProcessQueue] | None = None) -> None:
        self._parts = parts
        self.table: dict[MessageQueue, ProcessQueue] = {} if table is None else table
        self.pop_table: dict[MessageQueue, ProcessQueue] = {}
        self._round = asyncio.Lock()

    async def run(self) -> bool:
        """One round over all topics; whether what should be ours now is."""
        async with self._round:
            balanced = True
            for topic in list(self._parts.topics()):
                retry = topic.startswith(RETRY)
                try:
                    balanced = await self._topic(topic) and balanced
                except ClientError as error:
                    log.log(logging.DEBUG if retry else logging.WARNING, "rebalance of %s: %s", topic, error)
                    balanced = balanced and retry
                except Exception:
                    log.exception("rebalance of %s", topic)
                    balanced = False
            return await self._leave_topics() and balanced

    async def remove(self, queue: MessageQueue) -> None:
        """Give one queue up, whatever the rules say; a later round may begin it anew."""
        process_queue = self.table.get(queue)
        if process_queue is not None:
            process_queue.dropped = True
            await self._give_up(queue, process_queue)
            self._forget(self.table, queue, process_queue)

    def close(self) -> None:
        """Nothing is ours any more. Offsets must have been persisted before."""
        for table in (self.table, self.pop_table):
            for process_queue in table.values():
                process_queue.dropped = True
            table.clear()

    # ---- what should be ours ----

    async def _topic(self, topic: str) -> bool:
        if self._parts.broker_assigns:
            return await self._as_assigned(topic)
        everything = await self._queues(topic)
        if not everything:
            if self._parts.model is MessageModel.BROADCASTING or not topic.startswith(RETRY):
                log.warning("%s has no queue that can be read", topic)
                await self._tell(topic, frozenset(), frozenset())
            return True
        if self._parts.model is MessageModel.BROADCASTING:
            mine: Queues | None = everything
        else:
            mine = await self._share(topic, everything)
        if mine is None:
            return False
        await self._apply(topic, everything, mine, frozenset())
        return self._is_settled(topic, mine)

    async def _queues(self, topic: str) -> Queues:
        try:
            return frozenset(await self._parts.instance.routes.subscribe_queues(topic))
        except NoRoute:
            return frozenset()

    async def _share(self, topic: str, everything: Queues) -> Queues | None:
        """None: it cannot be told, so everything stays as it is."""
        parts = self._parts
        try:
            ids = await members(parts.instance, parts.group, topic)
        except ClientError as error:
            log.warning("the members of %s could not be asked for: %s", parts.group, error)
            return None
        if not ids:
            return None
        try:
            client_id = parts.instance.client_id
            return frozenset(
                parts.strategy(parts.group, client_id, sorted(everything), sorted(ids, key=java_order))
            )
        except Exception:
            log.exception("strategy %s failed for %s", name_of(parts.strategy), topic)
            return None

    async def _as_assigned(self, topic: str) -> bool:
        parts = self._parts
        modes = await assigned(parts.instance, parts.group, topic, parts.model, name_of(parts.strategy))
        if modes is None:
            return False
        self._switch_retries(topic, modes)
        pulled = frozenset(queue for queue, mode in modes.items() if mode is RequestMode.PULL)
        popped = modes.keys() - pulled
        everything = frozenset(parts.instance.routes.known_subscribe_queues(topic))
        await self._apply(topic, everything, pulled, frozenset(popped))
        return self._is_settled(topic, frozenset(modes))

    def _switch_retries(self, topic: str, modes: Mapping[MessageQueue, RequestMode]) -> None:
        """Popped messages that failed wait in a topic of their own; who pulls again must pull that one, too."""
        kinds = set(modes.values())
        if self._parts.pop_retry is not None and len(kinds) == 1 and not topic.startswith(RETRY):
            self._parts.pop_retry(f"{RETRY}{self._parts.group}_{topic}", RequestMode.PULL in kinds)

    # ---- making it so ----

    async def _apply(self, topic: str, everything: Queues, pulled: Queues, popped: Queues) -> None:
        changed = await self._drop(topic, pulled)
        changed = self._drop_pops(topic, popped) or changed
        requests = await self._add(pulled)
        pops = self._add_pops(popped)
        if changed or requests or pops:
            log.info("%s %s: %d queues are ours", self._parts.group, topic, len(pulled | popped))
            await self._tell(topic, everything, pulled | popped)
        for request in requests:
            self._begin_later(request)
        for queue, process_queue in pops:
            self._begin_pop_later(queue, process_queue)

    async def _tell(self, topic: str, everything: Queues, mine: Queues) -> None:
        try:
            await self._parts.changed(topic, everything, mine)
        except Exception:
            log.exception("the change of %s could not be told", topic)

    async def _drop(self, topic: str, wanted: Queues) -> bool:
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

    async def _leave(self, leaving: Mapping[MessageQueue, ProcessQueue]) -> bool:
        """Give these up; whether any is gone. One that is busy stays, dropped, for the next round."""
        gone = await asyncio.gather(*(self._give_up(*item) for item in leaving.items()))
        for (queue, process_queue), is_gone in zip(leaving.items(), gone, strict=True):
            if is_gone:
                self._forget(self.table, queue, process_queue)
        return any(gone)

    async def _give_up(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
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
            await locks.give((queue,))
        finally:
            if not forced:
                lock.release()
        return True

    async def _add(self, wanted: Queues) -> list[PullRequest]:
        new = sorted(queue for queue in wanted if queue not in self.table)
        locks = self._parts.locks
        if locks is not None and new:
            ours = await locks.take(new)
            if len(ours) < len(new):
                log.info("%d of %d queues are still locked by others", len(new) - len(ours), len(new))
                self._parts.instance.rebalance_soon(LOCK_AGAIN_S)
            new = [queue for queue in new if queue in ours]
        requests: list[PullRequest] = []
        for first in range(0, len(new), AT_ONCE):
            found = await asyncio.gather(*(self._new(queue) for queue in new[first : first + AT_ONCE]))
            requests += [request for request in found if request is not None]
        return requests

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
        if queue in self.table:
            return None
        self.table[queue] = process_queue
        return PullRequest(queue, process_queue, start)

    def _drop_pops(self, topic: str, wanted: Queues) -> bool:
        oldest = self._parts.clock() - PULL_IDLE_S
        leaving = [
            queue
            for queue, process_queue in self.pop_table.items()
            if queue.topic == topic and (queue not in wanted or process_queue.last_pop_s < oldest)
        ]
        for queue in leaving:
            self.pop_table.pop(queue).dropped = True
        return bool(leaving)

    def _add_pops(self, wanted: Queues) -> list[tuple[MessageQueue, ProcessQueue]]:
        new = sorted(queue for queue in wanted if queue not in self.pop_table)
        pops = [(queue, self._parts.new_process_queue()) for queue in new]
        self.pop_table.update(pops)
        return pops

    async def _leave_topics(self) -> bool:
        """Queues of topics that are not subscribed to any more; whether all are gone. Java forgets their offsets."""
        topics = set(self._parts.topics())
        for queue in [queue for queue in self.pop_table if queue.topic not in topics]:
            self.pop_table.pop(queue).dropped = True
        leaving = {queue: held for queue, held in self.table.items() if queue.topic not in topics}
        for process_queue in leaving.values():
            process_queue.dropped = True
        await self._leave(leaving)
        return all(queue.topic in topics for queue in self.table)

    # ---- beginning ----

    def _begin_later(self, request: PullRequest) -> None:
        def begin() -> None:
            if not request.process_queue.dropped:
                self._parts.begin(request)

        self._after(begin)

    def _begin_pop_later(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        begin_pop = self._parts.begin_pop

        def begin() -> None:
            if begin_pop is not None and not process_queue.dropped:
                begin_pop(queue, process_queue)

        self._after(begin)

    def _after(self, begin: Callable[[], None]) -> None:
        later = self._parts.later or self._parts.instance.loop.call_later
        later(BEGIN_AFTER_S, begin)

    def _is_settled(self, topic: str, mine: Queues) -> bool:
        """Just these are held. Java does not look at what leaves and comes back to it after 20 s only."""
        held = [
            (queue, process_queue.dropped)
            for table in (self.table, self.pop_table)
            for queue, process_queue in table.items()
            if queue.topic == topic
        ]
        return not any(dropped for _, dropped in held) and {queue for queue, _ in held} == mine

    @staticmethod
    def _forget(
        table: dict[MessageQueue, ProcessQueue], queue: MessageQueue, process_queue: ProcessQueue
    ) -> None:
        if table.get(queue) is process_queue:
            del table[queue]
