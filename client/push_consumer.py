"""PushConsumer: messages of a group's topics, brought to handlers: plain functions (in threads) or coroutine functions.

The public face and its life; what works within is PushRole. Belongs to the event loop it was started in.
"""

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar, overload

from firearrow.client.errors import ConfigError, NotRunning
from firearrow.client.group.allocate import strategy_of
from firearrow.client.group.offset_store import OffsetStore
from firearrow.client.handling.listeners import Handler
from firearrow.client.handling.subscriptions import Subscriptions
from firearrow.client.handling.termination import on_termination
from firearrow.client.hooks import ConsumeHook, FilterHook, RpcHook
from firearrow.client.inquiry.stats import ConsumeStatus
from firearrow.client.link.instance import Instance
from firearrow.client.members.push_role import PushRole
from firearrow.client.members.push_setting import PushSetting, QueueListener
from firearrow.client.message import MessageQueue
from firearrow.client.names import Namespace, check_group, check_topic, retry_topic
from firearrow.client.options import ClientOptions, MessageModel, PushConsumerOptions, client_options
from firearrow.client.states import ServiceState

log = logging.getLogger("firearrow.client")

AnyHandler = TypeVar("AnyHandler", bound=Handler)


class PushConsumer:
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
        consume_hooks: Sequence[ConsumeHook] = (),
        filter_hooks: Sequence[FilterHook] = (),
        rpc_hooks: Sequence[RpcHook] = (),
    ) -> None:
        """ConfigError. `offset_store` instead of the broker's (CLUSTERING) or the local file (BROADCASTING)."""
        self.options = options or PushConsumerOptions()
        self._client = client_options(client, name_server)
        self._namespace = Namespace(self._client.namespace)
        strategy_of(self.options.allocate)
        self._rpc_hooks = tuple(rpc_hooks)
        self._setting = PushSetting(
            group=self._namespace.wrap(check_group(group)),
            options=self.options,
            namespace=self._namespace,
            subscriptions=Subscriptions(self._namespace),
            offset_store=offset_store,
            queue_listener=queue_listener,
            consume_hooks=consume_hooks,
            filter_hooks=filter_hooks,
        )
        self.state = ServiceState.CREATE_JUST
        self._role: PushRole | None = None
        self._instance: Instance | None = None
        self._stopped = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None

    # ---- what is wanted ----

    @overload
    def subscribe(
        self, topic: str, handler: None = None, *, tags: str | None = None, sql: str | None = None
    ) -> "_Subscribing": ...
    @overload
    def subscribe(
        self, topic: str, handler: AnyHandler, *, tags: str | None = None, sql: str | None = None
    ) -> AnyHandler: ...
    def subscribe(
        self, topic: str, handler: Handler | None = None, *, tags: str | None = None, sql: str | None = None
    ) -> "_Subscribing | Handler":
        """Send the topic's messages to `handler`; without one, decorates it. Once running, brokers are told at once.

        `tags`: several separated by `||`; `sql`: an SQL92 expression over properties; neither: all. ConfigError.
        """
        check_topic(topic)
        if handler is None:
            return _Subscribing(self, topic, tags, sql)
        if not callable(handler):
            raise ConfigError(f"{topic}: a handler must be callable, not {type(handler).__name__}")
        self._setting.subscriptions.add(topic, tags, sql, handler)
        self._tell()
        return handler

    def unsubscribe(self, topic: str) -> None:
        """Want no more of it. What was pulled before still goes to its handler."""
        if self._setting.subscriptions.drop(topic):
            self._tell()

    # ---- life ----

    async def start(self) -> None:
        """Join the group. A start that failed may be tried again. ConfigError, ClientError."""
        if self.state not in (ServiceState.CREATE_JUST, ServiceState.START_FAILED) or self._role is not None:
            raise NotRunning(f"a consumer that is {self.state.value} cannot be started")
        if not self._setting.subscriptions.handled:
            raise ConfigError("nothing is subscribed to: a consumer needs a handler")
        self.state = ServiceState.START_FAILED
        if self.options.model is MessageModel.CLUSTERING:
            self._setting.subscriptions.add_all_of(retry_topic(self.group))
        self._instance = await Instance.of(
            self._client, broadcasting=self.options.model is MessageModel.BROADCASTING
        )
        self._instance.channels.hooks.extend(self._rpc_hooks)
        self._role = PushRole(self._instance, self._setting)
        try:
            await self._role.begin()
            if self._ending is not None:
                raise NotRunning("closed while it was being started")
        except BaseException as error:
            if isinstance(error, ConfigError):
                self.state = ServiceState.CREATE_JUST
            await self._leave(0)
            raise
        self.state = ServiceState.RUNNING
        log.info("consumer %s runs as %s", self.group, self._instance.client_id)

    async def close(self, drain_s: float | None = None) -> None:
        """Leave for good. Handlers that run may finish for so long (`drain_s` of the options), and count.

        Not for handlers, which it would wait for: they call `stop`.
        """
        self._stopped.set()
        if self._ending is None:
            self.state = ServiceState.SHUTDOWN_ALREADY
            seconds = self.options.drain_s if drain_s is None else drain_s
            self._ending = asyncio.get_running_loop().create_task(self._leave(seconds))
        await asyncio.shield(self._ending)

    async def run(self) -> None:
        """Start unless started, and work until `stop` or `close` is called or SIGTERM or SIGINT comes; then drain."""
        with on_termination(self.stop):
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

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- what is ----

    @property
    def group(self) -> str:
        """By its name at the brokers."""
        return self._setting.group

    @property
    def client_id(self) -> str | None:
        """None: not started."""
        return None if self._instance is None else self._instance.client_id

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """Those that are ours now; topics by their names at the brokers."""
        table = {} if self._role is None else self._role.table
        return frozenset(queue for queue, held in table.items() if not held.dropped)

    def stats(self, topic: str) -> ConsumeStatus:
        """How fast it pulls and handles a topic, named as users name it."""
        return self._running().stats.status(self._namespace.wrap(topic))

    @property
    def paused(self) -> bool:
        return self._role is not None and self._role.pulls.paused

    def _running(self) -> PushRole:
        if self._role is None or self.state is not ServiceState.RUNNING:
            raise NotRunning(f"the consumer is {self.state.value}")
        return self._role

    def _tell(self) -> None:
        if self._role is not None and self.state is ServiceState.RUNNING:
            self._role.instance.spawn(self._role.subscriptions_changed())

    async def _leave(self, drain_s: float) -> None:
        role, self._role = self._role, None
        instance, self._instance = self._instance, None
        try:
            if role is not None:
                await role.end(drain_s)
        finally:
            if instance is not None:
                for hook in self._rpc_hooks:
                    instance.channels.hooks.remove(hook)
                await instance.leave()


class _Subscribing:
    """The decorator that `subscribe` gives without a handler."""

    def __init__(self, consumer: PushConsumer, topic: str, tags: str | None, sql: str | None) -> None:
        self._consumer = consumer
        self._topic = topic
        self._tags = tags
        self._sql = sql

    def __call__(self, handler: AnyHandler) -> AnyHandler:
        return self._consumer.subscribe(self._topic, handler, tags=self._tags, sql=self._sql)
