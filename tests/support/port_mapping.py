"""PortMapping: one port that leads to another, as a container's published port does. Event loop."""

import asyncio
from types import TracebackType
from typing import Self

CHUNK_BYTES = 1 << 16


class PortMapping:
    """Listens on a free port of 127.0.0.1 and forwards to `target` (`host:port`), which may be set later."""

    def __init__(self) -> None:
        self.target = ""
        self.connections = 0
        self.address = ""
        self._pumps: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        host, _, port = self.target.rpartition(":")
        there_reader, there = await asyncio.open_connection(host, int(port))
        for source, sink in ((reader, there), (there_reader, writer)):
            pump = asyncio.create_task(_pump(source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(CHUNK_BYTES):
            sink.write(data)
            await sink.drain()
    except OSError:
        pass
    finally:
        sink.close()
