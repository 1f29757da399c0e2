"""Transport: kombu's virtual transport for RocketMQ, and the inbox by which the loop thread wakes kombu.

The thread of a connection waits in `drain_events`, or its event loop watches the inbox's socket: both see a message as
soon as it is there, and an idle worker does nothing.
"""

import contextlib
import os
import socket
import time
from collections import deque
from importlib.metadata import version
from typing import Any

try:
    import kombu
except ModuleNotFoundError as error:
    raise ImportError("kombu is not installed: pip install firearrow[celery]", name=error.name) from error
from kombu.transport import TRANSPORT_ALIASES as TRANSPORT_ALIASES  # noqa: PLC0414 (for the package)
from kombu.transport import virtual
from kombu.transport.virtual.base import BrokerState

from firearrow.client.base.errors import ClientError, NoNameServer, NoRoute, NotRunning, TransportError
from firearrow.client.integrations.kombu.channel import Channel
from firearrow.client.integrations.kombu.leases import Lease
from firearrow.client.integrations.kombu.session import Session, acquire, release
from firearrow.client.integrations.kombu.settings import PORT, place_of

Entry = tuple[Channel, str, Lease | None]
TURN = 100
"""Messages that one turn of an event loop delivers."""


class Inbox:
    """Messages for the consumers of one connection, from the loop thread to the thread of the connection.

    `put`: any thread. A byte in the socket means that there are entries.
    """

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque()
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._woken = False
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """False: a fork shares its socket with the parent, whose bytes it must not read."""
        return os.getpid() == self._pid

    def fileno(self) -> int:
        return self._reader.fileno()

    def put(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.wake()

    def wake(self) -> None:
        if not self._woken:
            self._woken = True
            with contextlib.suppress(OSError):  # closed
                self._writer.send(b"\0")

    def wait(self, timeout_s: float | None) -> None:
        """Until there are entries, or the time is over."""
        self._reader.settimeout(timeout_s)
        try:
            self._reader.recv(4096)
        except (TimeoutError, BlockingIOError):
            return
        self._woken = False

    def pop(self) -> Entry | None:
        try:
            return self.entries.popleft()
        except IndexError:
            return None

    def drop(self, channel: Channel, consumer_tag: str) -> list[Lease]:
        """What a consumer that is cancelled did not get."""
        dropped = [entry for entry in list(self.entries) if entry[:2] == (channel, consumer_tag)]
        for entry in dropped:
            self.entries.remove(entry)
        return [lease for _, _, lease in dropped if lease is not None]

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


class Transport(virtual.Transport):
    """kombu's transport for RocketMQ."""

    Channel = Channel
    default_port = PORT
    driver_type = "rocketmq"
    driver_name = "firearrow"
    tls = False

    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset({"direct", "topic", "fanout"}), heartbeats=False
    )
    connection_errors = (
        *virtual.Transport.connection_errors,
        TransportError,
        NoRoute,
        NoNameServer,
        NotRunning,
    )
    channel_errors = (*virtual.Transport.channel_errors, ClientError)

    def __init__(self, client: kombu.Connection, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.state = BrokerState()
        self._session: Session | None = None
        self._inbox: Inbox | None = None

    @property
    def session(self) -> Session:
        if self._session is None or not self._session.is_here:
            self._session = acquire(place_of(self.client, tls=self.tls))
            self.state = self._session.state
        return self._session

    @property
    def inbox(self) -> Inbox:
        if self._inbox is None or not self._inbox.is_here:
            self._inbox = Inbox()
        return self._inbox

    def driver_version(self) -> str:
        return version("firearrow")

    # ---- connections ----

    def establish_connection(self) -> "Transport":
        self.session  # noqa: B018 (connects)
        connection: Transport = super().establish_connection()
        return connection

    def close_connection(self, connection: "Transport") -> None:
        super().close_connection(connection)
        session, self._session = self._session, None
        if session is not None:
            release(session)
        if self._inbox is not None:
            self._inbox.close()
            self._inbox = None

    def consumers_of(self, queue: str) -> int:
        return sum(list(channel._tag_to_queue.values()).count(queue) for channel in self.channels)

    # ---- messages ----

    def drain_events(self, connection: "Transport", timeout: float | None = None) -> None:
        """Deliver one message. TimeoutError: none came."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._deliver_one():
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            self.inbox.wait(left)
            if not self.inbox.entries and deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError("timed out")

    def _deliver_one(self) -> bool:
        """False: the inbox is empty."""
        while (entry := self.inbox.pop()) is not None:
            channel, consumer_tag, lease = entry
            if channel.deliver(consumer_tag, lease):
                return True
        return False

    # ---- event loops of kombu ----

    def register_with_event_loop(self, connection: "Transport", loop: Any) -> None:
        loop.add_reader(self.inbox.fileno(), self.on_readable, connection, loop)
        self.inbox.wake()

    def unregister_from_event_loop(self, connection: "Transport", loop: Any) -> None:
        if self._inbox is not None:
            loop.remove_reader(self._inbox.fileno())

    def on_readable(self, connection: "Transport", loop: Any) -> None:
        inbox = self.inbox
        inbox.wait(0)
        for _ in range(TURN):
            if self._inbox is not inbox or not self._deliver_one():
                return
        inbox.wake()


class TlsTransport(Transport):
    """The transport of URLs that begin with `rocketmqs`."""

    tls = True
