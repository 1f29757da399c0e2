"""PushConsumerRuntime: the parts of a running push consumer: offsets, handlers, pulls, rebalance, locks.

It is the ConsumerRole that the client instance calls. Used for one start and one end. `consume_service`
composes the concurrent or orderly service; PopRuntime is the POP side of a consumer whose queues brokers
assign: it runs beside the pull side with the same handlers. Event loop only.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import isawaitable

from firearrow._native.protocol.name_rules import retry_topic
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.compression import open_body
from firearrow.client.base.errors import NoRoute
from firearrow.client.base.hooks import ConsumeHook
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import ConsumeFromWhere, MessageModel
from firearrow.client.base.service_state import now_ms
from firearrow.client.consume.concurrent_service import ConcurrentService
from firearrow.client.consume.consume_results import (
    DEAD_LETTER,
    Cancellable,
    ConsumeService,
    concurrent_verdict,
    orderly_verdict,
)
from firearrow.client.consume.direct import answer_consume_directly
from firearrow.client.consume.invoke_listener import Handlers, ListenerInvoker
from firearrow.client.consume.listeners import HandlerThreads, Listeners
from firearrow.client.consume.orderly_service import BrokerLocks, OrderlyService
from firearrow.client.consume.send_back import ORDERLY_RECONSUME_MAX, RECONSUME_MAX, SendBack
from firearrow.client.consumers.push_settings import PushConsumerConfig
from firearrow.client.consumers.retry_producer import RetryProducer
from firearrow.client.consumers.trace import ConsumeTracing
from firearrow.client.diagnostics.inspection import register_inspection_handlers
from firearrow.client.diagnostics.reset_offsets import OffsetReset
from firearrow.client.diagnostics.running_info import RunningConsumer, running_info
from firearrow.client.diagnostics.stats import SAMPLE_S, ConsumerStats
from firearrow.client.pop.ack import AckClient
from firearrow.client.pop.pop_loop import PopClient, PopLoop, PopLoopContext
from firearrow.client.pop.pop_service import PopService
from firearrow.client.pop.start_after_last import StartAfterLast
from firearrow.client.pull.pull_request import PullClient
from firearrow.client.pull.push_pull_loop import PullLoop, PullLoopContext
from firearrow.client.rebalance.allocate_strategies import strategy_of
from firearrow.client.rebalance.offset_store import OffsetStore
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.rebalance.queue_locks import QueueLocks
from firearrow.client.rebalance.rebalance import Queues, RebalanceContext, Rebalancer
from firearrow.client.rebalance.remote_offset_store import default_offset_store
from firearrow.client.rebalance.start_offset import PullRequest, start_offset
from firearrow.client.rebalance.subscription import check_filters
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.queue_offsets import QueueOffsets
from firearrow.client.remoting.service import caller_of


def consume_service(
    config: PushConsumerConfig,
    hooks: Sequence[ConsumeHook],
    *,
    instance: ClientInstance,
    offsets: OffsetStore,
    table: Mapping[MessageQueue, ProcessQueue],
    stats: ConsumerStats,
    locks: BrokerLocks | None,
    publish: Callable[[Message], Awaitable[object]],
) -> ConsumeService:
    """The concurrent or orderly service.

    `locks`: broker locks of an orderly group. `publish`: sends to its retry topic.
    """
    options = config.options
    invoker = handlers(config, hooks, instance, stats)
    back = send_back(config, instance, publish)
    if options.orderly:
        return OrderlyService(
            invoker,
            offsets=offsets,
            locks=locks,
            publish=back.publish,
            max_reconsume_times=back.max_reconsume_times,
            every=instance.every,
            suspend_s=options.suspend_s,
            auto_commit=options.auto_commit,
        )
    return ConcurrentService(
        invoker,
        offsets=offsets,
        send_back=back.back if options.model is MessageModel.CLUSTERING else None,
        queues=table.values,
        every=instance.every,
        timeout_s=options.consume_timeout_s,
    )


def handlers(
    config: PushConsumerConfig, hooks: Sequence[ConsumeHook], instance: ClientInstance, stats: ConsumerStats
) -> Handlers:
    """The handler calls by the user's options, with a separate thread pool."""
    options = config.options
    threads = HandlerThreads(f"ConsumeMessageThread_{config.group}", options.threads)
    calls = ListenerInvoker(
        group=config.group,
        listeners=Listeners(config.subscriptions.handler_of, threads),
        judge=orderly_verdict if options.orderly else concurrent_verdict,
        stats=stats,
        hooks=hooks,
        namespace=config.namespace,
        timeout_s=options.consume_timeout_s,
    )
    calls.caller = caller_of(instance, config.namespace, config.group, options.model.value)
    calls.failed = config.reports.last_error.set
    loops = config.loops if config.is_iterated else None
    return Handlers(
        calls=calls,
        threads=threads,
        at_a_time=options.threads,
        batch_size=options.batch_size if loops is None else 1,
        turn=None if loops is None else loops.turn,
    )


def send_back(
    config: PushConsumerConfig, instance: ClientInstance, publish: Callable[[Message], Awaitable[object]]
) -> SendBack:
    times_max = config.options.max_reconsume_times
    if times_max < 0:
        times_max = ORDERLY_RECONSUME_MAX if config.options.orderly else RECONSUME_MAX
    return SendBack(
        group=config.group,
        max_reconsume_times=times_max,
        caller=instance,
        publish=publish,
        namespace=config.namespace,
    )


class PopRuntime:
    def __init__(
        self,
        config: PushConsumerConfig,
        hooks: Sequence[ConsumeHook],
        *,
        instance: ClientInstance,
        stats: ConsumerStats,
        back: SendBack,
        running: Callable[[], bool],
        paused: Callable[[], bool],
    ) -> None:
        options = config.options
        self.service = PopService(
            handlers(config, hooks, instance, stats),
            acks=AckClient(instance, config.group, instance.options.api_timeout_s),
            max_reconsume_times=back.max_reconsume_times,
            dead_letter=lambda message: back.back(message, DEAD_LETTER),
        )
        last = options.from_where is ConsumeFromWhere.LAST_OFFSET
        self._first = StartAfterLast(instance, config.group) if last else None
        self.loop = PopLoop(
            PopLoopContext(
                group=config.group,
                options=options,
                pop=PopClient(instance, first=None if self._first is None else self._first.ensure).pop,
                sink=self.service,
                subscriptions=config.subscriptions,
                running=running,
                paused=paused,
                stats=stats,
                failed=config.reports.last_error.set,
                max_reconsume_times=back.max_reconsume_times,
                filters=config.filter_hooks,
                exception_delay_s=instance.options.exception_delay_s,
            )
        )

    async def started(self, topics: Iterable[str]) -> None:
        """The consumer has started, and knows the routes of its topics."""
        if self._first is not None:
            await asyncio.gather(*(self._first.begin(topic) for topic in topics))

    def begin(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        self.loop.begin(queue, process_queue)

    async def stop(self, drain_s: float) -> None:
        """Stop popping. Running handlers have `drain_s` seconds to finish; their results are acknowledged."""
        await self.loop.stop()
        await self.service.stop(drain_s)


log = logging.getLogger("firearrow.client")


class PushConsumerRuntime:
    """`running`: pulls may continue."""

    def __init__(self, instance: ClientInstance, config: PushConsumerConfig) -> None:
        self.instance = instance
        self.group = config.group
        self.config = config
        self.options = options = config.options
        self.running = False
        self._announced = False
        """Brokers have got the first heartbeat: before, they know nothing of a new group."""
        self.stats = ConsumerStats()
        self._sampler: Cancellable | None = None
        self.table: dict[MessageQueue, ProcessQueue] = {}
        self.offsets = config.offset_store or default_offset_store(
            instance, self.group, options.model, options.offsets_folder
        )
        self._retry_producer = RetryProducer(instance.options)
        self._tracing = ConsumeTracing(config, instance)
        self._locks = _PersistingLocks(self) if options.orderly and self._clustering else None
        self.service = consume_service(
            config,
            self._tracing.hooks,
            instance=instance,
            offsets=self.offsets,
            table=self.table,
            stats=self.stats,
            locks=self._locks,
            publish=self._retry_producer.publish,
        )
        self._pop_runtime = None if options.client_rebalance else self._make_pop_runtime()
        self._start_offset = start_offset(
            self.offsets,
            QueueOffsets(instance),
            options.from_where,
            int(options.from_time.timestamp()) * 1000,
            since=self._since,
        )
        self._puller = PullClient(instance, self.group, config.filter_hooks)
        self.pulls = self._make_loop()
        self.rebalancer = self._make_rebalancer()
        self._reset = OffsetReset(
            rebalancer=self.rebalancer,
            offsets=self.offsets,
            pause=self.pause,
            resume=self._resume,
            orderly=self._locks is not None,
        )
        self._started_ms = self._since_ms = now_ms()
        register_inspection_handlers(instance)
        register_consume_directly_handler(instance)

    # ---- ConsumerRole: invoker by the client instance ----

    def topics(self) -> set[str]:
        return set(self.config.subscriptions)

    def heartbeat_data(self) -> dict[str, object]:
        return {
            "groupName": self.group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": self.options.model.value,
            "consumeFromWhere": self.options.from_where.value,
            "subscriptionDataSet": [
                subscription.heartbeat_json() for subscription in self.config.subscriptions.for_heartbeat()
            ],
            "unitMode": False,
        }

    @property
    def rebalances(self) -> bool:
        return self.running and self._announced

    async def rebalance(self) -> bool:
        """A paused consumer keeps its queues."""
        if self.pulls.paused:
            return False
        balanced = await self.rebalancer.run()
        self._report_queues()
        return balanced

    async def persist_offsets(self) -> None:
        await self.offsets.persist_all(list(self.table))

    # ---- lifecycle ----

    async def begin(self) -> None:
        """Join the group, in Java's order. After a RocketMQError as well, `end` must be invoker."""
        await self.offsets.load()
        await self.service.start()
        await self.instance.join_consumer(self)
        if self._locks is not None:
            self.instance.lost_listeners.append(self._locks.broker_lost)
        self._sampler = self.instance.every(SAMPLE_S, self.stats.sample)
        self.running = True
        await self._fetch_routes()
        await check_filters(self.instance, self.group, self.config.subscriptions)
        beaten = await self.instance.heartbeat_all()
        self._announced = True
        if self._pop_runtime is not None:
            await self._pop_runtime.started(self.config.subscriptions)
        if beaten:
            self.instance.rebalance_soon()
        await self._tracing.start()
        self._since_ms = now_ms()

    async def end(self, drain_s: float) -> None:
        """Stop pulling, let handlers finish, persist the offsets, leave the group."""
        self.running = False
        self.rebalancer.stop()
        self.config.loops.end()
        await self.pulls.stop()
        stopping = [self.service.stop(drain_s)]
        if self._pop_runtime is not None:
            stopping.append(self._pop_runtime.stop(drain_s))
        try:
            await asyncio.gather(*stopping)
            if self.instance.consumers.get(self.group) is self:
                await self.offsets.persist_final(list(self.table))
        finally:
            await self._leave()

    async def _leave(self) -> None:
        if self._locks is not None and self._locks.broker_lost in self.instance.lost_listeners:
            self.instance.lost_listeners.remove(self._locks.broker_lost)
        if self._sampler is not None:
            self._sampler.cancel()
        await self.instance.leave_consumer(self)
        self.rebalancer.close()
        await self._retry_producer.close()
        await self._tracing.close()

    async def subscriptions_changed(self) -> None:
        """Notify brokers and rebalance at once. Java waits for its timers: up to half a minute."""
        await self._fetch_routes()
        self.instance.heartbeats.forget()
        await self.instance.heartbeat_all()
        if self._pop_runtime is not None:
            await self._pop_runtime.started(self.config.subscriptions)
        self.instance.rebalance_soon()

    async def _fetch_routes(self) -> None:
        """A topic that does not exist yet may be created later. ClientError: no name server."""
        for topic in self.config.subscriptions:
            try:
                await self.instance.routes.refresh(topic)
            except NoRoute as error:
                log.log(logging.DEBUG if topic.startswith("%") else logging.INFO, "%s", error)

    # ---- requests of operators ----

    def known_offsets(self, topic: str) -> dict[MessageQueue, int]:
        return self.offsets.snapshot(topic)

    async def running_info(self, *, stacks: bool) -> dict[str, object]:
        running = RunningConsumer(
            instance=self.instance,
            group=self.group,
            options=self.options,
            passive=True,
            started_ms=self._started_ms,
            subscriptions=self.config.subscriptions.values(),
            table=self.table,
            pop_table=self.rebalancer.pop_table,
            offsets=self.offsets,
            stats=self.stats,
        )
        return await running_info(running, stacks=stacks)

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        await self._reset.run(topic, offsets)

    def pause(self) -> None:
        self.pulls.paused = True

    def resume(self) -> None:
        self.pulls.paused = False
        self.instance.rebalance_soon()

    # ---- events of queues ----

    async def _changed(self, topic: str, all_queues: Queues, mine: Queues) -> None:
        """Notify brokers, then the user, before new queues are pulled."""
        self.config.subscriptions.renew(topic)
        self.pulls.thresholds.spread(self.options, len(self.table))
        self._report_queues()
        self.instance.heartbeats.forget()
        await self.instance.heartbeat_all()
        if self.config.queue_listener is not None:
            result = self.config.queue_listener(topic, all_queues, mine)
            if isawaitable(result):
                await result

    def _report_queues(self) -> None:
        if self.running:
            self.config.reports.assigned(self.rebalancer.queues)

    async def _repair(self, request: PullRequest) -> None:
        """The broker has no such offset: store a valid one, frozen, so that late results do not change it."""
        self.offsets.update_and_freeze(request.queue, request.next_offset)
        await self.offsets.persist(request.queue)
        await self.rebalancer.remove(request.queue)
        self.instance.rebalance_soon()

    def _pop_retry(self, retry: str, subscribe: bool) -> None:
        """The broker switched us from POP to pull: failed messages are in POP's separate retry topic."""
        if not subscribe:
            self.config.subscriptions.drop(retry)
        elif retry not in self.config.subscriptions:
            self.config.subscriptions.add_retries(retry, retry.removeprefix(f"{retry_topic(self.group)}_"))
            self.instance.heartbeats.forget()

    async def _resume(self) -> None:
        self.resume()

    def _begin(self, request: PullRequest) -> None:
        if self.running:
            self.pulls.begin(request)

    def _begin_pop(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        if self.running and self._pop_runtime is not None:
            self._pop_runtime.begin(queue, process_queue)

    def _since(self, topic: str) -> int:
        """When this consumer began to want the topic, ms."""
        subscription = self.config.subscriptions.get(topic)
        return self._since_ms if subscription is None else max(self._since_ms, subscription.since)

    # ---- composition ----

    @property
    def _clustering(self) -> bool:
        return self.options.model is MessageModel.CLUSTERING

    def _make_pop_runtime(self) -> PopRuntime:
        return PopRuntime(
            self.config,
            self._tracing.hooks,
            instance=self.instance,
            stats=self.stats,
            back=send_back(self.config, self.instance, self._retry_producer.publish),
            running=lambda: self.running,
            paused=lambda: self.pulls.paused,
        )

    def _make_loop(self) -> PullLoop:
        return PullLoop(
            PullLoopContext(
                options=self.options,
                puller=self._puller,
                offsets=self.offsets,
                service=self.service,
                subscriptions=self.config.subscriptions,
                running=lambda: self.running,
                start_offset=self._start_offset,
                lock=None if self._locks is None else self._locks.lock,
                repair=self._repair,
                stats=self.stats,
                failed=self.config.reports.last_error.set,
                exception_delay_s=self.instance.options.exception_delay_s,
            )
        )

    def _make_rebalancer(self) -> Rebalancer:
        context = RebalanceContext(
            instance=self.instance,
            group=self.group,
            model=self.options.model,
            strategy=strategy_of(self.options.allocate),
            offsets=self.offsets,
            topics=lambda: self.config.subscriptions,
            start_offset=self._start_offset,
            begin=self._begin,
            changed=self._changed,
            locks=self._locks,
            broker_assigns=not self.options.client_rebalance,
            begin_pop=self._begin_pop,
            pop_retry=self._pop_retry,
        )
        return Rebalancer(context, self.table)


def register_consume_directly_handler(instance: ClientInstance) -> None:
    """Handle CONSUME_MESSAGE_DIRECTLY for all push consumers of the instance."""

    def service_of(group: str) -> ConsumeService | None:
        consumer = instance.consumers.get(group)
        return consumer.service if isinstance(consumer, PushConsumerRuntime) else None

    async def directly(request: RemotingCommand, address: str) -> RemotingCommand:
        log.info("%s requests to consume a message directly", address)
        return await answer_consume_directly(request, service_of, open_body)

    instance.register_handler(RequestCode.CONSUME_MESSAGE_DIRECTLY, directly)


class _PersistingLocks(QueueLocks):
    """Queue locks that persist our offsets before other members can get the queues."""

    def __init__(self, runtime: PushConsumerRuntime) -> None:
        super().__init__(runtime.instance, runtime.group, runtime.table)
        self._runtime = runtime

    async def unlock_all(self) -> None:
        await self._runtime.persist_offsets()
        await super().unlock_all()
