"""PushConsumer: passes a group's messages to handlers, which are plain functions (in threads) or coroutines.

The public API and lifecycle; PushConsumerRuntime does the work. Belongs to the event loop in which it was
started.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Self, TypeVar, Unpack, overload

from firearrow._native.protocol.name_rules import retry_topic
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import ConfigError, NotRunning
from firearrow.client.base.hooks import ConsumerHooks, check_known
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.names import check_group, check_topic
from firearrow.client.base.options import ClientOptions, MessageModel, PushConsumerOptions, client_options
from firearrow.client.base.service_state import ServiceState
from firearrow.client.consume.listeners import Handler, check_handler
from firearrow.client.consume.message_loops import MessageLoops
from firearrow.client.consume.signals import on_stop_signals
from firearrow.client.consume.subscriptions import Subscriptions
from firearrow.client.consumers.push_consumer_runtime import PushConsumerRuntime
from firearrow.client.consumers.push_settings import PushConsumerConfig
from firearrow.client.diagnostics.stats import ConsumeStatus
from firearrow.client.rebalance.allocate_strategies import strategy_of
from firearrow.client.rebalance.local_member import LocalMember
from firearrow.client.rebalance.offset_store import OffsetStore
from firearrow.client.rebalance.rebalance import QueueListener
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.service import Service

log = logging.getLogger("firearrow.client")

MIXED = "subscribe all topics with handlers, or all without for `async for`, not both"
AnyHandler = TypeVar("AnyHandler", bound=Handler)


class PushConsumer(Service):
    """One member of a group.

    Each topic has a handler, which is called with a list of at most `batch_size` messages.

    A handler that returns None, True or ConsumeResult.SUCCESS has consumed its messages. They are redelivered
    later if it raises or returns False or RETRY_LATER. (In Java, returning null means retry; here None means
    success.)
    """

    def __init__(
        self,
        group: str,
        *,
        name_server: str | None = None,
        options: PushConsumerOptions | None = None,
        client: ClientOptions | None = None,
        offset_store: OffsetStore | None = None,
        queue_listener: QueueListener | None = None,
        **hooks: Unpack[ConsumerHooks],
    ) -> None:
        """`offset_store` replaces the broker's offsets (CLUSTERING) or the local file (BROADCASTING).

        ConfigError.
        """
        check_known(hooks, ConsumerHooks)
        self.options = options or PushConsumerOptions()
        super().__init__(
            "consumer",
            client_options(client, name_server),
            hooks.get("rpc_hooks", ()),
            broadcasting=self.options.model is MessageModel.BROADCASTING,
        )
        strategy_of(self.options.allocate)
        self._config = PushConsumerConfig(
            group=self._namespace.wrap(check_group(group)),
            options=self.options,
            namespace=self._namespace,
            subscriptions=Subscriptions(self._namespace),
            reports=self._reports,
            loops=MessageLoops(),
            offset_store=offset_store,
            queue_listener=queue_listener,
            consume_hooks=hooks.get("consume_hooks", ()),
            filter_hooks=hooks.get("filter_hooks", ()),
        )
        self._runtime: PushConsumerRuntime | None = None
        self._member: LocalMember | None = None
        self._drain_s = 0.0
        self._stopped = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None

    # ---- subscriptions ----

    @overload
    def subscribe(
        self, topic: str, handler: None = None, *, tags: str | None = None, sql: str | None = None
    ) -> "SubscribeDecorator": ...
    @overload
    def subscribe(
        self, topic: str, handler: AnyHandler, *, tags: str | None = None, sql: str | None = None
    ) -> AnyHandler: ...
    def subscribe(
        self, topic: str, handler: Handler | None = None, *, tags: str | None = None, sql: str | None = None
    ) -> "SubscribeDecorator | Handler":
        """Pass the topic's messages to `handler`. ConfigError.

        Without a handler, they are for `async for message in consumer`; the result is a decorator, which makes a
        function their handler. `tags`: separated by `||`; `sql`: an SQL92 expression over properties; neither: all
        messages. While the consumer runs, brokers are notified at once.
        """
        check_topic(topic)
        config = self._config
        if handler is None:
            if self._runtime is None or config.is_iterated:
                self._subscribe(topic, tags, sql, config.loops.handle)
            return SubscribeDecorator(partial(self.subscribe, topic, tags=tags, sql=sql))
        check_handler(topic, handler)
        if self._runtime is not None and config.is_iterated:
            raise ConfigError(f"{topic}: {MIXED}")
        self._subscribe(topic, tags, sql, handler)
        return handler

    def _subscribe(self, topic: str, tags: str | None, sql: str | None, handler: Handler) -> None:
        self._check_open_here()
        self._config.subscriptions.add(topic, tags, sql, handler)
        self._notify_runtime()

    def unsubscribe(self, topic: str) -> None:
        """Stop pulling the topic. Messages that were pulled before still go to the handler."""
        self._check_open_here()
        if self._config.subscriptions.drop(topic):
            self._notify_runtime()

    # ---- lifecycle ----

    async def start(self) -> Self:
        """Join the group. A failed start may be repeated. ConfigError, ClientError."""
        await super().start()
        log.info("consumer of group %s started with client id %s", self.group, self.client_id)
        return self

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Yield messages of the topics that were subscribed without a handler, until `stop` or `close`.

        A message is acknowledged when the loop asks for the next one, and at `stop`. A loop that is left otherwise, by
        `break`, an exception or a cancellation, has not handled its last message: it is redelivered as if a handler had
        failed. Several tasks may iterate, up to `threads` at a time. NotRunning, ConfigError.
        """
        self._running()
        if not self._config.is_iterated:
            raise ConfigError(f"the messages go to handlers: {MIXED}")
        return self._config.loops.messages()

    def _prepare(self) -> None:
        handlers = self._config.subscriptions.handlers
        if not handlers:
            raise ConfigError("no topic is subscribed: a push consumer needs a handler, call subscribe first")
        if self._config.is_iterated and any(handler != self._config.loops.handle for handler in handlers):
            raise ConfigError(MIXED)
        if self.options.model is MessageModel.CLUSTERING:
            self._config.subscriptions.add_all_of(retry_topic(self.group))

    def _identify(self) -> ClientOptions:
        if self.options.model is MessageModel.CLUSTERING or self._config.offset_store is not None:
            return self._client
        folder = self.options.offsets_folder()
        self._member = LocalMember(folder, self._client, self._config.group)
        return self._member.options

    def _left(self) -> None:
        if self._member is not None:
            self._member.release()

    async def _begin(self, instance: ClientInstance) -> None:
        self._config.loops.begin()
        self._runtime = PushConsumerRuntime(instance, self._config)
        try:
            await self._runtime.begin()
        except ConfigError:
            self.state = ServiceState.CREATE_JUST
            raise

    async def close(self, drain_s: float | None = None) -> None:
        """Leave the group.

        Running handlers have `drain_s` to finish (default: the option); their results count.

        Handlers must not call it, since it waits for them: they call `stop`.
        """
        self._check_open_here()
        self._config.loops.leave(asyncio.current_task())
        self._stop()
        if self._ending is None:
            self.state = ServiceState.SHUTDOWN_ALREADY
            self._drain_s = self.options.drain_s if drain_s is None else drain_s
            self._ending = asyncio.get_running_loop().create_task(self._leave())
        await asyncio.shield(self._ending)

    async def run(self) -> None:
        """Start if necessary, run until `stop`, `close`, SIGTERM or SIGINT, then drain and close."""
        if self._config.is_iterated:
            raise ConfigError("a topic has no handler: pass one to subscribe, or iterate over the consumer")
        with on_stop_signals(self.stop):
            if self.state is not ServiceState.RUNNING:
                await self.start()
            try:
                await self._stopped.wait()
            finally:
                await self.close()

    @property
    def drain_s(self) -> float:
        return self.options.drain_s

    def stop(self) -> None:
        """Make `run` return, and `async for` end after the message that it has. Any thread of the process."""
        try:
            self._check_open_here()
        except NotRunning:
            if self._bound_loop is None or self._bound_forks != self.forks:
                raise
            self._bound_loop.call_soon_threadsafe(self._stop)
        else:
            self._stop()

    def _stop(self) -> None:
        self._stopped.set()
        self._config.loops.end()

    def pause(self) -> None:
        """Stop pulling until `resume`. Messages that were pulled before are still handled, none that come later."""
        self._running().pause()

    def resume(self) -> None:
        self._running().resume()

    # ---- properties ----

    @property
    def group(self) -> str:
        """The group by its name at the brokers."""
        return self._config.group

    @property
    def client_id(self) -> str | None:
        """None before the start."""
        return None if self._instance is None else self._instance.client_id

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """The queues that this consumer owns now; topics by their names at the brokers."""
        table = {} if self._runtime is None else self._runtime.table
        return frozenset(queue for queue, process_queue in table.items() if not process_queue.dropped)

    def stats(self, topic: str) -> ConsumeStatus:
        """How fast the consumer pulls and handles a topic; without the namespace prefix."""
        return self._running().stats.status(self._namespace.wrap(topic))

    @property
    def paused(self) -> bool:
        runtime = self._runtime
        return runtime is not None and runtime.pulls.paused

    def _is_paused(self) -> bool:
        return self.paused

    def _running(self) -> PushConsumerRuntime:
        if self._runtime is None or self.state is not ServiceState.RUNNING:
            raise self._not_running()
        self._check_loop()
        return self._runtime

    def _notify_runtime(self) -> None:
        if self._runtime is not None and self.state is ServiceState.RUNNING:
            self._runtime.instance.spawn(self._runtime.subscriptions_changed())

    async def _end(self, instance: ClientInstance) -> None:
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.end(self._drain_s)


class SubscribeDecorator:
    """The decorator that `subscribe` returns when it is called without a handler."""

    def __init__(self, subscribe: Callable[[Handler], object]) -> None:
        self._subscribe = subscribe

    def __call__(self, handler: AnyHandler) -> AnyHandler:
        self._subscribe(handler)
        return handler
