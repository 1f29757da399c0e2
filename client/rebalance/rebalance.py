"""Rebalancer: which queues are this member's, and the way from those it has to those it should have.

Never pulls and never heartbeats: the owner does, through the callables of RebalanceContext. What cannot be found out
changes nothing. Event loop only; one round at a time.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from firearrow.client.base.errors import ClientError, NoRoute
from firearrow.client.base.message import MessageQueue, java_order
from firearrow.client.base.names import RETRY
from firearrow.client.base.options import MessageModel
from firearrow.client.rebalance.allocate_strategies import Strategy, name_of
from firearrow.client.rebalance.broker_assignment import RequestMode, consumer_ids, query_assignment
from firearrow.client.rebalance.offset_store import OffsetStore
from firearrow.client.rebalance.owned_queues import OwnedQueues, OwnedQueuesContext, Queues
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.rebalance.queue_locks import QueueLocks
from firearrow.client.rebalance.start_offset import PullRequest, StartOffset
from firearrow.client.remoting.client_instance import ClientInstance

__all__ = ["QueueListener", "Queues", "RebalanceContext", "Rebalancer"]

log = logging.getLogger("firearrow.client")

BEGIN_AFTER_S = 0.5
LOCK_RETRY_S = 0.5

Later = Callable[[float, Callable[[], None]], object]
QueueListener = Callable[[str, Queues, Queues], Awaitable[None] | None]
"""`(topic, all queues, my queues)`, topic by its name at the brokers; called when my queues have changed."""


@dataclass(slots=True, kw_only=True)
class RebalanceContext:
    """What a Rebalancer works with.

    `begin` gets each new queue when it may be pulled, `begin_pop` likewise each one to be popped. `changed(topic, all,
    mine)` comes before: it renews the subscription's version, tells the brokers, then the user. `pop_retry(topic,
    wanted)` subscribes to POP's retry topic or gives it up, when the broker changes the mode of a topic.
    """

    instance: ClientInstance
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

    def __init__(
        self, parts: RebalanceContext, table: dict[MessageQueue, ProcessQueue] | None = None
    ) -> None:
        self._parts = parts
        self._owned_queues = OwnedQueues(
            OwnedQueuesContext(
                offsets=parts.offsets,
                start_offset=parts.start_offset,
                locks=parts.locks,
                active=parts.active,
                leaving=parts.leaving,
                refused=lambda: parts.instance.rebalance_soon(LOCK_RETRY_S),
                new_process_queue=parts.new_process_queue,
                clock=parts.clock,
            ),
            {} if table is None else table,
        )
        self.table, self.pop_table = self._owned_queues.table, self._owned_queues.pop_table
        self._round = asyncio.Lock()

    async def run(self) -> bool:
        """One round over all topics; whether what should be ours now is."""
        async with self._round:
            balanced = True
            for topic in list(self._parts.topics()):
                if self._owned_queues.stopped:
                    return True
                retry = topic.startswith(RETRY)
                try:
                    balanced = await self._topic(topic) and balanced
                except ClientError as error:
                    log.log(logging.DEBUG if retry else logging.WARNING, "rebalance of %s: %s", topic, error)
                    balanced = balanced and retry
                except Exception:
                    log.exception("rebalance of %s", topic)
                    balanced = False
            return await self._owned_queues.leave_topics(set(self._parts.topics())) and balanced

    async def remove(self, queue: MessageQueue) -> None:
        """Give one queue up, whatever the rules say; a later round may begin it anew."""
        await self._owned_queues.remove(queue)

    def stop(self) -> None:
        """Begin no queue any more; a round that runs gives back what it has just locked."""
        self._owned_queues.stopped = True

    def close(self) -> None:
        """Nothing is ours any more. Offsets must have been persisted before."""
        self._owned_queues.close()

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
        return self._owned_queues.is_settled(topic, mine)

    async def _queues(self, topic: str) -> Queues:
        try:
            return frozenset(await self._parts.instance.routes.subscribe_queues(topic))
        except NoRoute:
            return frozenset()

    async def _share(self, topic: str, everything: Queues) -> Queues | None:
        """None: it cannot be told, so everything stays as it is."""
        parts = self._parts
        try:
            ids = await consumer_ids(parts.instance, parts.group, topic)
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
        modes = await query_assignment(
            parts.instance, parts.group, topic, parts.model, name_of(parts.strategy)
        )
        if modes is None:
            return False
        self._switch_retries(topic, modes)
        pulled = frozenset(queue for queue, mode in modes.items() if mode is RequestMode.PULL)
        popped = modes.keys() - pulled
        everything = frozenset(parts.instance.routes.known_subscribe_queues(topic))
        await self._apply(topic, everything, pulled, frozenset(popped))
        return self._owned_queues.is_settled(topic, frozenset(modes))

    def _switch_retries(self, topic: str, modes: Mapping[MessageQueue, RequestMode]) -> None:
        """Popped messages that failed wait in a topic of their own; who pulls again must pull that one, too."""
        kinds = set(modes.values())
        if self._parts.pop_retry is not None and len(kinds) == 1 and not topic.startswith(RETRY):
            self._parts.pop_retry(f"{RETRY}{self._parts.group}_{topic}", RequestMode.PULL in kinds)

    # ---- making it so ----

    async def _apply(self, topic: str, everything: Queues, pulled: Queues, popped: Queues) -> None:
        owned_queues = self._owned_queues
        changed = await owned_queues.drop(topic, pulled)
        changed = owned_queues.drop_pops(topic, popped) or changed
        requests = await owned_queues.add(pulled)
        pops = owned_queues.add_pops(popped)
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
