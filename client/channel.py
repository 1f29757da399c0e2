"""Channel: one socket to one broker or name server. Numbers requests, brings answers to who waits, hands on requests.


A request that is no longer waited for is forgotten; its answer is dropped. The socket stays open when a request times
out: the others on it are none the worse. Loop thread.
"""

import asyncio
import logging
from collections.abc import Callable

from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.conn import Conn
from firearrow.client.errors import ConnectionLost, RequestTimeout, TooManyRequests

log = logging.getLogger("firearrow.client")

OPAQUE_MAX = 0x7FFFFFFF
TICK_S = 0.05
"""How exactly time-outs are kept."""


class Channel(Conn, asyncio.BufferedProtocol):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: str,
        asked: Callable[[RemotingCommand, "Channel"], None],
        left: Callable[["Channel"], None],
        pending_max: int,
    ) -> None:
        super().__init__(loop)
        self.address = address
        self._loop = loop
        self._asked = asked
        self._left = left
        self._pending_max = pending_max
        self._pending: dict[int, tuple[asyncio.Future[RemotingCommand], float]] = {}
        self._opaque = 0
        self._sweep: asyncio.TimerHandle | None = None
        self.retired = False

    def call(self, command: RemotingCommand, timeout_s: float) -> asyncio.Future[RemotingCommand]:
        """Send it; the answer, whatever its code. ConnectionLost, RequestTimeout, TooManyRequests."""
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        if self.closed:
            future.set_exception(ConnectionLost(f"{self.address}: the connection is closed"))
        elif len(self._pending) >= self._pending_max:
            future.set_exception(TooManyRequests(f"{self.address}: {self._pending_max} requests unanswered"))
        else:
            self.oneway(command)
            self._pending[command.opaque] = (future, self._loop.time() + timeout_s)
            if self._sweep is None:
                self._sweep = self._loop.call_later(TICK_S, self._expire)
        return future

    def oneway(self, command: RemotingCommand) -> None:
        self._opaque = (self._opaque + 1) & OPAQUE_MAX
        command.opaque = self._opaque
        self.send(command.encode())

    @property
    def pending(self) -> int:
        return len(self._pending)

    def retire(self) -> None:
        """Take no more requests; close once those on the way are answered."""
        self.retired = True
        if not self._pending:
            self.close()

    def received(self, command: RemotingCommand) -> None:
        if not command.is_response:
            self._asked(command, self)
            return
        waits = self._pending.pop(command.opaque, None)
        if waits is not None and not waits[0].done():
            waits[0].set_result(command)
        if self.retired and not self._pending:
            self.close()

    def lost(self, reason: Exception | None) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        waiting, self._pending = self._pending, {}
        for future, _ in waiting.values():
            if not future.done():
                future.set_exception(
                    ConnectionLost(f"{self.address}: connection lost{f': {reason}' if reason else ''}")
                )
        self._left(self)

    def broken(self, fault: str) -> None:
        log.warning("closed %s: %s", self.address, fault)

    def _expire(self) -> None:
        now = self._loop.time()
        late = [o for o, (future, deadline) in self._pending.items() if deadline <= now or future.done()]
        for opaque in late:
            future, _ = self._pending.pop(opaque)
            if not future.done():
                future.set_exception(RequestTimeout(f"{self.address}: no answer in time"))
        self._sweep = self._loop.call_later(TICK_S, self._expire) if self._pending else None
        if self.retired and not self._pending:
            self.close()
