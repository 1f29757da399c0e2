"""PollerHarness: a poller on a loop, the connections that it serves, and their peers' sockets."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.connection import Connection
from firearrow._native.wire.poller import EpollPoller, SocketTransport
from tests.support.connections import Echo
from tests.support.eventually import eventually_async
from tests.support.frames import split_frames


class PollerHarness:
    """`peers` are the other ends of the connections; `faults` what the loop's exception handler got."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.engine = EpollPoller(loop)
        self.peers: list[socket.socket] = []
        self.faults: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: self.faults.append(context))

    def join(self, conn: Connection) -> tuple[socket.socket, SocketTransport]:
        ours, theirs = socket.socketpair()
        theirs.settimeout(5)
        self.peers.append(theirs)
        return theirs, self.engine.add(ours, conn)

    def join_by_tcp(self, conn: Connection) -> tuple[socket.socket, SocketTransport]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            peer = socket.create_connection(listening.getsockname(), timeout=5)
            accepted, _ = listening.accept()
        self.peers.append(peer)
        return peer, self.engine.add(accepted, conn)

    def echo(
        self, answer_bytes: int | None = 0, **limits: int
    ) -> tuple[Echo, socket.socket, SocketTransport]:
        conn = Echo(self.loop, answer_bytes, **limits)
        return conn, *self.join(conn)

    def until(self, predicate: Callable[[], object], within_s: float = 5) -> None:
        self.loop.run_until_complete(eventually_async(predicate, within_s))

    def iterate(self, count: int = 5) -> None:
        async def some() -> None:
            for _ in range(count):
                await asyncio.sleep(0)

        self.loop.run_until_complete(some())


def frame(opaque: int = 1, body: bytes = b"") -> bytes:
    command = RemotingCommand.request(11, {}, body=body)
    command.opaque = opaque
    return command.encode()


def answers(peer: socket.socket, count: int) -> list[RemotingCommand]:
    """Read exactly `count` commands."""
    found: list[RemotingCommand] = []
    rest = b""
    while len(found) < count:
        chunk = peer.recv(1 << 16)
        assert chunk, "closed"
        commands, rest = split_frames(rest + chunk)
        found += commands
    assert rest == b""
    return found
