"""Rebalancer: finds the queues of this member, releases others and acquires new ones.

Pulls and heartbeats are the owner's business, through the callables of RebalanceContext. If the queues cannot
be determined, nothing changes. Event loop only; one rebalance at a time.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from firearrow.client.base.errors import BrokerError, ClientError, NoRoute
from firearrow.client.base.message import MessageQueue, java_order
from firearrow.client.base.names import RETRY
from firearrow.client.base.options import MessageModel
from firearrow.client.base.state_log import FAILING_S, StateLog
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
"""`(topic, all queues, own queues)`, called after the own queues changed; topic as brokers know it."""


@dataclass(slots=True, kw_only=True)
class RebalanceContext:
    """What a Rebalancer works with.

    `begin` starts pulling a new queue, `begin_pop` popping one. `changed(topic, all, mine)` is called before:
    it renews the version of the subscription, sends heartbeats and then notifies the user. When the broker
    changes the mode of a topic, `pop_retry(topic, subscribe)` subscribes to POP's retry topic or
    unsubscribes.
    """

    instance: ClientInstance
    group: str
    model: MessageModel
    strategy: Strategy
    offsets: OffsetStore
    topics: Callable[[], Iterable[str]]
    """The subscribed topics, including the retry topic."""
    start_offset: StartOffset
    begin: Callable[[PullRequest], None]
    changed: Callable[[str, Queues, Queues], Awaitable[None]]
    locks: QueueLocks | None = None
    """If set, queues are locked before they are pulled (CLUSTERING, orderly)."""
    active: bool = False
    """The user pulls: a queue that is not pulled for long is kept."""
    leaving: Callable[[MessageQueue], None] | None = None
    """Called for each queue to be released, before its offset is persisted for the last time."""
    broker_assigns: bool = False
    begin_pop: Callable[[MessageQueue, ProcessQueue], None] | None = None
    pop_retry: Callable[[str, bool], None] | None = None
    new_process_queue: Callable[[], ProcessQueue] = ProcessQueue
    clock: Callable[[], float] = time.monotonic
    later: Later | None = None
    """None: the loop's `call_later`."""


class Rebalancer:
    """`table`: the pulled queues, `pop_table`: the popped ones. A dropped one is being released."""

    def __init__(
        self, context: RebalanceContext, table: dict[MessageQueue, ProcessQueue] | None = None
    ) -> None:
        self._context = context
        self._owned_queues = OwnedQueues(
            OwnedQueuesContext(
                offsets=context.offsets,
                start_offset=context.start_offset,
                locks=context.locks,
                active=context.active,
                leaving=context.leaving,
                refused=lambda: context.instance.rebalance_soon(LOCK_RETRY_S),
                new_process_queue=context.new_process_queue,
                clock=context.clock,
            ),
            {} if table is None else table,
        )
        self.table, self.pop_table = self._owned_queues.table, self._owned_queues.pop_table
        self._round = asyncio.Lock()
        rebalanced = "%s is rebalanced again, after %d failures"
        self._failing = StateLog(log, rebalanced, context.clock, level=logging.WARNING, quiet_s=FAILING_S)
        known = "the members of group %s are known again, after %d failures"
        self._without_members = StateLog(log, known, context.clock, quiet_s=FAILING_S)
        readable = "topic %s has readable queues again, it had none %d times"
        self._without_queues = StateLog(log, readable, context.clock, quiet_s=FAILING_S)

    async def run(self) -> bool:
        """Rebalance all topics once. Returns whether this member now owns just its queues."""
        async with self._round:
            balanced = True
            for topic in list(self._context.topics()):
                if self._owned_queues.stopped:
                    return True
                retry = topic.startswith(RETRY)
                try:
                    balanced = await self._rebalance_topic(topic) and balanced
                    self._failing.is_absent(topic)
                except ClientError as error:
                    if retry or isinstance(error, NoRoute):  # logged when it was subscribed
                        log.debug("rebalance of %s failed: %s", topic, error)
                    else:
                        self._failing.failed(topic, error, "rebalance of %s failed: %s", topic, error)
                    balanced = balanced and retry
                except Exception:
                    log.exception("rebalance of %s failed", topic)
                    balanced = False
            return await self._owned_queues.leave_topics(set(self._context.topics())) and balanced

    async def remove(self, queue: MessageQueue) -> None:
        """Release one queue regardless of the rules; a later rebalance may acquire it again."""
        await self._owned_queues.remove(queue)

    def stop(self) -> None:
        """Acquire no more queues; a running rebalance unlocks what it has just locked."""
        self._owned_queues.stopped = True

    def close(self) -> None:
        """Drop all queues. Offsets must have been persisted before."""
        self._owned_queues.close()

    @property
    def queues(self) -> Queues:
        """The queues of this member, pulled or popped, without those that are being released."""
        return self._owned_queues.queues

    # ---- which queues to own ----

    async def _rebalance_topic(self, topic: str) -> bool:
        if self._context.broker_assigns:
            return await self._apply_assignment(topic)
        everything = await self._queues(topic)
        if not everything:
            if self._context.model is MessageModel.BROADCASTING or not topic.startswith(RETRY):
                # Without a route it was logged when it was subscribed.
                if self._context.instance.routes.known(topic) is not None:
                    text = "%s has no readable queue: it was deleted, or its permissions forbid reading"
                    self._without_queues.is_there(topic, text, topic)
                await self._notify(topic, frozenset(), frozenset())
            return True
        self._without_queues.is_absent(topic)
        if self._context.model is MessageModel.BROADCASTING:
            mine: Queues | None = everything
        else:
            mine = await self._allocate(topic, everything)
        if mine is None:
            return False
        await self._apply(topic, everything, mine, frozenset())
        return self._owned_queues.is_settled(topic, mine)

    async def _queues(self, topic: str) -> Queues:
        try:
            return frozenset(await self._context.instance.routes.subscribe_queues(topic))
        except NoRoute:
            return frozenset()

    async def _allocate(self, topic: str, everything: Queues) -> Queues | None:
        """The queues of this member. None: they cannot be determined, so nothing changes."""
        context = self._context
        try:
            ids = await self._members(topic)
        except ClientError as error:
            self._failed_members(error)
            return None
        if not ids:
            return None
        try:
            client_id = context.instance.client_id
            return frozenset(
                context.strategy(context.group, client_id, sorted(everything), sorted(ids, key=java_order))
            )
        except Exception:
            log.exception("the allocate strategy %s failed for %s", name_of(context.strategy), topic)
            return None

    async def _members(self, topic: str) -> list[str]:
        """The client ids of the group. A broker that does not list this one gets its heartbeat: it has refused the
        last one, or the group was created after it. The timer's next one may be half a minute away. ClientError.
        """
        instance, group = self._context.instance, self._context.group
        try:
            ids = await consumer_ids(instance, group, topic)
        except BrokerError:
            ids = []
        if instance.client_id in ids:
            self._without_members.is_absent(group)
            return ids
        await instance.heartbeat_brokers_of(topic)
        return await consumer_ids(instance, group, topic)

    async def _is_member(self, topic: str) -> bool:
        try:
            return self._context.instance.client_id in await self._members(topic)
        except ClientError as error:
            self._failed_members(error)
            return False

    def _failed_members(self, error: ClientError) -> None:
        group = self._context.group
        self._without_members.failed(group, error, "could not get the members of group %s: %s", group, error)

    async def _apply_assignment(self, topic: str) -> bool:
        context = self._context
        modes = await query_assignment(
            context.instance, context.group, topic, context.model, name_of(context.strategy)
        )
        known = bool(modes) or context.model is MessageModel.BROADCASTING or await self._is_member(topic)
        if modes is None:
            return False
        self._switch_retries(topic, modes)
        pulled = frozenset(queue for queue, mode in modes.items() if mode is RequestMode.PULL)
        popped = modes.keys() - pulled
        everything = frozenset(context.instance.routes.known_subscribe_queues(topic))
        await self._apply(topic, everything, pulled, frozenset(popped))
        return known and self._owned_queues.is_settled(topic, frozenset(modes))

    def _switch_retries(self, topic: str, modes: Mapping[MessageQueue, RequestMode]) -> None:
        """Popped messages that failed are in a separate retry topic; a member that pulls again must pull it,
        too.
        """
        kinds = set(modes.values())
        if self._context.pop_retry is not None and len(kinds) == 1 and not topic.startswith(RETRY):
            self._context.pop_retry(f"{RETRY}{self._context.group}_{topic}", RequestMode.PULL in kinds)

    # ---- apply the result ----

    async def _apply(self, topic: str, everything: Queues, pulled: Queues, popped: Queues) -> None:
        owned_queues = self._owned_queues
        changed = await owned_queues.drop(topic, pulled)
        changed = owned_queues.drop_pops(topic, popped) or changed
        requests = await owned_queues.add(pulled)
        pops = owned_queues.add_pops(popped)
        if changed or requests or pops:
            log.info(
                "group %s, topic %s: this member now has %d queues",
                self._context.group,
                topic,
                len(pulled | popped),
            )
            await self._notify(topic, everything, pulled | popped)
        for request in requests:
            self._begin_later(request)
        for queue, process_queue in pops:
            self._begin_pop_later(queue, process_queue)

    async def _notify(self, topic: str, everything: Queues, mine: Queues) -> None:
        try:
            await self._context.changed(topic, everything, mine)
        except Exception:
            log.exception("could not notify of the changed queues of %s", topic)

    # ---- start pulling and popping ----

    def _begin_later(self, request: PullRequest) -> None:
        def begin() -> None:
            if not request.process_queue.dropped:
                self._context.begin(request)

        self._call_later(begin)

    def _begin_pop_later(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        begin_pop = self._context.begin_pop

        def begin() -> None:
            if begin_pop is not None and not process_queue.dropped:
                begin_pop(queue, process_queue)

        self._call_later(begin)

    def _call_later(self, begin: Callable[[], None]) -> None:
        later = self._context.later or self._context.instance.loop.call_later
        later(BEGIN_AFTER_S, begin)
