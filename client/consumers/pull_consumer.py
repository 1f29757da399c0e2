"""PullConsumer: a member of a group that polls for messages and commits offsets (Java's lite pull consumer).

The public API and lifecycle; PullConsumerRuntime prefetches from the queues. Belongs to the event loop in
which it was started.
"""

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self, Unpack

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.call_hooks import Call, CallKind, call_hooks
from firearrow.client.base.errors import ClientError, ConfigError
from firearrow.client.base.hooks import ConsumeContext, ConsumeHook, ConsumerHooks, check_known, run_hook
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.names import check_group, check_topic
from firearrow.client.base.options import ClientOptions, MessageModel, PullConsumerOptions, client_options
from firearrow.client.base.service_state import ServiceState
from firearrow.client.consumers.pull_consumer_runtime import (
    PullConsumerConfig,
    PullConsumerRuntime,
    StreamRequestHook,
    fetch_queues,
)
from firearrow.client.consumers.trace import ConsumeTracing, TracedConsumerConfig
from firearrow.client.pull.prefetcher import PrefetchedQueue
from firearrow.client.rebalance.allocate_strategies import strategy_of
from firearrow.client.rebalance.local_member import LocalMember
from firearrow.client.rebalance.offset_store import OffsetStore, ReadOffset
from firearrow.client.rebalance.rebalance import QueueListener
from firearrow.client.rebalance.subscription import Subscription
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.service import Service

log = logging.getLogger("firearrow.client")

TopicListener = Callable[[str, list[MessageQueue]], Awaitable[None] | None]
"""Called with `(topic, queues)` when the topic's queues have changed."""
FIRST_CHECK_S = 10


class PullConsumer(Service):
    """Use either `subscribe` (the group shares the queues) or `assign` (you choose the queues), not both.

    `poll` marks the previous batch as done, and commits it if `auto_commit_s` have passed. Unlike Java's
    consumer, `close` and the loss of a queue to another member commit the last batch as well; leaving `async
    with` by an exception does not, so that its messages are redelivered. The committed offset also passes
    messages that a filter excluded. A group's first offset is committed even if there were no messages.
    """

    def __init__(
        self,
        group: str,
        *,
        name_server: str | None = None,
        options: PullConsumerOptions | None = None,
        client: ClientOptions | None = None,
        offset_store: OffsetStore | None = None,
        **hooks: Unpack[ConsumerHooks],
    ) -> None:
        """`offset_store` replaces the broker's offsets (CLUSTERING) or the local file (BROADCASTING).

        ConfigError.
        """
        check_known(hooks, ConsumerHooks)
        self.options = options or PullConsumerOptions()
        super().__init__(
            "consumer",
            client_options(client, name_server),
            (*hooks.get("rpc_hooks", ()), StreamRequestHook()),
            broadcasting=self.options.model is MessageModel.BROADCASTING,
            stream=True,
        )
        strategy_of(self.options.allocate)
        self._consume_hooks = tuple(hooks.get("consume_hooks", ()))
        self._tracing: ConsumeTracing | None = None
        self._config = PullConsumerConfig(
            group=self._namespace.wrap(check_group(group)),
            options=self.options,
            reports=self._reports,
            offset_store=offset_store,
            filter_hooks=hooks.get("filter_hooks", ()),
        )
        self._topic_listeners: dict[str, tuple[TopicListener, set[MessageQueue]]] = {}
        self._runtime: PullConsumerRuntime | None = None
        self._member: LocalMember | None = None
        self._commit_at_s = 0.0

    @property
    def group(self) -> str:
        """The group by its name at the brokers."""
        return self._config.group

    # ---- lifecycle ----

    async def start(self) -> Self:
        """Join the group. A failed start may be repeated. ConfigError, ClientError."""
        await super().start()
        log.info("consumer of group %s started with client id %s", self.group, self.instance.client_id)
        return self

    def _identify(self) -> ClientOptions:
        if self.options.model is MessageModel.CLUSTERING or self._config.offset_store is not None:
            return self._client
        folder = self.options.offsets_folder()
        self._member = LocalMember(folder, self._client, self._config.group, stream=True)
        return self._member.options

    def _left(self) -> None:
        if self._member is not None:
            self._member.release()

    async def _begin(self, instance: ClientInstance) -> None:
        self._runtime = PullConsumerRuntime(instance, self._config)
        await self._runtime.begin()
        traced = TracedConsumerConfig(self.group, self.options, self._namespace, self._consume_hooks)
        self._tracing = ConsumeTracing(traced, instance)
        await self._tracing.start()
        self._commit_at_s = instance.loop.time() + self.options.auto_commit_s
        check_s = self.options.check_queues_s
        instance.every(check_s, self._check_topic_queues, min(check_s, FIRST_CHECK_S))

    async def close(self, *, commit: bool | None = None) -> None:
        """Leave the group. `commit`: the last polled batch is done (default: the option `auto_commit`)."""
        self._check_open_here()
        runtime = self._runtime
        if runtime is not None:
            if self.options.auto_commit if commit is None else commit:
                runtime.tasks.commit_delivered()
            if self.options.auto_commit or commit:
                runtime.commit_done()
        await super().close()

    async def _end(self, instance: ClientInstance) -> None:
        runtime, self._runtime = self._runtime, None
        tracing, self._tracing = self._tracing, None
        if runtime is not None:
            await runtime.end()
        if tracing is not None:
            await tracing.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(commit=None if error is None else False)

    # ---- subscriptions ----

    def subscribe(
        self,
        topic: str,
        tags: str | None = None,
        *,
        sql: str | None = None,
        listener: QueueListener | None = None,
    ) -> None:
        """Share the topic's queues with the group's members.

        `listener` is called when ours change. ConfigError.
        """
        if self._config.assigned is not None:
            raise ConfigError("queues are assigned: use either assign or subscribe, not both")
        self._check_open_here()
        wrapped = self._namespace.wrap(check_topic(topic))
        self._config.subscriptions[wrapped] = Subscription.of(wrapped, tags, sql)
        self._config.listeners.pop(wrapped, None)
        if listener is not None:
            self._config.listeners[wrapped] = self._with_user_names(listener)
        if self._runtime is not None:
            self._runtime.subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """Return no more messages of the topic; its offsets are kept."""
        self._check_open_here()
        wrapped = self._namespace.wrap(topic)
        self._config.listeners.pop(wrapped, None)
        if self._config.subscriptions.pop(wrapped, None) is not None and self._runtime is not None:
            self._runtime.release_topic(wrapped)

    def assign(
        self, queues: Collection[MessageQueue], *, tags: str | None = None, sql: str | None = None
    ) -> None:
        """Consume these queues, whatever other members do.

        The filter applies to all their topics. ConfigError.
        """
        if self._config.subscriptions:
            raise ConfigError("topics are subscribed: use either assign or subscribe, not both")
        if not queues:
            raise ConfigError("queues: at least one queue is required")
        self._check_open_here()
        wrapped = frozenset(self._wrapped(queue) for queue in queues)
        for topic in {queue.topic for queue in wrapped}:
            self._config.expressions[topic] = Subscription.of(check_topic(topic), tags, sql)
        if self._runtime is None:
            self._config.assigned = wrapped
        else:
            self._runtime.assign(wrapped)

    def assignment(self) -> set[MessageQueue]:
        """The queues that this consumer reads now."""
        if self._runtime is None:
            return {self._unwrapped(queue) for queue in self._config.assigned or ()}
        return {self._unwrapped(queue) for queue in self._runtime.tasks.table}

    # ---- messages ----

    async def poll(
        self, timeout_s: float | None = None, max_messages: int | None = None
    ) -> list[ReceivedMessage]:
        """The next messages of one queue, at most `pull_batch`; an empty list after `timeout_s`.

        Marks the previously polled messages as done. Messages of a paused queue that are cached are still
        returned.
        """
        if not call_hooks:
            return await self._poll(timeout_s, max_messages)
        caller = self._caller(self.group, self.options.model.value)
        with Call(CallKind.RECEIVE, "poll", caller, is_batch=True) as call:
            messages = await self._poll(timeout_s, max_messages)
            call.messages = [*messages]
        return messages

    async def _poll(self, timeout_s: float | None, max_messages: int | None) -> list[ReceivedMessage]:
        runtime, loop = self._running(), self.instance.loop
        wait_s = self.options.poll_timeout_s if timeout_s is None else timeout_s
        count_max = self.options.pull_batch if max_messages is None else max_messages
        if wait_s < 0 or count_max < 1:
            raise ConfigError(
                "timeout_s must be at least 0 and max_messages at least 1, "
                f"not {timeout_s} and {max_messages}"
            )
        runtime.tasks.commit_delivered()
        if self.options.auto_commit and loop.time() >= self._commit_at_s:
            runtime.commit_done()
            self._commit_at_s = loop.time() + self.options.auto_commit_s
        batch = await runtime.tasks.poll_batch(wait_s, count_max)
        if batch is None:
            return []
        queue, messages = batch
        for message in messages:
            message.topic = self._namespace.unwrap(message.topic)
        if self._tracing is not None and self._tracing.hooks:
            self._run_hooks(self._tracing.hooks, queue, messages)
        return messages

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Yield messages until the consumer is closed; each is done when the next one is requested."""
        while self.state is ServiceState.RUNNING:
            for message in await self.poll(max_messages=1):
                yield message

    def _run_hooks(
        self, hooks: Sequence[ConsumeHook], queue: MessageQueue, messages: list[ReceivedMessage]
    ) -> None:
        context = ConsumeContext(self.group, self._unwrapped(queue), messages)
        for hook in hooks:
            run_hook(hook.before, context)
        context.success, context.status, context.return_type = True, "CONSUME_SUCCESS", "SUCCESS"
        for hook in hooks:
            run_hook(hook.after, context)

    # ---- offsets ----

    async def commit(
        self,
        offsets: Mapping[MessageQueue, int] | Collection[MessageQueue] | None = None,
        *,
        persist: bool = True,
    ) -> None:
        """Commit what was polled: of all our queues, of these queues, or up to the offsets of a mapping.

        `persist=False` stores it in memory; the broker gets it within `persist_offsets_s`. Queues that are
        not ours any more, and those without a known offset, are skipped: another member commits them.
        """
        runtime = self._running()
        runtime.tasks.commit_delivered()
        mapping = offsets if isinstance(offsets, Mapping) else {}
        queues = None if offsets is None else {self._wrapped(queue) for queue in offsets}
        explicit = {self._wrapped(queue): offset for queue, offset in mapping.items()}
        if any(offset < 0 for offset in explicit.values()):
            raise ConfigError("offsets: an offset must not be negative")
        committed = []
        for queue, pulled in runtime.tasks.table.items():
            offset = explicit.get(queue, -1 if mapping else pulled.done)
            if offset >= 0 and (queues is None or queue in queues):
                runtime.offsets.update(queue, offset)
                committed.append(queue)
        if persist:
            for queue in committed:
                await runtime.offsets.persist(queue)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset in a queue, ours or not; None if it has none.

        OffsetUnknown: it cannot be read.
        """
        offset = await self._running().offsets.read(self._wrapped(queue), ReadOffset.MEMORY_FIRST)
        return offset if offset >= 0 else None

    def position(self, queue: MessageQueue) -> int | None:
        """The offset after the last polled message; None: not known yet.

        ConfigError: the queue is not ours.
        """
        position = self._ours(queue).position
        return position if position >= 0 else None

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue polling at `offset`.

        ConfigError: the queue is not ours, or the broker has no such offset.
        """
        runtime = self._running()
        pulled = self._ours(queue)
        first, last = await self.first_offset(queue), await self.last_offset(queue)
        if not first <= offset <= last:
            raise ConfigError(f"{queue}: offset {offset} is not within {first}..{last}")
        if runtime.tasks.table.get(pulled.queue) is not pulled:
            raise ConfigError(f"{queue} was assigned to another member during the seek")
        runtime.tasks.seek(pulled, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        await self.seek(queue, await self.first_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        await self.seek(queue, await self.last_offset(queue))

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Stop pulling these queues; messages that are cached now are still returned, none that come later.

        ConfigError: a queue is not ours.
        """
        for pulled in [self._ours(queue) for queue in queues]:
            pulled.resumed.clear()

    def resume(self, queues: Collection[MessageQueue]) -> None:
        for pulled in [self._ours(queue) for queue in queues]:
            pulled.resumed.set()

    # ---- queries to brokers ----

    async def fetch_queues(self, topic: str) -> list[MessageQueue]:
        """All readable queues of a topic, sorted. ClientError: there is none."""
        self._running()
        queues = await fetch_queues(self.instance, self._namespace.wrap(topic))
        return [self._unwrapped(queue) for queue in queues]

    async def offset_for_time(self, queue: MessageQueue, when: datetime | int) -> int:
        """The first offset stored at `when` (int: ms since 1970) or later; if none, the next offset."""
        ms = when if isinstance(when, int) else int(when.timestamp() * 1000)
        return await self._running().queue_offsets.offset_at(self._wrapped(queue), ms)

    async def first_offset(self, queue: MessageQueue) -> int:
        return await self._running().queue_offsets.min_offset(self._wrapped(queue))

    async def last_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return await self._running().queue_offsets.max_offset(self._wrapped(queue))

    async def on_queues_changed(self, topic: str, listener: TopicListener) -> None:
        """Call `listener` when the topic's queues change; checked every `check_queues_s`.

        One listener per topic.
        """
        self._topic_listeners[topic] = (listener, set(await self.fetch_queues(topic)))

    async def _check_topic_queues(self) -> None:
        for topic, (listener, known) in list(self._topic_listeners.items()):
            try:
                queues = await self.fetch_queues(topic)
            except ClientError as error:
                log.info("the queues of topic %s cannot be checked: %s", topic, error)
                continue
            if set(queues) != known:
                self._topic_listeners[topic] = (listener, set(queues))
                result = listener(topic, queues)
                if inspect.isawaitable(result):
                    await result

    # ---- internal ----

    def _is_paused(self) -> bool:
        runtime = self._runtime
        table = {} if runtime is None else runtime.tasks.table.copy()
        return bool(table) and not any(pulled.resumed.is_set() for pulled in table.values())

    def _running(self) -> PullConsumerRuntime:
        if self._runtime is None:
            raise self._not_running()
        self._check_loop()
        return self._runtime

    def _ours(self, queue: MessageQueue) -> PrefetchedQueue:
        pulled = self._running().tasks.table.get(self._wrapped(queue))
        if pulled is None:
            raise ConfigError(f"{queue} is not assigned to this consumer; the group may be rebalancing")
        return pulled

    def _with_user_names(self, listener: QueueListener) -> QueueListener:
        def call(
            topic: str, all_queues: frozenset[MessageQueue], mine: frozenset[MessageQueue]
        ) -> Awaitable[None] | None:
            both = (frozenset(map(self._unwrapped, queues)) for queues in (all_queues, mine))
            return listener(self._namespace.unwrap(topic), *both)

        return call

    def _wrapped(self, queue: MessageQueue) -> MessageQueue:
        if not self._namespace.name:
            return queue
        return MessageQueue(self._namespace.wrap(queue.topic), queue.broker_name, queue.queue_id)

    def _unwrapped(self, queue: MessageQueue) -> MessageQueue:
        if not self._namespace.name:
            return queue
        return MessageQueue(self._namespace.unwrap(queue.topic), queue.broker_name, queue.queue_id)
