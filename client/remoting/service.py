"""Service: the life cycle of a producer or consumer by Java's ServiceState. Loop thread.

A service that its program does not close is closed when its event loop ends (asyncio.run cancels all tasks then), or
else when the process ends.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

from firearrow.client.base import process_exit
from firearrow.client.base.call_hooks import Caller
from firearrow.client.base.errors import NotRunning
from firearrow.client.base.hooks import RpcHook
from firearrow.client.base.names import Namespace
from firearrow.client.base.options import ClientOptions
from firearrow.client.base.reports import AnyListener, Health, Reports
from firearrow.client.base.service_state import ServiceState, Startable, now_ms
from firearrow.client.remoting.client_instance import ClientInstance


def caller_of(instance: ClientInstance, namespace: Namespace, group: str, model: str | None = None) -> Caller:
    """`group` as brokers know it."""
    return Caller(
        namespace.unwrap(group), namespace.name or "", instance.client_id, instance.routes.master, model
    )


class Service(Startable):
    """Uses the ClientInstance of its client id while it runs.

    It starts once, but a failed start may be repeated.

    `kind` names it in errors; `broadcasting` and `stream` are part of the client id.
    """

    def __init__(
        self,
        kind: str,
        client: ClientOptions,
        rpc_hooks: Sequence[RpcHook] = (),
        *,
        broadcasting: bool = False,
        stream: bool = False,
    ) -> None:
        self._state_since = ServiceState.CREATE_JUST, now_ms()
        self._kind = kind
        self._client = client
        self._namespace = Namespace(client.namespace)
        self._reports = Reports(self._namespace)
        self._rpc_hooks = tuple(rpc_hooks)
        self._broadcasting = broadcasting
        self._stream = stream
        self._instance: ClientInstance | None = None
        self._closing_with_loop: asyncio.Task[None] | None = None

    async def start(self) -> Self:
        """Join the group. A failed start may be tried again. NotRunning, ConfigError, ClientError."""
        startable = self.state in (ServiceState.CREATE_JUST, ServiceState.START_FAILED)
        if not startable or self._instance is not None:
            raise NotRunning(f"the {self._kind} cannot be started, it is {self.state.in_words}")
        self._prepare()
        self._bind()
        self.state = ServiceState.START_FAILED
        client = self._identify()
        try:
            instance = self._instance = await ClientInstance.of(
                client, broadcasting=self._broadcasting, stream=self._stream
            )
        except BaseException:
            self._left()
            raise
        instance.channels.hooks.extend(self._rpc_hooks)
        instance.connections.listeners.append(self._reports.emit)
        try:
            await self._begin(instance)
            if self.state is ServiceState.SHUTDOWN_ALREADY:
                raise NotRunning(f"the {self._kind} was closed while it started")
        except BaseException:
            if self._instance is None:  # closed concurrently: end what was started after that
                await self._end(instance)
            await self._leave()
            raise
        self.state = ServiceState.RUNNING
        self._closing_with_loop = instance.loop.create_task(self._close_with_loop())
        process_exit.opened(self)
        return self

    async def close(self) -> None:
        """Leave the group permanently. NotRunning: in another event loop or process."""
        self._check_open_here()
        self.state = ServiceState.SHUTDOWN_ALREADY
        await self._leave()

    @property
    def state(self) -> ServiceState:
        return self._state_since[0]

    @state.setter
    def state(self, state: ServiceState) -> None:
        self._state_since = state, now_ms()

    def on_event(self, listener: AnyListener) -> AnyListener:
        """Call `listener` with each event from now on: ConnectionDown and ConnectionUp, of consumers QueuesAssigned and
        QueuesRevoked. A coroutine function is called in the event loop, a plain function in a thread, one event after
        the other. Also a decorator.
        """
        self._check_open_here()
        self._reports.listen(listener)
        return listener

    @property
    def health(self) -> Health:
        """State, connections, queues and the last error, as they are now. Any thread; nothing is requested."""
        state, since_ms = self._state_since
        if self._bound_loop is not None and self._bound_forks != self.forks:
            state = ServiceState.SHUTDOWN_ALREADY
            return Health(state=state, since_ms=since_ms, last_error=self._wrong_loop())
        instance, reports = self._instance, self._reports
        errors = [reports.last_error.value]
        connected: list[str] = []
        if instance is not None:
            errors.append(instance.connections.last_error.value)
            connected = sorted(instance.channels.addresses())
        name_servers = () if instance is None else instance.name_servers.addresses
        error_ms, error = max(filter(None, errors), default=(None, None))
        return Health(
            state=state,
            since_ms=since_ms,
            paused=state is ServiceState.RUNNING and self._is_paused(),
            name_servers=tuple(address for address in connected if address in name_servers),
            brokers=tuple(address for address in connected if address not in name_servers),
            down={} if instance is None else instance.connections.down.copy(),
            last_heartbeat_ms=None if instance is None else instance.heartbeats.answered_ms,
            queues=reports.queues,
            last_error=error,
            last_error_ms=error_ms,
        )

    def _is_paused(self) -> bool:
        """Whether its user has paused it. Any thread."""
        return False

    @property
    def instance(self) -> ClientInstance:
        if self._instance is None:
            raise self._not_running()
        self._check_loop()
        return self._instance

    def _caller(self, group: str, model: str | None = None) -> Caller:
        """Who makes a call, for hooks. NotRunning."""
        return caller_of(self.instance, self._namespace, group, model)

    def _check_open_here(self) -> None:
        """The same as `_check_loop` while there is something to close or to change."""
        if self._instance is not None:
            self._check_loop()

    def _not_running(self) -> NotRunning:
        return NotRunning(f"the {self._kind} is {self.state.in_words}")

    def _prepare(self) -> None:
        """Called before each start. ConfigError: the state stays as it was."""

    def _identify(self) -> ClientOptions:
        """The options with the identity for this start. ConfigError."""
        return self._client

    def _left(self) -> None:
        """The identity of this start is free."""

    @abstractmethod
    async def _begin(self, instance: ClientInstance) -> None:
        """Join the instance and start working. After an error `_end` is called as well."""

    @abstractmethod
    async def _end(self, instance: ClientInstance) -> None:
        """Stop what `_begin` started, even partly, and leave the group. May be called twice."""

    async def _leave(self) -> None:
        """Does its work once for each start."""
        instance, self._instance = self._instance, None
        if instance is None:
            return
        waiting, self._closing_with_loop = self._closing_with_loop, None
        if waiting is not None:
            waiting.cancel()
        try:
            await self._end(instance)
        finally:
            for hook in self._rpc_hooks:
                instance.channels.hooks.remove(hook)
            instance.connections.listeners.remove(self._reports.emit)
            self._reports.assigned(frozenset())
            try:
                await instance.leave()
                await self._reports.close()
            finally:
                self._left()
                process_exit.closed(self)

    async def _close_with_loop(self) -> None:
        """The event loop ends: asyncio.run cancels all tasks, and waits for them."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._closing_with_loop = None  # a close that goes on does not cancel it
            if self._instance is not None:
                await self.close()
