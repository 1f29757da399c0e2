"""RocketMQBroker for dramatiq: queues are topics, delays are timers of the broker, each message is acknowledged alone.

Any thread may use it, also in a process that was forked since then: each process has connections of its own.
"""

import math
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import ClientError, ConfigError, MessageRefused, NotRunning, RocketMQError
from firearrow.client.base.options import ClientOptions, client_options
from firearrow.client.integrations.task_producer import TaskOptions
from firearrow.client.integrations.task_session import BlockingTaskSession, QueueCounts
from firearrow.client.integrations.topic_names import topic_of

try:
    from dramatiq import Broker, Consumer, Message, MessageProxy, Middleware
    from dramatiq.common import current_millis, q_name
    from dramatiq.errors import ConnectionClosed, DecodeError, QueueJoinTimeout
    from dramatiq.logging import get_logger
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "dramatiq is missing: pip install 'firearrow[dramatiq]'", name=error.name
    ) from error

__all__ = ["RocketMQBroker", "TaskOptions"]


def __dir__() -> list[str]:
    return sorted(__all__)


OPTIONS = TaskOptions(send_timeout_s=30)
"""A message whose retry cannot be enqueued comes again without its pause, so that is tried for long."""
FIELDS: dict[str, type | tuple[type, ...]] = {
    "actor_name": str,
    "args": (list, tuple),
    "kwargs": dict,
    "options": dict,
    "message_id": str,
    "message_timestamp": (int, float),
}
"""Types of what a message has."""
_brokers: "weakref.WeakSet[RocketMQBroker]" = weakref.WeakSet()


class RocketMQBroker(Broker):
    """`RocketMQBroker("host:9876")`. The workers of a queue are the group `GROUP_NAME-QUEUE`, whose dead-letter topic
    has the messages that failed for good.

    The message option `broker_priority` counts if `TaskOptions.max_priority` is set, and a higher one goes first.
    """

    queues: set[str]

    def __init__(
        self,
        name_server: str | None = None,
        *,
        group_name: str = "dramatiq",
        middleware: list[Middleware] | None = None,
        options: TaskOptions | None = None,
        client: ClientOptions | None = None,
    ) -> None:
        """Connects when it is first used. ConfigError."""
        super().__init__(middleware=middleware)
        self.queues = set()
        self.group_name = group_name
        self._options = options or OPTIONS
        self._client = client_options(client, name_server)
        self._opening = threading.Lock()
        self._opened: BlockingTaskSession | None = None
        self._not_stored = threading.local()
        topic_of(group_name)
        _brokers.add(self)

    def close(self) -> None:
        """Messages that are not acknowledged go to other workers. The next use connects again."""
        with self._opening:
            session, self._opened = self._opened, None
            if session is not None:
                session.close()

    def group_of(self, queue_name: str) -> str:
        """The group whose members are the workers of the queue."""
        return topic_of(f"{self.group_name}-{q_name(queue_name)}")

    # ---- queues ----

    def declare_queue(self, queue_name: str) -> None:
        """Its topic is created when it is first used. There is no delay queue: brokers keep delayed messages."""
        name = q_name(queue_name)
        if name not in self.queues:
            topic_of(name)
            self.emit_before("declare_queue", name)
            self.queues.add(name)
            self.emit_after("declare_queue", name)

    def get_declared_queues(self) -> set[str]:
        return self.queues.copy()

    def get_queue_message_counts(self, queue_name: str) -> tuple[int, int, int]:
        """Messages in the queue, those that are delayed, and dead letters. For tests."""
        counts = self._counts(queue_name)
        return counts.visible, counts.delayed, counts.dead

    def flush(self, queue_name: str) -> None:
        """Acknowledge all messages of the queue that are visible. Delayed messages and dead letters stay."""
        with _connection_errors():
            self._session().purge(topic_of(q_name(queue_name)), self.group_of(queue_name))

    def flush_all(self) -> None:
        for queue_name in self.get_declared_queues():
            self.flush(queue_name)

    def join(
        self, queue_name: str, min_successes: int = 10, idle_time: int = 100, *, timeout: int | None = None
    ) -> None:
        """Wait until the queue was found empty `min_successes` times. For tests. `timeout` and `idle_time` in ms.

        Delayed messages count, and those that run: of Apache's broker, which does not report these, only if they run in
        this process. QueueJoinTimeout.
        """
        until_s = math.inf if timeout is None else time.monotonic() + timeout / 1000
        successes = 0
        while successes < min_successes:
            if time.monotonic() >= until_s:
                raise QueueJoinTimeout(queue_name)
            counts = self._counts(queue_name)
            successes = 0 if counts.visible or counts.delayed or counts.in_flight else successes + 1
            time.sleep(idle_time / 1000)

    def _counts(self, queue_name: str) -> QueueCounts:
        with _connection_errors():
            return self._session().counts(topic_of(q_name(queue_name)), self.group_of(queue_name))

    # ---- messages ----

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Store the message; workers get it after `delay` ms, or at the time of its option `eta` (ms since 1970).

        ConnectionClosed: no broker confirmed it; ClientError: it was refused.
        """
        queue_name = q_name(message.queue_name)
        self.declare_queue(queue_name)
        if delay is not None:
            message = message.copy(options={"eta": current_millis() + delay})
        self.emit_before("enqueue", message, delay)
        stored = message.copy(queue_name=queue_name)
        due_ms = _milliseconds(stored.options.get("eta"))  # dramatiq takes any other eta as now
        if due_ms is not None:
            del stored.options["eta"]  # a worker would wait again
        priority = stored.options.get("broker_priority")
        if priority is not None and not isinstance(priority, int):
            raise ConfigError(f"broker_priority must be a whole number, not {priority!r}")
        self._not_stored.last = None
        try:
            with _connection_errors():
                self._session().send(
                    topic_of(queue_name),
                    stored.encode(),
                    task_id=stored.message_id,
                    task_name=stored.actor_name,
                    due_ms=due_ms,
                    priority=priority,
                )
        except (RocketMQError, ConnectionClosed) as error:
            self._not_stored.last = stored.message_id, error
            raise
        self.emit_after("enqueue", message, delay)
        return message

    def _retry_error(self, message: MessageProxy) -> Exception | None:
        """Why this thread could not enqueue the message again. dramatiq acknowledges it nevertheless."""
        message_id, error = getattr(self._not_stored, "last", None) or ("", None)
        return error if message_id == message.message_id else None

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> "RocketMQConsumer":
        """ConnectionClosed: no broker answers; ClientError: there is no topic, or it refuses."""
        self.declare_queue(queue_name)
        return RocketMQConsumer(self, q_name(queue_name), prefetch, timeout)

    # ---- connections ----

    def _session(self) -> BlockingTaskSession:
        """That of this process."""
        session = self._opened
        if session is None:
            with self._opening:
                if self._opened is None:
                    session = BlockingTaskSession(topic_of(self.group_name), self._options, self._client)
                    self._opened = session.start()
                session = self._opened
        return session

    def _forked(self) -> None:
        """The parent's session works in the parent alone, and a thread that does not exist here may hold the lock."""
        self._opening, self._opened = threading.Lock(), None


class RocketMQMessage(MessageProxy):
    """`received`: the message of RocketMQ, with its receipt handle."""

    def __init__(self, message: Message[Any], received: ReceivedMessage) -> None:
        super().__init__(message)
        self.received = received


class RocketMQConsumer(Consumer):
    """Iterates over a queue. Messages that are not acknowledged stay with this process when the consumer is closed: the
    worker may have them still, and acknowledges them with the next consumer."""

    def __init__(self, broker: RocketMQBroker, queue_name: str, prefetch: int, timeout: int) -> None:
        self.logger = get_logger(__name__, type(self))
        self.queue_name = queue_name
        self.prefetch = prefetch
        self._names = topic_of(queue_name), broker.group_of(queue_name)
        self._retry_error = broker._retry_error
        self._timeout_s = timeout / 1000
        self._fetched: deque[ReceivedMessage] = deque()
        self._unsettled: set[int] = set()
        self._settled = threading.Condition()
        with _connection_errors():
            self._session = broker._session()
            self._session.open(*self._names)

    def __next__(self) -> RocketMQMessage | None:
        if not self._fetched and not self._fetch():
            return None
        received = self._fetched.popleft()
        try:
            message = _decoded(received.body, self.queue_name)
        except DecodeError:
            self.logger.exception("Failed to decode %r: it becomes a dead letter.", received)
            self._settle(received, self._session.dead_letter)
            return None
        with self._settled:
            self._unsettled.add(id(received))
        return RocketMQMessage(message, received)

    def ack(self, message: MessageProxy) -> None:
        """A message whose retry could not be enqueued comes again, or is a dead letter if the retry was refused."""
        error = self._retry_error(message)
        if error is None:
            self._settle(_received(message), self._session.ack)
        elif isinstance(error, ConnectionClosed):
            self.requeue([message])
        else:
            self.nack(message)

    def nack(self, message: MessageProxy) -> None:
        """Move the message to the dead letters."""
        self._settle(_received(message), self._session.dead_letter)

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Return messages to the queue. That counts as one of their attempts."""
        received = [found for message in messages if (found := _received(message)) is not None]
        if received:
            with _connection_errors():
                self._session.release(*self._names, received)
        self._forget(received)

    def close(self) -> None:
        """Return what no worker has."""
        received = [*self._fetched]
        self._fetched.clear()
        with _connection_errors():
            self._session.release(*self._names, received)
            self._session.release_waiting(*self._names)

    def _fetch(self) -> bool:
        """At most what `prefetch` leaves; False: nothing came in time."""
        with self._settled:
            if not self._settled.wait_for(lambda: len(self._unsettled) < self.prefetch, self._timeout_s):
                return False
            most = self.prefetch - len(self._unsettled)
        with _connection_errors():
            self._fetched.extend(self._session.receive(*self._names, most, self._timeout_s))
        return bool(self._fetched)

    def _settle(
        self, received: ReceivedMessage | None, request: Callable[[str, str, ReceivedMessage], None]
    ) -> None:
        if received is None:
            self.logger.warning("A message that was not received from RocketMQ is not settled.")
            return
        with _connection_errors():
            request(*self._names, received)
        self._forget([received])

    def _forget(self, messages: Iterable[ReceivedMessage]) -> None:
        with self._settled:
            self._unsettled.difference_update(map(id, messages))
            self._settled.notify()


def _received(message: MessageProxy) -> ReceivedMessage | None:
    return message.received if isinstance(message, RocketMQMessage) else None


def _decoded(body: bytes, queue_name: str) -> Message[Any]:
    """DecodeError: it cannot be read. dramatiq's threads end if a field has another type, or names a queue that they do
    not know."""
    message: Message[Any] = Message.decode(body)
    if any(not isinstance(getattr(message, name), types) for name, types in FIELDS.items()):
        raise DecodeError("a field of the message has a wrong type", body, None)
    return message.copy(queue_name=queue_name)


def _milliseconds(eta: object) -> int | None:
    """None: it is not a number. ConfigError: it is not a time."""
    if not isinstance(eta, int | float):
        return None
    try:
        return int(eta)
    except (OverflowError, ValueError):
        raise ConfigError(f"eta must be a time in ms since 1970, not {eta}") from None


@contextmanager
def _connection_errors() -> Iterator[None]:
    """What another attempt may change is an error of dramatiq, which tries again."""
    try:
        yield
    except (ConfigError, MessageRefused):
        raise
    except (ClientError, NotRunning) as error:
        raise ConnectionClosed(str(error)) from error


def _forked() -> None:
    for broker in _brokers:
        broker._forked()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forked)
