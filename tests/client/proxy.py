"""A TCP proxy between a client and a broker that does what bad networks do: silence, cuts, resets, refusals.

`Detour` is also a proxy for a name server, and replaces the broker's address with the proxy's. Event loop only.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from firearrow._native.wire.command import RemotingCommand
from tests.interop.peers import Peer, address

CHUNK_BYTES = 1 << 16
Rewrite = Callable[[RemotingCommand], RemotingCommand]


class Proxy:
    """Forwards everything until configured otherwise.

    `flowing`: if cleared, nothing passes in either direction. `answer_bytes`: after this many bytes of answers the
    connection is reset. `lifetimes`: the next connection is reset after this many bytes of answers.
    `reset_requests`: how many requests are answered by a reset. `chunk_bytes`: the limit of one read. With `tls` the
    client's side is encrypted. `silence()`: nothing moves any more on the connections that are open now, and no
    end of them comes.
    """

    def __init__(
        self, target: str, rewrite: Rewrite | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._tls = tls
        self._target = address(target)
        self._rewrite = rewrite
        self._server: asyncio.Server | None = None
        self._port = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.answer_bytes: int | None = None
        self.lifetimes: Iterator[int] = iter(())
        self.reset_requests = 0
        self.chunk_bytes = CHUNK_BYTES
        self.accepted = 0
        self._silenced = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def silence(self) -> None:
        self._silenced = self.accepted

    async def open(self) -> None:
        """Listen; after `shut` on the same port again."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, ssl=self._tls)
        self._port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        """Reset all connections, refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.reset()
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def reset(self) -> None:
        """Abort every connection."""
        for writer in list(self._open):
            _reset(writer)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        number = self.accepted
        try:
            there_reader, there = await asyncio.open_connection(*self._target)
        except OSError:
            _reset(writer)
            return
        self._open |= {writer, there}
        pumps = (
            asyncio.create_task(self._requests(reader, there, writer, number)),
            asyncio.create_task(self._answers(there_reader, writer, number)),
        )
        self._pumps.update(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        self._pumps.difference_update(pumps)
        for end in (writer, there):
            self._open.discard(end)
            end.close()

    async def _flow(self, number: int) -> None:
        await self.flowing.wait()
        if number <= self._silenced:
            await asyncio.Event().wait()

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        there: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
        number: int,
    ) -> None:
        while data := await _read(reader, self.chunk_bytes):
            await self._flow(number)
            if self.reset_requests > 0:
                self.reset_requests -= 1
                _reset(back)
                return
            await _write(there, data)

    async def _answers(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter, number: int) -> None:
        life = next(self.lifetimes, None)
        while data := await self._answer(reader):
            await self._flow(number)
            passes = min((left for left in (life, self.answer_bytes) if left is not None), default=None)
            await _write(back, data[:passes])
            if life is not None:
                life -= len(data)
            if self.answer_bytes is not None:
                left = self.answer_bytes - len(data)
                self.answer_bytes = left if left > 0 else None
            if passes is not None and passes <= len(data):
                await asyncio.sleep(0.01)  # the half frame is to arrive before the reset
                _reset(back)
                return

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        if self._rewrite is None:
            return await _read(reader, self.chunk_bytes)
        try:
            head = await reader.readexactly(4)
            frame = head + await reader.readexactly(int.from_bytes(head))
        except (asyncio.IncompleteReadError, OSError):
            return b""
        return self._rewrite(RemotingCommand.decode(frame)).encode()


class Detour:
    """A proxy for the name server and one for the broker that it names. `name_server` is for the client."""

    def __init__(self, peer: Peer, tls: ssl.SSLContext | None = None) -> None:
        self._real = peer.address.encode()
        self.broker = Proxy(peer.address, tls=tls)
        self.naming = Proxy(peer.name_server, self._renamed, tls)

    @property
    def name_server(self) -> str:
        return self.naming.address

    async def __aenter__(self) -> Self:
        await self.broker.open()
        await self.naming.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.naming.shut()
        await self.broker.shut()

    def _renamed(self, answer: RemotingCommand) -> RemotingCommand:
        answer.body = answer.body.replace(self._real, self.broker.address.encode())
        return answer


async def _read(reader: asyncio.StreamReader, most: int) -> bytes:
    try:
        return await reader.read(most)
    except OSError:
        return b""


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    try:
        writer.write(data)
        await writer.drain()
    except OSError:
        return


def _reset(writer: asyncio.StreamWriter) -> None:
    """The peer gets a reset instead of an end."""
    end = writer.get_extra_info("socket")
    if end is not None and end.fileno() >= 0:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
