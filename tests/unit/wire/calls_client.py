"""A client of `PendingCalls` without a socket."""

import asyncio
from collections.abc import Awaitable, Callable

from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.pending_calls import Failure, PendingCalls
from tests.support.frames import commands_in
from tests.support.transport import RecordingTransport


class Failed(Exception):
    pass


class CallsClient(PendingCalls, asyncio.BufferedProtocol):
    def __init__(self, loop: asyncio.AbstractEventLoop, pending_max: int = 100) -> None:
        super().__init__(loop, pending_max=pending_max)
        self.requests: list[RemotingCommand] = []
        self.faults: list[str] = []
        self.gone = 0

    def received(self, command: RemotingCommand) -> None:
        self.requests.append(command)

    def broken(self, fault: str) -> None:
        self.faults.append(fault)

    def left(self) -> None:
        self.gone += 1

    def failure(self, kind: Failure, reason: Exception | None = None) -> Failed:
        return Failed(kind, reason)

    def feed(self, data: bytes) -> None:
        buffer = self.get_buffer(-1)
        buffer[: len(data)] = data
        self.buffer_updated(len(data))


def run(test: Callable[[CallsClient, RecordingTransport], Awaitable[None]], pending_max: int = 100) -> None:
    async def main() -> None:
        client, transport = CallsClient(asyncio.get_running_loop(), pending_max), RecordingTransport()
        client.connection_made(transport)  # type: ignore[arg-type]
        await test(client, transport)

    asyncio.run(main())


def asked(transport: RecordingTransport) -> list[RemotingCommand]:
    """The requests written so far, each in a separate write or several in one."""
    return commands_in(b"".join(transport.writes))
