"""PullConsumerRuntime: the parts of a running pull consumer: offsets, prefetching, rebalance.

It is the ConsumerRole that the client instance calls. Used for one start and one end. Event loop only.
"""

import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import ClientError, NoRoute
from firearrow.client.base.hooks import FilterHook
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import PullConsumerOptions
from firearrow.client.base.reports import Reports
from firearrow.client.base.service_state import now_ms
from firearrow.client.diagnostics.inspection import register_inspection_handlers
from firearrow.client.diagnostics.running_info import RunningConsumer, running_info
from firearrow.client.pull.prefetcher import UNKNOWN, PrefetchContext, Prefetcher
from firearrow.client.pull.pull_request import PullClient
from firearrow.client.rebalance.allocate_strategies import strategy_of
from firearrow.client.rebalance.offset_store import OffsetStore, ReadOffset
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.rebalance.rebalance import QueueListener, Queues, RebalanceContext, Rebalancer
from firearrow.client.rebalance.remote_offset_store import default_offset_store
from firearrow.client.rebalance.start_offset import PullRequest, start_offset
from firearrow.client.rebalance.subscription import Subscription
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.queue_offsets import QueueOffsets

log = logging.getLogger("firearrow.client")


@dataclass(slots=True, kw_only=True)
class PullConsumerConfig:
    """The configuration of a pull consumer; names as brokers know them.

    `assigned` is None if it subscribes.
    """

    group: str
    options: PullConsumerOptions
    reports: Reports
    offset_store: OffsetStore | None = None
    filter_hooks: Sequence[FilterHook] = ()
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    listeners: dict[str, QueueListener] = field(default_factory=dict)
    assigned: frozenset[MessageQueue] | None = None
    expressions: dict[str, Subscription] = field(default_factory=dict)
    """The filters of the topics whose queues are assigned."""


class PullConsumerRuntime:
    def __init__(self, instance: ClientInstance, config: PullConsumerConfig) -> None:
        self.instance = instance
        self.group = config.group
        self.config = config
        self.options = options = config.options
        self.running = False
        self._announcing = 0
        """Changes of subscriptions that brokers have not got yet: before, they know nothing of a new group."""
        self.offsets = config.offset_store or default_offset_store(
            instance, self.group, options.model, options.offsets_folder
        )
        self.queue_offsets = QueueOffsets(instance)
        self._started_ms = self._since_ms = now_ms()
        self._process_queues: dict[MessageQueue, ProcessQueue] = {}
        self._start_offset = start_offset(
            self.offsets,
            self.queue_offsets,
            options.from_where,
            int(options.from_time.timestamp() * 1000),
            ReadOffset.MEMORY_FIRST,
            self._since,
        )
        self.tasks = Prefetcher(
            PrefetchContext(
                options=options,
                pull=PullClient(instance, self.group, config.filter_hooks).pull,
                subscription=self._subscription_of,
                start_offset=self._start_offset,
                failed=config.reports.last_error.set,
                exception_delay_s=instance.options.exception_delay_s,
            )
        )
        self.rebalancer = self._make_rebalancer()

    # ---- ConsumerRole: called by the client instance ----

    def topics(self) -> set[str]:
        assigned = self.config.assigned or frozenset()
        return {*self.config.subscriptions, *(queue.topic for queue in assigned)}

    def heartbeat_data(self) -> dict[str, object]:
        """Like Java's, it always reports CONSUME_FROM_LAST_OFFSET."""
        return {
            "groupName": self.group,
            "consumeType": "CONSUME_ACTIVELY",
            "messageModel": self.options.model.value,
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [one.heartbeat_json() for one in self.config.subscriptions.values()],
            "unitMode": False,
        }

    @property
    def rebalances(self) -> bool:
        return self.running and not self._announcing and self.config.assigned is None

    async def rebalance(self) -> bool:
        balanced = await self.rebalancer.run()
        self._report_queues()
        return balanced

    async def persist_offsets(self) -> None:
        await self.offsets.persist_all(list(self.tasks.table))

    def known_offsets(self, topic: str) -> dict[MessageQueue, int]:
        return self.offsets.snapshot(topic)

    async def running_info(self, *, stacks: bool) -> dict[str, object]:
        return await running_info(
            RunningConsumer(
                instance=self.instance,
                group=self.group,
                options=self.options,
                passive=False,
                started_ms=self._started_ms,
                subscriptions=self.config.subscriptions.values(),
                table={queue: pulled.process_queue for queue, pulled in self.tasks.table.items()},
                offsets=self.offsets,
            ),
            stacks=stacks,
        )

    # ---- lifecycle ----

    async def begin(self) -> None:
        """Join the group. After a RocketMQError as well, `end` must be called."""
        await self.offsets.load()
        await self.instance.join_consumer(self)
        register_inspection_handlers(self.instance)
        self.running = True
        await self._announce()
        self._since_ms = now_ms()
        if self.config.assigned is not None:
            self.assign(self.config.assigned)

    async def end(self) -> None:
        """Persist the committed offsets and leave the group."""
        self.running = False
        self.rebalancer.stop()
        await self.tasks.close()
        if self.instance.consumers.get(self.group) is self:
            await self.offsets.persist_final(list(self.tasks.table))
            await self.instance.leave_consumer(self)
        self.rebalancer.close()

    # ---- queues ----

    def subscriptions_changed(self) -> None:
        """Notify the brokers and rebalance, in the background."""
        if self.running:
            self.instance.spawn(self._announce())

    def release_topic(self, topic: str) -> None:
        """Drop the topic's queues at once; the next rebalance persists their offsets."""
        for queue in [queue for queue in self.tasks.table if queue.topic == topic]:
            self._leave(queue)
        self._report_queues()
        self.subscriptions_changed()

    def assign(self, queues: frozenset[MessageQueue]) -> None:
        """Replace the assigned queues."""
        self.config.assigned = queues
        if not self.running:
            return
        self._report_queues()
        for queue in self.tasks.table.keys() - queues:
            self._leave(queue)
            self.instance.spawn(self._forget(queue))
        for queue in sorted(queues - self.tasks.table.keys()):
            self.tasks.begin(queue, ProcessQueue())

    def _report_queues(self) -> None:
        if self.running:
            assigned, topics = self.config.assigned, self.config.subscriptions
            mine = (queue for queue in self.rebalancer.queues if queue.topic in topics)
            self.config.reports.assigned(frozenset(mine) if assigned is None else assigned)

    def commit_done(self) -> None:
        """Commit, in memory, what the user has processed of all our queues."""
        for queue in self.tasks.table:
            self._commit(queue)

    def _commit(self, queue: MessageQueue) -> None:
        pulled = self.tasks.table.get(queue)
        if pulled is not None and pulled.done != UNKNOWN:
            self.offsets.update(queue, pulled.done)

    def _leave(self, queue: MessageQueue) -> None:
        """Drop a queue, before its offset is persisted for the last time."""
        if self.options.auto_commit:
            self._commit(queue)
        self.tasks.drop(queue)

    async def _forget(self, queue: MessageQueue) -> None:
        await self.offsets.persist(queue)
        if queue not in self.tasks.table:
            self.offsets.remove(queue)

    async def _announce(self) -> None:
        """Fetch routes, send heartbeats, rebalance.

        A topic may be created later. ClientError: no name server.
        """
        self._announcing += 1
        try:
            for topic in sorted(self.topics()):
                try:
                    await self.instance.routes.refresh(topic)
                except NoRoute as error:
                    log.info("%s", error)
            self.instance.heartbeats.forget()
            await self.instance.heartbeat_all()
        finally:
            self._announcing -= 1
        self.instance.rebalance_soon()

    async def _changed(self, topic: str, all_queues: Queues, mine: Queues) -> None:
        """Brokers must know the new subscription version before the first pull that contains it."""
        subscription = self.config.subscriptions.get(topic)
        if subscription is not None:
            self.config.subscriptions[topic] = subscription.renewed(now_ms())
        self._report_queues()
        self.instance.heartbeats.forget()
        await self.instance.heartbeat_all()
        listener = self.config.listeners.get(topic)
        if listener is not None:
            result = listener(topic, all_queues, mine)
            if inspect.isawaitable(result):
                await result

    def _begin(self, request: PullRequest) -> None:
        if self.running:
            self.tasks.begin(request.queue, request.process_queue, request.next_offset)

    def _since(self, topic: str) -> int:
        """When this consumer began to want the topic, ms."""
        subscription = self._subscription_of(topic)
        return self._since_ms if subscription is None else max(self._since_ms, subscription.since)

    def _subscription_of(self, topic: str) -> Subscription | None:
        if self.config.assigned is None:
            return self.config.subscriptions.get(topic)
        return self.config.expressions.get(topic)

    # ---- composition ----

    def _make_rebalancer(self) -> Rebalancer:
        subscriptions: Mapping[str, Subscription] = self.config.subscriptions
        context = RebalanceContext(
            instance=self.instance,
            group=self.group,
            model=self.options.model,
            strategy=strategy_of(self.options.allocate),
            offsets=self.offsets,
            topics=lambda: subscriptions,
            start_offset=self._start_offset,
            begin=self._begin,
            changed=self._changed,
            active=True,
            leaving=self._leave,
        )
        return Rebalancer(context, self._process_queues)


class StreamRequestHook:
    """An RpcHook that marks requests as those of a streaming consumer, as Java's pull consumers do."""

    def before(self, address: str, request: RemotingCommand, /) -> None:
        request.ext["ReqT"] = "0"

    def after(self, address: str, request: RemotingCommand, answer: RemotingCommand, /) -> None:
        """Nothing to do."""


async def fetch_queues(instance: ClientInstance, topic: str) -> list[MessageQueue]:
    """The readable queues of a topic, from a new route.

    ClientError: there is no route or no readable queue.
    """
    await instance.routes.refresh(topic)
    queues = instance.routes.known_subscribe_queues(topic)
    if not queues:
        raise ClientError(f"topic {topic} has no readable queue")
    return queues
