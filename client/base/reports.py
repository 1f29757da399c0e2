"""What a producer or consumer reports of itself: events to listeners, and the record `Health`.

Events state what has happened; a listener delays nothing but later events. Event loop only, except where stated.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from firearrow.client.base import greenlets
from firearrow.client.base.errors import error_text
from firearrow.client.base.hooks import is_coroutine_function
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.names import Namespace
from firearrow.client.base.service_state import ServiceState, now_ms

log = logging.getLogger("firearrow.client")

WAITING_MAX = 1000
"""Events that wait for a listener; beyond that the oldest are dropped."""
CLOSE_S = 1.0
"""How long a close waits for listeners."""

Queues = frozenset[MessageQueue]


@dataclass(frozen=True, slots=True)
class ConnectionDown:
    """A broker or name server is not reached: the connection was lost, or none can be opened. It is tried again."""

    address: str
    reason: str


@dataclass(frozen=True, slots=True)
class ConnectionUp:
    """A broker or name server that was not reached for `down_s` is connected again."""

    address: str
    down_s: float


@dataclass(frozen=True, slots=True)
class QueuesAssigned:
    """These queues are this consumer's from now on; topics as users name them."""

    queues: Queues


@dataclass(frozen=True, slots=True)
class QueuesRevoked:
    """These queues are not this consumer's any more: another member gets them, or it was closed."""

    queues: Queues


Event = ConnectionDown | ConnectionUp | QueuesAssigned | QueuesRevoked
EventListener = Callable[[Event], Awaitable[None] | None]
"""A coroutine function is called in the event loop, a plain function in a thread."""
AnyListener = TypeVar("AnyListener", bound=EventListener)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A producer or consumer at one moment. Times are milliseconds since 1970."""

    state: ServiceState
    since_ms: int
    """When `state` began."""
    paused: bool = False
    name_servers: tuple[str, ...] = ()
    """Those that are connected. Connections that are not used for `idle_s` are closed, and opened again when needed."""
    brokers: tuple[str, ...] = ()
    """Addresses of those that are connected."""
    down: Mapping[str, int] = field(default_factory=dict)
    """Addresses of brokers and name servers that are not reached, each since when."""
    last_heartbeat_ms: int | None = None
    """When a broker last answered a heartbeat."""
    queues: Queues = frozenset()
    """The queues of this consumer; topics as users name them."""
    last_error: str | None = None
    """Of connections, requests and handlers, also if it is over."""
    last_error_ms: int | None = None

    @property
    def running(self) -> bool:
        return self.state is ServiceState.RUNNING


class LastError:
    """The last error of what runs in the background. Any thread reads it; it is replaced whole."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: tuple[int, str] | None = None
        """When, ms since 1970, and its text."""

    def set(self, error: BaseException | str) -> None:
        text = error if isinstance(error, str) else error_text(error) or type(error).__name__
        if isinstance(error, BaseException) and not type(error).__module__.startswith("firearrow"):
            text = f"{type(error).__name__}: {error_text(error)}"
        self.value = now_ms(), text


class Reports:
    """`queues`: of this consumer, reported and replaced whole, so that any thread may read it."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._listeners: list[EventListener] = []
        self._waiting: deque[Event] = deque()
        self._delivery: asyncio.Task[None] | None = None
        self.queues: Queues = frozenset()
        self.last_error = LastError()

    def listen(self, listener: EventListener) -> None:
        self._listeners.append(listener)

    def emit(self, event: Event) -> None:
        if not self._listeners:
            return
        if len(self._waiting) >= WAITING_MAX:
            self._waiting.popleft()
            self.last_error.set("a listener of events is too slow: the oldest events are dropped")
        self._waiting.append(event)
        if self._delivery is None or self._delivery.done():
            self._delivery = asyncio.get_running_loop().create_task(self._deliver())

    def assigned(self, queues: Queues) -> None:
        """The queues of this consumer by their names at the brokers: report what has changed."""
        now = frozenset(map(self._unwrapped, queues)) if self._namespace.name else queues
        before, self.queues = self.queues, now
        if before - now:
            self.emit(QueuesRevoked(before - now))
        if now - before:
            self.emit(QueuesAssigned(now - before))

    async def close(self) -> None:
        """Wait for listeners, but not for one that closes the consumer itself."""
        delivery = self._delivery
        if delivery is None or delivery is asyncio.current_task():
            return
        await asyncio.wait((delivery,), timeout=CLOSE_S)
        delivery.cancel()

    def _unwrapped(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self._namespace.unwrap(queue.topic), queue.broker_name, queue.queue_id)

    async def _deliver(self) -> None:
        while self._waiting:
            event = self._waiting.popleft()
            for listener in list(self._listeners):
                try:
                    result = (
                        listener(event) if is_coroutine_function(listener) else _in_thread(listener, event)
                    )
                    if inspect.isawaitable(result):
                        await result
                except (Exception, asyncio.CancelledError) as error:
                    if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                        raise
                    log.exception("a listener of events failed: %r", listener)


def _is_cancelled() -> bool:
    """Whether this task is to end: a listener may raise CancelledError of its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _in_thread(listener: EventListener, event: Event) -> None:
    """A daemon: a listener that never ends must not keep the process alive."""
    loop = asyncio.get_running_loop()
    called: asyncio.Future[Awaitable[None] | None] = loop.create_future()

    def settle(result: Awaitable[None] | None, error: BaseException | None) -> None:
        if called.done():
            return
        if error is None:
            called.set_result(result)
        else:
            called.set_exception(error)

    def call() -> None:
        result: Awaitable[None] | None = None
        failure: Exception | None = None
        try:
            result = listener(event)
        except BaseException as error:  # sys.exit, too: no future carries it
            failure = RuntimeError(f"it raised {error!r}")
            failure.__cause__ = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:  # the loop is closed
            log.debug("no caller waits for a listener of events any more")

    greenlets.start_thread(call, "firearrow-events")
    result = await called
    if result is not None:
        await result
