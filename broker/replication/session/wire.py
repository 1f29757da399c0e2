"""The ends of a replication connection, whatever wire it speaks: Apache's, FireArrow's or that of controllers. Loop
thread.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from firearrow.broker.base.peer import Address
from firearrow.broker.replication.session.expected_replicas import Place


class FollowerWire(Protocol):
    """The slave's end of one connection. `pushes_tables`: the master sends its tables on it, so it is not asked for
    them."""

    @property
    def pushes_tables(self) -> bool: ...
    @property
    def stream(self) -> "MasterStream": ...

    async def open(self) -> None:
        """Connect, find that our log is a beginning of the master's, and ask for what comes next. NotFollowed,
        OSError, MasterError, FollowError."""

    def report(self, durable: int) -> None:
        """Send up to where our log is durable."""

    async def check(self) -> None:
        """Twice a second. OSError: the connection is to be closed."""

    def closed(self) -> None:
        """The connection has ended, also if it was never opened."""


class MasterStream(asyncio.BufferedProtocol):
    """The bytes of a slave's connection: they are in `buffer` while `take(length)` is called. `ended`: done with the
    reason when the connection ends. `received`: bytes. `lingers`: what was written is sent before the connection is
    closed, for it may be a refusal. Times are the loop's, in s."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        buffer: bytearray | memoryview,
        take: Callable[[int], None],
        *,
        lingers: bool = False,
    ) -> None:
        self._loop = loop
        self._buffer = memoryview(buffer)
        self._take = take
        self._lingers = lingers
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[Exception] = loop.create_future()
        self.read_at = self.written_at = loop.time()
        self.received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.read_at = self.written_at = self._loop.time()

    @property
    def local(self) -> Address | None:
        """Our end of it."""
        name = None if self._transport is None else self._transport.get_extra_info("sockname")
        return None if name is None else name[:2]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.read_at = self._loop.time()
        if self.ended.done():
            return
        self.received += nbytes
        try:
            self._take(nbytes)
        except Exception as error:  # the session tries again
            self.fail(error)

    def eof_received(self) -> None:
        self.fail(ConnectionError("the master closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(exc or ConnectionError("the connection to the master was lost"))

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            self.written_at = self._loop.time()

    def fail(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_result(error)
        if not self._lingers:
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            if self._lingers:
                self._transport.close()
            else:
                self._transport.abort()


@dataclass(slots=True)
class Traffic:
    """What the master's end of a connection has carried. `began`: it was accepted. Times are the loop's, in s."""

    remote: Address
    began: float
    last_read: float
    last_written: float
    sent_bytes: int = 0


class SenderWire(Protocol):
    """The master's end of one connection. `end`: of the slave's log; -1: it has not asked for ours. `sent`: up to where
    our log was sent. `is_newcomer`: the slave has not asked for the log, or not proved that it knows the secret.
    `waits_for_confirmed`: its readers may see more of what it has than it knows."""

    def __hash__(self) -> int: ...
    @property
    def traffic(self) -> Traffic: ...
    @property
    def end(self) -> int: ...
    @property
    def sent(self) -> int: ...
    @property
    def is_newcomer(self) -> bool: ...
    @property
    def waits_for_confirmed(self) -> bool: ...
    @property
    def place(self) -> Place:
        """By what the slave is known."""

    def details(self) -> dict[str, object]:
        """Members of its entry in GET_BROKER_HA_STATUS."""

    def send(self) -> None:
        """Send what the log has and the connection takes; the rest follows."""

    def heartbeat(self) -> None: ...
    def finish(self) -> None:
        """Close once what was written is sent."""

    def close(self, why: str = "") -> None:
        """`why`: empty if the slave left or was silent."""


class SenderHost(Protocol):
    """The master of a `SenderWire`."""

    def on_acknowledged(self, wire: SenderWire) -> None:
        """The slave's log ends at `wire.end`; the first time, it asks for ours."""

    def on_left(self, wire: SenderWire, why: str, state: str = "") -> None:
        """The connection has ended. `state`: of a slave that was refused."""
