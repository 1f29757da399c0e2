"""Server: listeners and their connections, idle closing, drain. Knows frames and peers, no request code.

Loop thread.
"""

import asyncio
import contextlib
import errno
import logging
import math
import socket
from collections.abc import Callable, Collection

from firearrow._native.fastpath.fast_connection import FastConnection, FastHandler
from firearrow._native.wire.buffer_pool import MemoryBudget
from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.poller import EpollPoller
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.message_ids import host_bytes
from firearrow.broker.base.peer import Address, Peer
from firearrow.broker.net import connection_limits
from firearrow.broker.net.acceptor import Listener

log = logging.getLogger("firearrow.server")


Receive = Callable[[RemotingCommand, Peer], None]

OPAQUE_MAX = 0x7FFFFFFF
FULL_LOG_S = 1.0
PENDING_CALLS_MAX = 1024
"""Requests of ours that one peer may leave unanswered at a time."""


class ServerConnection(FastConnection, asyncio.BufferedProtocol):
    """One accepted connection; a `Peer` to handlers and tables."""

    def __init__(self, server: "Server", receive: Receive, fast_handler: FastHandler | None = None) -> None:
        super().__init__(server.loop, frame_bytes_max=server.frame_bytes_max, budget=server.budget)
        self.fast_handler = fast_handler
        self._server = server
        self._receive = receive
        self._pending_calls: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._opaque = 0
        self._on_close: list[Callable[[Peer], None]] = []
        self.remote: Address = ("", 0)
        self.local: Address = ("", 0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        remote, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if not remote or not local or not self._server.admits():  # gone before it was here, or one too many
            return self.abort()
        self.remote, self.local = remote[:2], local[:2]
        if self.fast_handler is not None:
            self.host = host_bytes(*self.remote)
        opened = transport.get_extra_info("socket")
        if opened.family != socket.AF_UNIX:
            unsent = connection_limits.unsent_bytes(len(self._server.connections))
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, unsent)
        return self._server.joined(self)

    def lost(self, reason: Exception | None) -> None:
        self._server.left(self)
        for future in self._pending_calls.values():
            if not future.done():
                future.set_exception(ConnectionError("the peer went away"))
        self._pending_calls.clear()
        for callback in self._on_close:
            callback(self)
        self._on_close.clear()

    def broken(self, fault: str) -> None:
        log.warning("closed %s:%d: %s", *self.remote, fault)

    def received(self, command: RemotingCommand) -> None:
        if command.is_response:
            future = self._pending_calls.pop(command.opaque, None)
            if future is not None and not future.done():
                future.set_result(command)
            return
        self._receive(command, self)

    def reply(self, answer: RemotingCommand) -> None:
        try:
            self.send(answer.encode())
        except ValueError as error:  # an answer over a frame limit: the asker learns why
            self.send(answer.answer(1, f"the answer does not fit in a frame: {error}").encode())
        except MemoryError as error:
            self.abort_with(error)

    def oneway(self, command: RemotingCommand) -> None:
        self._opaque = (self._opaque + 1) & OPAQUE_MAX
        command.opaque = self._opaque
        self.send(command.encode())

    async def ask(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        if self.closed:
            raise ConnectionError("the peer went away")
        if len(self._pending_calls) >= PENDING_CALLS_MAX:
            raise ConnectionError("the peer leaves too many requests unanswered")
        self.oneway(command)
        future: asyncio.Future[RemotingCommand] = self._server.loop.create_future()
        self._pending_calls[command.opaque] = future
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        finally:
            self._pending_calls.pop(command.opaque, None)

    def on_close(self, callback: Callable[[Peer], None]) -> None:
        self._on_close.append(callback)


class Server:
    """All listeners of the process. `idle_s`: a connection with neither read nor write for that long is closed.

    `engine`: connections are served by an engine of our own instead of the loop's transports. Connections that together
    hold more than `held_bytes_max` for peers that stopped in the middle lose those that hold most; there are at most as
    many as the process has descriptors for.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        idle_s: float,
        frame_bytes_max: int,
        engine: bool = False,
        held_bytes_max: int = connection_limits.HELD_BYTES_MAX,
    ) -> None:
        self.loop = loop
        self._engine = EpollPoller(loop) if engine else None
        self.frame_bytes_max = frame_bytes_max
        self.budget = MemoryBudget(loop, held_bytes_max, self._close_largest)
        self._connections_max = connection_limits.connections_max()
        self._full_logged_at = -math.inf
        self._idle_s = idle_s
        self._listeners: list[Listener] = []
        self._handshakes: set[asyncio.Task[object]] = set()
        self._connections: set[ServerConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    async def listen(
        self,
        host: str,
        port: int,
        receive: Receive,
        fast_handler: Callable[[], FastHandler | None] = lambda: None,
    ) -> Address:
        """Accept connections; the address that was bound. StartError when the port is taken or the host is not ours.

        `fast_handler()`: what each new connection offers its requests to first.
        """
        try:
            listener = await self._listener(
                host, port, lambda: ServerConnection(self, receive, fast_handler())
            )
        except OSError as error:
            raise StartError(_listen_fault(host, port, error)) from None
        self._listeners.append(listener)
        if self._sweep is None:
            self._sweep = self.loop.call_later(min(self._idle_s, 5), self._close_idle)
        address: Address = listener.sockets[0].getsockname()[:2]
        return address

    async def _listener(self, host: str, port: int, make: Callable[[], ServerConnection]) -> Listener:
        engine = self._engine
        if engine is None:
            return await Listener.bind(
                self.loop, host, port, lambda accepted: self._accept_transport(accepted, make)
            )
        return await Listener.bind(self.loop, host, port, lambda accepted: engine.add(accepted, make()))

    def _accept_transport(self, accepted: socket.socket, make: Callable[[], ServerConnection]) -> None:
        """By a transport of the loop."""
        task = self.loop.create_task(self.loop.connect_accepted_socket(make, accepted))
        self._handshakes.add(task)
        task.add_done_callback(self._handshake_done)

    def _handshake_done(self, task: "asyncio.Task[object]") -> None:
        self._handshakes.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("a connection was gone before it was served: %s", error)

    async def connect(self, host: str, port: int) -> ServerConnection:
        """A connection of ours to another server. OSError."""
        _, connection = await self.loop.create_connection(lambda: ServerConnection(self, _refuse), host, port)
        return connection

    @property
    def scheduler(self) -> EpollPoller | asyncio.AbstractEventLoop:
        """Where callbacks go that run behind the sockets that are ready."""
        return self._engine or self.loop

    @property
    def connections(self) -> Collection[ServerConnection]:
        return self._connections

    def joined(self, connection: ServerConnection) -> None:
        self._connections.add(connection)
        self._empty.clear()

    def admits(self) -> bool:
        """Whether one more may come. When none may, once a second those go that never said anything whole."""
        if len(self._connections) < self._connections_max:
            return True
        now = self.loop.time()
        if now - self._full_logged_at >= FULL_LOG_S:
            self._full_logged_at = now
            gone = connection_limits.idle_newcomers(
                self._connections, now - connection_limits.IDLE_NEWCOMER_S
            )
            log.error(
                "%d connections are all there may be: %d silent ones go", self._connections_max, len(gone)
            )
            for each in gone:
                each.abort()
        return False

    def _close_largest(self) -> None:
        """Connections hold too much: the heaviest go until a quarter of the room is free."""
        excess = self.budget.held - self.budget.bytes_max * 3 // 4
        gone = connection_limits.largest_holders(self._connections, excess)
        held = self.budget.held
        log.error(
            "closed %d connections: all held %d bytes, %d are too many",
            len(gone),
            held,
            self.budget.bytes_max,
        )
        for each in gone:
            each.abort()

    def left(self, connection: ServerConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def stop_listening(self, address: Address | None = None) -> None:
        """Accept nobody at this address, or at any."""
        for listener in list(self._listeners):
            if address is None or listener.sockets[0].getsockname()[:2] == address:
                listener.close()
                self._listeners.remove(listener)

    def stop_reading(self) -> None:
        """Accept nobody and take no more requests."""
        self.stop_listening()
        for connection in self._connections:
            connection.stop_reading()

    async def close(self, within_s: float) -> None:
        """Let queued answers leave, then close every connection; what is still there after `within_s` is cut."""
        self.stop_listening()
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._connections):
            connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._empty.wait()
        for connection in list(self._connections):
            connection.abort()
        await self._empty.wait()
        if self._engine is not None:
            self._engine.close()

    def _close_idle(self) -> None:
        self.budget.return_memory()
        oldest = self.loop.time() - self._idle_s
        for connection in [c for c in self._connections if c.last_seen < oldest]:
            connection.abort()
        self._sweep = self.loop.call_later(min(self._idle_s, 5), self._close_idle)


def _refuse(request: RemotingCommand, peer: Peer) -> None:
    """What a name server asks of us on a connection of ours."""
    if not request.is_oneway:
        peer.reply(request.answer(3, f" request type {request.code} not supported"))


def _listen_fault(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is taken: stop the other broker, or choose another port with --listen or "
            "--namesrv-listen"
        )
    if error.errno == errno.EACCES:
        return f"port {port} on {host} needs privileges: choose one above 1023"
    return f"cannot listen on {host}:{port}: {error.strerror or error}"
