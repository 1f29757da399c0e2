"""Server: listeners and their connections, idle closing, drain. Knows frames and peers, but no request code.

Loop thread.
"""

import asyncio
import contextlib
import errno
import itertools
import logging
import math
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from firearrow._native.base.histogram import Histogram
from firearrow._native.fastpath.fast_connection import FastConnection, FastHandler
from firearrow._native.fastpath.request_times import RequestTimes
from firearrow._native.wire.buffer_pool import MemoryBudget
from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.connection import ByteProtocol
from firearrow._native.wire.frame import PROXY_HEADER_REFUSED
from firearrow._native.wire.keep_alive import keep_alive
from firearrow._native.wire.poller import EpollPoller
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.memory_limits import MemoryLimits
from firearrow.broker.base.message_ids import host_bytes
from firearrow.broker.base.peer import Address, GrpcCalls, Peer, counted_address, ip_text
from firearrow.broker.base.systemd import PassedSockets
from firearrow.broker.base.tls import handshake_fault
from firearrow.broker.net import connection_limits
from firearrow.broker.net.acceptor import Listener
from firearrow.broker.net.proxy_protocol import (
    FIRST_BYTES,
    PREFIX_BYTES,
    Forwarded,
    Networks,
    ProxyHeaders,
)
from firearrow.broker.net.tls import FIRST_BYTE, ServerTls

log = logging.getLogger("firearrow.server")


Receive = Callable[[RemotingCommand, Peer], None]

OPAQUE_MAX = 0x7FFFFFFF
FULL_LOG_S = 1.0
ONLY_TLS = "only TLS connections are accepted (tls.server.mode=enforcing)"
LOOK_AGAIN_BYTES = 8 << 20
HANDSHAKES_MAX = 1024
"""Connections of the loop's transports whose first bytes or TLS handshake are awaited; the oldest are closed."""
HANDSHAKE_S = 10.0
CONNECTION_NUMBERS = itertools.count(1)
PENDING_CALLS_MAX = 1024
"""Most requests of this broker that one peer may leave unanswered."""


class ServerConnection(FastConnection, asyncio.BufferedProtocol):
    """One connection; implements `Peer` for handlers and tables."""

    def __init__(
        self,
        server: "Server",
        receive: Receive,
        fast_handler: FastHandler | None = None,
        *,
        outgoing: bool = False,
    ) -> None:
        super().__init__(server.loop, frame_bytes_max=server.frame_bytes_max, budget=server.budget)
        self.fast_handler = fast_handler
        self._server = server
        self._receive = receive
        self._outgoing = outgoing
        self._pending_calls: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._opaque = 0
        self.sign: Callable[[RemotingCommand], None] | None = None
        """Signs our requests, on connections to other servers."""
        self._on_close: list[Callable[[Peer], None]] = []
        self.forwarded: Forwarded | None = None
        """The addresses that a proxy reported, which count instead of the socket's."""
        self.remote: Address = ("", 0)
        self.local: Address = ("", 0)
        self.grpc: GrpcCalls | None = None
        """None: it speaks remoting."""
        self.number = next(CONNECTION_NUMBERS)
        self.since = server.loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        remote, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if not remote or not local:  # closed already
            return self.abort()
        if self.forwarded is not None:  # our port stays: it is the one of our ports that was reached
            remote, local = self.forwarded.source, (self.forwarded.destination[0], local[1])
        if not self._server.admits(None if self._outgoing else remote[0]):
            return self.abort()
        self.remote, self.local = remote[:2], local[:2]
        if self.fast_handler is not None:
            self.host = host_bytes(*self.remote)
        sock = transport.get_extra_info("socket")
        if sock.family != socket.AF_UNIX:
            unsent = connection_limits.unsent_bytes(
                len(self._server.connections), self._server.memory.shares.kernel
            )
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, unsent)
        return self._server.joined(self)

    def lost(self, reason: Exception | None) -> None:
        self._server.left(self)
        for future in self._pending_calls.values():
            if not future.done():
                future.set_exception(ConnectionError("the peer closed the connection"))
        self._pending_calls.clear()
        for callback in self._on_close:
            callback(self)
        self._on_close.clear()

    def http2(self) -> ByteProtocol | None:
        return None if self._outgoing else self._server.http2(self)

    def broken(self, fault: str) -> None:
        log.info("closed %s:%d: %s", *self.remote, fault)

    def received(self, command: RemotingCommand) -> None:
        if command.is_response:
            future = self._pending_calls.pop(command.opaque, None)
            if future is not None and not future.done():
                future.set_result(command)
            return
        self._receive(command, self)

    def reply(self, answer: RemotingCommand) -> None:
        self._server.times.answer(answer, self.closed)
        try:
            self.send(answer.encode())
        except ValueError as error:  # the answer exceeds the frame limit: report it to the peer
            self.send(answer.answer(1, f"the answer does not fit in a frame: {error}").encode())
        except MemoryError as error:
            self.abort_with(error)

    def oneway(self, command: RemotingCommand) -> None:
        self._opaque = (self._opaque + 1) & OPAQUE_MAX
        command.opaque = self._opaque
        if self.sign is not None:
            self.sign(command)
        self.send(command.encode())

    async def ask(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        if self.closed:
            raise ConnectionError("the peer closed the connection")
        if len(self._pending_calls) >= PENDING_CALLS_MAX:
            raise ConnectionError(f"the peer has {PENDING_CALLS_MAX} requests to answer already")
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
    """All listeners of the process. `idle_s`: a connection that neither sends nor receives for this time is
    closed.

    `use_poller`: our own poller serves the connections instead of the loop's transports. When the buffers of
    incomplete frames and unread answers hold more together than `memory` grants connections, the connections that hold
    most are closed. The number of connections is limited by the process's descriptors. `times` gets the latency of all
    requests of remoting, `grpc_times` of those that calls of gRPC became. `tls` None: all connections are plain.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        idle_s: float,
        frame_bytes_max: int,
        use_poller: bool = False,
        memory: MemoryLimits | None = None,
        passed: PassedSockets | None = None,
        times: RequestTimes | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self.loop = loop
        self.times = RequestTimes() if times is None else times
        self.grpc_times = RequestTimes()
        self._tls = tls
        self._poller = EpollPoller(loop) if use_poller else None
        if self._poller is not None:
            self._poller.listen(self.times)
        else:
            self.times.measure_turns(loop)
        self._passed = passed
        self.frame_bytes_max = frame_bytes_max
        self.memory = MemoryLimits() if memory is None else memory
        self.budget = MemoryBudget(loop, LOOK_AGAIN_BYTES, self.look_at_memory)
        self._connections_max = connection_limits.connections_max()
        self._full_logged_at = -math.inf
        self.idle_s = idle_s
        self._listeners: list[Listener] = []
        self._proxy_headers = ProxyHeaders(loop, lambda: self.idle_s)
        self._handshakes: dict[asyncio.Task[object], None] = {}
        self._connections: set[ServerConnection] = set()
        self._by_address: Counter[str] = Counter()
        """Connections of each address, and of each network that is counted as one."""
        self.http2: Callable[[ServerConnection], ByteProtocol | None] = lambda connection: None
        """What a connection speaks that has sent HTTP/2's preface; None: it is closed."""
        self._admits_address: Callable[[str, Mapping[str, int]], bool] = lambda address, others: True
        self._sweep: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    async def listen(
        self,
        host: str,
        port: int,
        receive: Receive,
        fast_handler: Callable[[], FastHandler | None] = lambda: None,
        *,
        option: str = "--listen",
    ) -> Address:
        """Listen, but serve connections only from `start_serving` on; returns the bound address. StartError when the
        port is in use or the host is not ours.

        `fast_handler()`: the fast path of a new connection, which gets its requests first. `option` is the one
        that chooses the port.
        """
        try:
            listener = await self._listener(
                host, port, lambda: ServerConnection(self, receive, fast_handler())
            )
        except OSError as error:
            raise StartError(_listen_fault(host, port, error, option)) from None
        self._listeners.append(listener)
        if self._sweep is None:
            self._sweep = self.loop.call_later(min(self.idle_s, 5), self._close_idle)
        address: Address = listener.sockets[0].getsockname()[:2]
        return address

    async def listen_http(
        self, host: str, port: int, make: Callable[[Forwarded | None], asyncio.BaseProtocol]
    ) -> Listener:
        """Serve HTTP at this address, with the same certificates and proxies, at once; the caller closes it.
        `make(forwarded)`: with the addresses that a proxy reported. OSError."""

        def serve(accepted: socket.socket, forwarded: Forwarded | None) -> None:
            self._accept_transport(accepted, make(forwarded), http=True)

        listener = await Listener.bind(
            self.loop, host, port, lambda accepted: self._proxy_headers.accept(accepted, serve)
        )
        listener.start_serving()
        return listener

    def start_serving(self) -> None:
        """At all ports that are listened at now."""
        for listener in self._listeners:
            listener.start_serving()

    async def _listener(self, host: str, port: int, make: Callable[[], ServerConnection]) -> Listener:
        poller, tls = self._poller, self._tls
        session_context = None if tls is None else tls.session_context

        def serve(accepted: socket.socket, forwarded: Forwarded | None) -> None:
            connection = make()
            connection.forwarded = forwarded
            if poller is None or (tls is not None and tls.listening is not None and session_context is None):
                self._accept_transport(accepted, connection)
            else:
                poller.add(accepted, connection, session_context)

        return await Listener.bind(
            self.loop,
            host,
            port,
            lambda accepted: self._proxy_headers.accept(accepted, serve),
            self._passed,
        )

    def _accept_transport(
        self, accepted: socket.socket, connection: asyncio.BaseProtocol, *, http: bool = False
    ) -> None:
        """Serve the socket with a transport of the loop."""
        serving = self._serve(accepted, connection, http=http)
        task: asyncio.Task[object] = self.loop.create_task(serving)
        self._handshakes[task] = None
        task.add_done_callback(self._handshake_done)
        if len(self._handshakes) > HANDSHAKES_MAX:
            next(iter(self._handshakes)).cancel()

    async def _serve(self, accepted: socket.socket, connection: asyncio.BaseProtocol, *, http: bool) -> None:
        """Wait for the first byte if it decides whether the connection speaks TLS."""
        accepted.setblocking(False)
        context = None
        try:
            if self._tls is not None and self._tls.listening is not None:
                async with asyncio.timeout(self.idle_s):
                    first = await self._peek(accepted)
                if first[0] == FIRST_BYTE:
                    context = self._tls.http if http else self._tls.listening
                elif self._tls.enforcing:
                    why = PROXY_HEADER_REFUSED if first.startswith(FIRST_BYTES) else ONLY_TLS
                    log.info("closed %s:%d: %s", *accepted.getpeername()[:2], why)
                    return accepted.close()
        except BaseException:
            accepted.close()
            raise
        limit = {} if context is None else {"ssl_handshake_timeout": HANDSHAKE_S}
        await self.loop.connect_accepted_socket(lambda: connection, accepted, ssl=context, **limit)

    async def _peek(self, accepted: socket.socket) -> bytes:
        """The first bytes that the peer sends, at least one. OSError: it closed the connection."""
        readable = asyncio.Event()
        self.loop.add_reader(accepted, readable.set)
        try:
            await readable.wait()
        finally:
            self.loop.remove_reader(accepted)
        if not (first := accepted.recv(PREFIX_BYTES, socket.MSG_PEEK)):
            raise ConnectionResetError("closed before the first byte")
        return first

    def _handshake_done(self, task: "asyncio.Task[object]") -> None:
        self._handshakes.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("a connection was closed before it was served: %s", error)

    async def connect(
        self, host: str, port: int, sign: Callable[[RemotingCommand], None] | None = None
    ) -> ServerConnection:
        """Open a connection to another server; `sign` signs our requests on it. OSError, with the address in its text
        as asyncio's loop has it."""
        context = None if self._tls is None else self._tls.connecting
        try:
            transport, connection = await self.loop.create_connection(
                lambda: ServerConnection(self, _refuse, outgoing=True),
                host,
                port,
                ssl=context,
                server_hostname=None if context is None else host,
            )
        except ConnectionRefusedError as error:
            raise ConnectionRefusedError(error.errno, f"Connect call failed {(host, port)}") from None
        except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError) as error:
            if context is None:
                raise
            raise handshake_fault(host, port, error) from None
        with contextlib.suppress(OSError):  # it has ended already
            keep_alive(transport.get_extra_info("socket"))
        connection.sign = sign
        return connection

    @property
    def scheduler(self) -> EpollPoller | asyncio.AbstractEventLoop:
        """Schedules callbacks that run after the ready sockets of this pass."""
        return self._poller or self.loop

    @property
    def turns(self) -> Histogram | None:
        """The length of each pass, in microseconds; None: the loop's transports serve the sockets."""
        return None if self._poller is None else self._poller.turns

    @property
    def connections(self) -> Collection[ServerConnection]:
        return self._connections

    def joined(self, connection: ServerConnection) -> None:
        self._connections.add(connection)
        self._by_address.update(_counted(connection.remote[0]))
        self._empty.clear()

    def trust_proxies(self, networks: Networks) -> None:
        """Take PROXY protocol headers from these addresses."""
        self._proxy_headers.trusted = networks

    def limit_addresses(self, admits: Callable[[str, Mapping[str, int]], bool]) -> None:
        """`admits(address, others)`: whether the address may have one more connection. `others`: how many each address
        and each network that is counted as one has."""
        self._admits_address = admits

    def admits(self, address: str | None) -> bool:
        """Whether one more connection of the address is allowed; None: it is our own. At the limit, closes idle
        newcomers, at most once a second."""
        if address is not None and not self._admits_address(ip_text(address), self._by_address):
            return False
        if len(self._connections) < self._connections_max:
            return True
        now = self.loop.time()
        if now - self._full_logged_at >= FULL_LOG_S:
            self._full_logged_at = now
            idle = connection_limits.idle_newcomers(
                self._connections, now - connection_limits.IDLE_NEWCOMER_S
            )
            log.error(
                "the limit of %d connections is reached: closing %d that sent no request",
                self._connections_max,
                len(idle),
            )
            for connection in idle:
                connection.abort()
        return False

    def look_at_memory(self) -> None:
        """Follow the limit of memory; also whenever the buffers have grown by LOOK_AGAIN_BYTES."""
        bytes_max = self.memory.connection_bytes()
        if self.budget.held > bytes_max:
            self._close_largest(bytes_max)
        self.budget.bytes_max = min(self.budget.held + LOOK_AGAIN_BYTES, bytes_max)

    def _close_largest(self, bytes_max: int) -> None:
        """The buffers are over their limit: close the largest holders until a quarter of it is free."""
        excess = self.budget.held - bytes_max * 3 // 4
        largest = connection_limits.largest_holders(self._connections, excess)
        held = self.budget.held
        log.error(
            "closing %d connections: the buffers of all hold %d bytes, at most %d are allowed",
            len(largest),
            held,
            bytes_max,
        )
        for connection in largest:
            connection.abort()

    def left(self, connection: ServerConnection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            for counted in _counted(connection.remote[0]):
                self._by_address[counted] -= 1
                if not self._by_address[counted]:
                    del self._by_address[counted]
        if not self._connections:
            self._empty.set()

    def stop_listening(self, address: Address | None = None) -> None:
        """Accept no more connections at this address, or at any."""
        for listener in list(self._listeners):
            if address is None or listener.sockets[0].getsockname()[:2] == address:
                listener.close()
                self._listeners.remove(listener)

    def stop_reading(self) -> None:
        """Accept no more connections and read no more requests."""
        self.stop_listening()
        self._proxy_headers.close()
        for connection in self._connections:
            connection.stop_reading()

    async def close(self, within_s: float) -> None:
        """Send queued answers, then close every connection; those still open after `within_s` are aborted."""
        self.stop_listening()
        self._proxy_headers.close()
        for task in list(self._handshakes):
            task.cancel()
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
        if self._poller is not None:
            self._poller.close()

    def _close_idle(self) -> None:
        self.budget.return_memory()
        oldest = self.loop.time() - self.idle_s
        for connection in [c for c in self._connections if c.last_seen < oldest]:
            connection.abort()
        self._sweep = self.loop.call_later(min(self.idle_s, 5), self._close_idle)


def _counted(host: str) -> set[str]:
    return {ip_text(host), counted_address(host)}


def _refuse(request: RemotingCommand, peer: Peer) -> None:
    """Answer a request that a name server sends us on one of this broker's connections."""
    if not request.is_oneway:
        peer.reply(request.answer(3, f" request type {request.code} not supported"))


def _listen_fault(host: str, port: int, error: OSError, option: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use: stop what listens there, or choose another port with {option}"
        )
    if error.errno == errno.EACCES:
        return f"port {port} on {host} needs privileges: choose a higher one with {option}"
    return f"cannot listen on {host}:{port}: {error.strerror or error}"
