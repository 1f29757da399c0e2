"""PushConsumer: messages of a group's topics, brought to handlers: plain functions (in threads) or coroutine functions.

The public face and its life; what works within is PushConsumerRuntime. Belongs to the event loop it was started in.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Self, TypeVar, Unpack, overload

from firearrow.client.base.errors import ConfigError
from firearrow.client.base.hooks import ConsumerHooks, check_known
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.names import check_group, check_topic, retry_topic
from firearrow.client.base.options import ClientOptions, MessageModel, PushConsumerOptions, client_options
from firearrow.client.base.service_state import ServiceState
from firearrow.client.consume.listeners import Handler
from firearrow.client.consume.signals import on_stop_signals
from firearrow.client.consume.subscriptions import Subscriptions
from firearrow.client.consumers.push_consumer_runtime import PushConsumerRuntime
from firearrow.client.consumers.push_settings import PushConsumerConfig
from firearrow.client.diagnostics.stats import ConsumeStatus
from firearrow.client.rebalance.allocate_strategies import strategy_of
from firearrow.client.rebalance.offset_store import OffsetStore
from firearrow.client.rebalance.rebalance import QueueListener
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.service import Service

log = logging.getLogger("firearrow.client")

AnyHandler = TypeVar("AnyHandler", bound=Handler)


class PushConsumer(Service):
    """One member of a group. Each topic has a handler, which gets a list of at most `batch_size` messages.

    A handler that returns (None, True, ConsumeResult.SUCCESS) is done with its messages; one that raises, or returns
    False or RETRY_LATER, gets them again later. In Java nothing returned means again; here it is the ordinary case.
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
        """ConfigError. `offset_store` instead of the broker's (CLUSTERING) or the local file (BROADCASTING)."""
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
            offset_store=offset_store,
            queue_listener=queue_listener,
            consume_hooks=hooks.get("consume_hooks", ()),
            filter_hooks=hooks.get("filter_hooks", ()),
        )
        self._runtime: PushConsumerRuntime | None = None
        self._drain_s = 0.0
        self._stopped = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None

    # ---- what is wanted ----

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
        """Send the topic's messages to `handler`; without one, decorates it. Once running, brokers are told at once.

        `tags`: several separated by `||`; `sql`: an SQL92 expression over properties; neither: all. ConfigError.
        """
        check_topic(topic)
        if handler is None:
            return SubscribeDecorator(partial(self.subscribe, topic, tags=tags, sql=sql))
        if not callable(handler):
            raise ConfigError(f"{topic}: a handler must be callable, not {type(handler).__name__}")
        self._config.subscriptions.add(topic, tags, sql, handler)
        self._tell()
        return handler

    def unsubscribe(self, topic: str) -> None:
        """Want no more of it. What was pulled before still goes to its handler."""
        if self._config.subscriptions.drop(topic):
            self._tell()

    # ---- life ----

    async def start(self) -> Self:
        """Join the group. A start that failed may be tried again. ConfigError, ClientError."""
        await super().start()
        log.info("consumer %s runs as %s", self.group, self.client_id)
        return self

    def _prepare(self) -> None:
        if not self._config.subscriptions.handled:
            raise ConfigError("nothing is subscribed to: a consumer needs a handler")
        if self.options.model is MessageModel.CLUSTERING:
            self._config.subscriptions.add_all_of(retry_topic(self.group))

    async def _begin(self, instance: ClientInstance) -> None:
        self._runtime = PushConsumerRuntime(instance, self._config)
        try:
            await self._runtime.begin()
        except ConfigError:
            self.state = ServiceState.CREATE_JUST
            raise

    async def close(self, drain_s: float | None = None) -> None:
        """Leave for good. Handlers that run may finish for so long (`drain_s` of the options), and count.

        Not for handlers, which it would wait for: they call `stop`.
        """
        self._stopped.set()
        if self._ending is None:
            self.state = ServiceState.SHUTDOWN_ALREADY
            self._drain_s = self.options.drain_s if drain_s is None else drain_s
            self._ending = asyncio.get_running_loop().create_task(self._leave())
        await asyncio.shield(self._ending)

    async def run(self) -> None:
        """Start unless started, and work until `stop` or `close` is called or SIGTERM or SIGINT comes; then drain."""
        with on_stop_signals(self.stop):
            if self.state is not ServiceState.RUNNING:
                await self.start()
            try:
                await self._stopped.wait()
            finally:
                await self.close()

    def stop(self) -> None:
        """Let `run` come to its end. Event loop only."""
        self._stopped.set()

    def pause(self) -> None:
        """Pull no more until `resume`; what was pulled is still handled."""
        self._running().pause()

    def resume(self) -> None:
        self._running().resume()

    # ---- what is ----

    @property
    def group(self) -> str:
        """By its name at the brokers."""
        return self._config.group

    @property
    def client_id(self) -> str | None:
        """None: not started."""
        return None if self._instance is None else self._instance.client_id

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """Those that are ours now; topics by their names at the brokers."""
        table = {} if self._runtime is None else self._runtime.table
        return frozenset(queue for queue, held in table.items() if not held.dropped)

    def stats(self, topic: str) -> ConsumeStatus:
        """How fast it pulls and handles a topic, named as users name it."""
        return self._running().stats.status(self._namespace.wrap(topic))

    @property
    def paused(self) -> bool:
        return self._runtime is not None and self._runtime.pulls.paused

    def _running(self) -> PushConsumerRuntime:
        if self._runtime is None or self.state is not ServiceState.RUNNING:
            raise self._not_running()
        return self._runtime

    def _tell(self) -> None:
        if self._runtime is not None and self.state is ServiceState.RUNNING:
            self._runtime.instance.spawn(self._runtime.subscriptions_changed())

    async def _end(self, instance: ClientInstance) -> None:
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.end(self._drain_s)


class SubscribeDecorator:
    """The decorator that `subscribe` gives without a handler; `subscribe` is that with all but the handler."""

    def __init__(self, subscribe: Callable[[Handler], object]) -> None:
        self._subscribe = subscribe

    def __call__(self, handler: AnyHandler) -> AnyHandler:
        self._subscribe(handler)
        return handler
