"""Connections without a socket: an echo, and functions that feed one and run its loop."""

import asyncio
from typing import Any

from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.connection import Connection
from tests.support.transport import RecordingTransport


class Echo(Connection):
    """Keeps what it receives; answers each request with `answer_bytes` of body."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        answer_bytes: int | None = None,
        **limits: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(loop, **limits)
        self.commands: list[RemotingCommand] = []
        self.faults: list[str] = []
        self.losses = 0
        self.answer_size = answer_bytes

    def received(self, command: RemotingCommand) -> None:
        self.commands.append(command)
        if self.answer_size is not None:
            self.send(command.answer(body=bytes(self.answer_size)).encode())

    def broken(self, fault: str) -> None:
        self.faults.append(fault)

    def lost(self, reason: Exception | None) -> None:
        self.losses += 1


def connected(conn: Echo) -> RecordingTransport:
    transport = RecordingTransport()
    conn.connection_made(transport)  # type: ignore[arg-type]
    return transport


def feed(conn: Connection, data: bytes) -> None:
    while data:
        buffer = conn.get_buffer(-1)
        chunk = data[: len(buffer)]
        buffer[: len(chunk)] = chunk
        buffer.release()
        conn.buffer_updated(len(chunk))
        data = data[len(chunk) :]


def run_once(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_soon(loop.stop)
    loop.run_forever()


def requests(count: int, body: int = 0) -> bytes:
    return b"".join(
        RemotingCommand(34, {"n": str(n)}, bytes(body), opaque=n, serializer=n % 2).encode()
        for n in range(count)
    )
