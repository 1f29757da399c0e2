"""Service: the life cycle of a producer or consumer by Java's ServiceState. Loop thread.

A service that its program does not close is closed when its event loop ends (asyncio.run cancels all tasks then), or
else when the process ends.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

from firearrow.client.base import process_exit
from firearrow.client.base.errors import NotRunning
from firearrow.client.base.hooks import RpcHook
from firearrow.client.base.names import Namespace
from firearrow.client.base.options import ClientOptions
from firearrow.client.base.service_state import ServiceState, Startable
from firearrow.client.remoting.client_instance import ClientInstance


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
        self.state = ServiceState.CREATE_JUST
        self._kind = kind
        self._client = client
        self._namespace = Namespace(client.namespace)
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
    def instance(self) -> ClientInstance:
        if self._instance is None:
            raise self._not_running()
        self._check_loop()
        return self._instance

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
            try:
                await instance.leave()
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
