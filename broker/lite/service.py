"""LiteService: what a request changes in subscriptions, offsets and events of lite topics together. Loop thread."""

from collections.abc import Callable, Collection, Container, Iterable
from typing import NamedTuple

from firearrow._native.protocol import name_rules
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.lmq import LMQ_QUEUE_ID
from firearrow.broker.lite.events import LiteEvents
from firearrow.broker.lite.subscriptions import LiteClient, LiteSubscriptions
from firearrow.broker.pop.order_info import ConsumerOrderInfo
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.groups import GroupConfig
from firearrow.broker.tables.offsets import ConsumerOffsets

POLICY, OFFSET, TAIL_N, TIMESTAMP = "POLICY", "OFFSET", "TAIL_N", "TIMESTAMP"
FROM_FIRST, FROM_END = 1, 2
"""Values of POLICY; 0, the last offset, changes nothing."""
QUOTA_SLACK = 300
"""A client may be over its quota by this number, since it counts itself (Apache)."""


class SubscriptionsFull(Exception):
    """A limit of subscriptions is reached; the text names it."""


class StartAt(NamedTuple):
    """Where a client that subscribes wants to begin (Apache: OffsetOption). `kind`: POLICY, OFFSET, TAIL_N, TIMESTAMP
    in ms."""

    kind: str
    value: int


class LiteService:
    """`count_max()`: most subscriptions of all clients."""

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsets,
        clients: ClientTable,
        subscriptions: LiteSubscriptions,
        events: LiteEvents,
        orders: ConsumerOrderInfo,
        count_max: Callable[[], int],
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._clients = clients
        self.subscriptions = subscriptions
        self.events = events
        self.orders = orders
        self._count_max = count_max

    # ---- subscriptions ----

    def add(
        self, group: GroupConfig, client_id: str, topic: str, queues: Collection[str], start: StartAt | None
    ) -> None:
        """The client subscribes to more lite topics. SubscriptionsFull."""
        client = LiteClient(group.name, client_id)
        known = self._queues_of(client, topic)
        self._check(group, len(known), sum(queue not in known for queue in queues))
        for queue in queues:
            if group.is_lite_exclusive:
                self._exclude_others(group, client, queue)
            if start is not None:
                self._begin_at(group.name, queue, start)
        self._subscribe(client, topic, queues)

    def replace(self, group: GroupConfig, client_id: str, topic: str, queues: Collection[str]) -> None:
        """All lite topics that the client subscribes to. SubscriptionsFull."""
        client, wanted = LiteClient(group.name, client_id), set(queues)
        known = self._queues_of(client, topic)
        self._check(group, 0, len(wanted), has=len(known))
        self._unsubscribe(client, [queue for queue in known if queue not in wanted])
        self._subscribe(client, topic, queues)

    def remove(self, group: GroupConfig, client_id: str, queues: Collection[str]) -> None:
        client = LiteClient(group.name, client_id)
        for queue in self._unsubscribe(client, queues):
            if group.resets_when_unsubscribed:
                self._begin_at(group.name, queue, StartAt(POLICY, FROM_FIRST))

    def drop(self, client: LiteClient) -> None:
        """The client has ended."""
        self.subscriptions.drop(client)
        self.events.drop(client)

    def expire(self, older_than_ms: int, groups: Container[str]) -> None:
        """Drop the clients that have not repeated their subscriptions since, and those of groups that are deleted."""
        for client in self.subscriptions.expired(older_than_ms, groups):
            self.drop(client)

    def _queues_of(self, client: LiteClient, topic: str) -> Collection[str]:
        """What the client subscribes to, which counts as repeated. One that subscribes to nothing is not kept: there
        could be any number of them."""
        if self.subscriptions.get(client) is None:
            return ()
        return self.subscriptions.touch(client, topic).queues

    def _check(self, group: GroupConfig, known: int, more: int, has: int = 0) -> None:
        if known + more > group.lite_quota + QUOTA_SLACK:
            raise SubscriptionsFull(f"lite subscription quota exceeded: {group.lite_quota}")
        most = self._count_max()
        if more > has and self.subscriptions.count - has + more > most:
            raise SubscriptionsFull(f"lite subscription quota exceeded {most}")

    def _subscribe(self, client: LiteClient, topic: str, queues: Iterable[str]) -> None:
        added = [queue for queue in queues if self.subscriptions.add(client, topic, queue)]
        self.events.offer_to(client, [queue for queue in added if self.lag(client.group, queue)])

    def _unsubscribe(self, client: LiteClient, queues: Iterable[str]) -> list[str]:
        removed = self.subscriptions.remove(client, queues)
        self.events.forget(client, removed)
        return removed

    def _exclude_others(self, group: GroupConfig, client: LiteClient, queue: str) -> None:
        for other in self.subscriptions.clients(queue, group.name):
            if other == client:
                continue
            self._unsubscribe(other, (queue,))
            if group.resets_when_excluded:
                self._begin_at(group.name, queue, StartAt(POLICY, FROM_FIRST))
            self._notify(other, queue)

    def _notify(self, client: LiteClient, queue: str) -> None:
        """Another client has taken the lite topic over."""
        online = self._clients.consumer_group(client.group)
        member = None if online is None else online.member(client.client_id)
        if member is not None and not member.peer.closed:
            ext = {
                "clientId": client.client_id,
                "consumerGroup": client.group,
                "liteTopic": name_rules.lite_names(queue)[1],
            }
            member.peer.oneway(RemotingCommand.request(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, ext, oneway=True))

    # ---- offsets ----

    def lag(self, group: str, queue: str) -> int:
        """Messages of the lite topic that the group has not acknowledged."""
        committed = self._offsets.query(group, queue, LMQ_QUEUE_ID)
        return max(self._store.reader.max_offset(queue, LMQ_QUEUE_ID) - max(committed, 0), 0)

    def unblocked(self, group: str, queue: str) -> None:
        """The group may pop the queue again."""
        if self.lag(group, queue):
            self.events.offer(queue, group)

    def suspend(self, queue: str, group: str, pop_ms: int, visible_ms: int) -> None:
        """All messages of a pop are invisible until then, without counting that as a delivery."""
        self.orders.suspend(queue, group, LMQ_QUEUE_ID, pop_ms, visible_ms)

    def dispatch(self, client: LiteClient) -> int:
        """Look for messages in all lite topics of the client; returns how many have some."""
        known = self.subscriptions.get(client)
        queues = [] if known is None else [queue for queue in known.queues if self.lag(client.group, queue)]
        self.events.offer_to(client, queues)
        return len(queues)

    def _begin_at(self, group: str, queue: str, start: StartAt) -> None:
        committed = self._offsets.query(group, queue, LMQ_QUEUE_ID)
        end = self._store.reader.max_offset(queue, LMQ_QUEUE_ID)
        target = None
        if start.kind == POLICY and start.value in (FROM_FIRST, FROM_END):
            target = 0 if start.value == FROM_FIRST else end
        elif start.kind == OFFSET:
            target = min(max(start.value, 0), end)
        elif start.kind == TAIL_N and committed >= 0:
            target = min(max(committed - max(start.value, 0), 0), end)
        elif start.kind == TIMESTAMP and end:
            target = self._store.reader.offset_by_time(queue, LMQ_QUEUE_ID, max(start.value, 0))
        if target is not None and target != committed:
            self._offsets.reset(group, queue, LMQ_QUEUE_ID, target)
            self.orders.clear(queue, group, LMQ_QUEUE_ID)

    # ---- lite topics that end ----

    def forget(self, queue: str, groups: Iterable[str]) -> None:
        """The lite topic is deleted. `groups`: those of its topic; deleted ones may have left offsets. Its
        subscriptions stay: its next message creates it again."""
        for group in {*groups, *self._offsets.groups_of(queue)}:
            self._offsets.remove(group, queue)
            self.orders.clear(queue, group, LMQ_QUEUE_ID)
