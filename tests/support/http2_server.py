"""An HTTP/2 server without a broker: each call goes to a function; for tests of the session with real clients."""

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Self

from firearrow._native.http2.grpc_stream import GrpcStream
from firearrow._native.http2.session import Http2Session
from firearrow._native.wire.buffer_pool import MemoryBudget
from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.connection import Connection
from firearrow._native.wire.poller import EpollPoller
from tests.support.eventually import eventually_async

MESSAGE_BYTES_MAX = 8 << 20


class EchoCall:
    """Sends each message back, `/…/N` N times; ends with the client's side."""

    def __init__(self, stream: GrpcStream) -> None:
        self.stream = stream
        last = stream.path.rpartition("/")[2]
        self.times = int(last) if last.isdecimal() else 1
        self.messages = 0
        self.was_cancelled = False

    def message(self, message: bytes) -> None:
        self.messages += 1
        for _ in range(self.times):
            self.stream.send(message)

    def half_closed(self) -> None:
        self.stream.finish()

    def cancelled(self) -> None:
        self.was_cancelled = True


class Http2Connection(Connection, asyncio.BufferedProtocol):
    def __init__(self, server: "Http2Server") -> None:
        super().__init__(server.loop, budget=server.budget)
        self.server = server
        self.faults: list[str] = []
        self.frames: list[RemotingCommand] = []
        self.losses = 0

    def http2(self) -> Http2Session:
        return Http2Session(self, self.server.accept, MESSAGE_BYTES_MAX)

    def received(self, command: RemotingCommand) -> None:
        self.frames.append(command)
        self.send(command.answer().encode())

    def broken(self, fault: str) -> None:
        self.faults.append(fault)

    def lost(self, reason: Exception | None) -> None:
        self.losses += 1


class Http2Server:
    """Serves in a thread of its own. `make(stream)`: the call, as GrpcStream.call. `poller`: by the poller, else by the
    loop's transports."""

    def __init__(self, make: Callable[[GrpcStream], object] = EchoCall, *, poller: bool = True) -> None:
        self._make = make
        self._with_poller = poller
        self.calls: list[object] = []
        self.connections: list[Http2Connection] = []
        self.port = 0
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def accept(self, stream: GrpcStream) -> object:
        call = self._make(stream)
        if call is not None:
            self.calls.append(call)
        return call

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def run(self, function: Callable[[], None]) -> None:
        """Run it in the server's loop, and wait for it."""
        done = threading.Event()

        def once() -> None:
            function()
            done.set()

        self.loop.call_soon_threadsafe(once)
        assert done.wait(10)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def _connection(self) -> Http2Connection:
        connection = Http2Connection(self)
        self.connections.append(connection)
        return connection

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.budget = MemoryBudget(self.loop, 1 << 30, lambda: None)
        poller = EpollPoller(self.loop) if self._with_poller else None
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        accepting = asyncio.create_task(self._accept(listener, poller))
        self._started.set()
        await self._stop.wait()
        accepting.cancel()
        listener.close()
        for connection in self.connections:
            connection.abort()
        await eventually_async(lambda: all(connection.closed for connection in self.connections))
        if poller is not None:
            poller.close()

    async def _accept(self, listener: socket.socket, poller: EpollPoller | None) -> None:
        while True:
            accepted, _ = await self.loop.sock_accept(listener)
            if poller is not None:
                poller.add(accepted, self._connection())
            else:
                await self.loop.connect_accepted_socket(self._connection, accepted)
