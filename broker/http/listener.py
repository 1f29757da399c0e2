"""HttpListener: serves GET and HEAD on one address, one request of a connection after the other.

`bind` decides whether connections speak TLS. Bounded: connections, bytes of a request's head, the time until it is
complete, and the time that a client may take to read. Bodies made in pieces are sent as chunks; they are compressed in
another thread if the client accepts that. Loop thread.
"""

import asyncio
import logging
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import Protocol, cast

from firearrow._native.wire.frame import PROXY_HEADER_REFUSED
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.peer import Address
from firearrow.broker.http.messages import (
    END,
    HEAD_BYTES_MAX,
    BadRequest,
    Request,
    Response,
    chunk,
    head_of,
    parse,
)
from firearrow.broker.net.proxy_protocol import FIRST_BYTES, Forwarded

log = logging.getLogger("firearrow.http")

CONNECTIONS_MAX = 64
IDLE_S = 30.0
"""Time until the next request is complete."""
WRITE_S = 30.0
"""Time that a client may take to read what was sent."""
HIGH_WATER = 1 << 18
COMPRESSED_FROM = 1024
"""Bytes from which a body is worth compressing."""
COMPRESSION_LEVEL = 1
GZIP = 16 + zlib.MAX_WBITS


class Visitor(Protocol):
    """The connection that a request came on."""

    @property
    def host(self) -> str: ...


class Bound(Protocol):
    """Sockets that are listened at."""

    @property
    def sockets(self) -> Sequence[socket.socket]: ...
    def close(self) -> None: ...


Answer = Callable[[Request, Visitor], Awaitable[Response]]
Bind = Callable[[str, int, Callable[[Forwarded | None], asyncio.Protocol]], Awaitable[Bound]]


class HttpConnection(asyncio.Protocol):
    """`forwarded`: the addresses that a proxy reported."""

    def __init__(self, listener: "HttpListener", forwarded: Forwarded | None = None) -> None:
        self._listener = listener
        self._forwarded = forwarded
        self._transport = asyncio.Transport()
        """Until `connection_made`, one that can do nothing."""
        self._remote: Address = ("", 0)
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._at_end = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        socket_remote = transport.get_extra_info("peername") or self._remote
        self._remote = socket_remote[:2] if self._forwarded is None else self._forwarded.source
        if not self._listener.admit(self):
            return self._transport.abort()
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        return self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.left(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._task is not None:  # a request is being answered: what follows it waits
            if len(self._buffer) > HEAD_BYTES_MAX:
                self._transport.pause_reading()
            return
        self._next()

    def eof_received(self) -> bool:
        self._at_end = True
        return self._task is not None  # answer first

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    @property
    def host(self) -> str:
        """The peer's address."""
        return self._remote[0]

    @property
    def is_idle(self) -> bool:
        """No request of it is being answered."""
        return self._task is None

    def abort(self) -> None:
        self._transport.abort()

    def _wait_for_request(self) -> None:
        self._timer = self._listener.loop.call_later(IDLE_S, self._transport.abort)

    def _next(self) -> None:
        """Answer the next request if all of its head is there."""
        end = self._buffer.find(END)
        is_proxy_header = self._buffer.startswith(FIRST_BYTES)
        if end < 0 and len(self._buffer) <= HEAD_BYTES_MAX and not is_proxy_header:
            return
        if self._timer is not None:
            self._timer.cancel()
        try:
            if is_proxy_header:
                log.info("closed %s:%d: %s", *self._remote, PROXY_HEADER_REFUSED)
                raise BadRequest(HTTPStatus.BAD_REQUEST, PROXY_HEADER_REFUSED)
            if not 0 <= end <= HEAD_BYTES_MAX:
                raise BadRequest(HTTPStatus(431), f"the head is longer than {HEAD_BYTES_MAX} bytes")
            request = parse(bytes(self._buffer[:end]))
        except BadRequest as error:
            return self._refuse(error)
        del self._buffer[: end + len(END)]
        self._task = self._listener.loop.create_task(self._answer(request))

    def _refuse(self, error: BadRequest) -> None:
        body = f"{error}\n".encode("utf-8", "replace")
        headers = {"Allow": "GET, HEAD"} if error.status is HTTPStatus.METHOD_NOT_ALLOWED else {}
        response = Response(error.status, body, headers=headers)
        self._transport.write(head_of(response, minor=1, keeps_alive=False, length=len(body)) + body)
        self._transport.close()

    async def _answer(self, request: Request) -> None:
        keeps_alive = request.keeps_alive and (not self._at_end or END in self._buffer)
        try:
            response = await self._listener.answer(request, self)
            if isinstance(response.body, bytes):
                await self._send_whole(request, response, response.body, keeps_alive)
            else:
                keeps_alive = keeps_alive and bool(request.minor)
                await self._send_pieces(request, response, response.body, keeps_alive)
        except asyncio.CancelledError:
            raise
        except (OSError, TimeoutError):
            return self._transport.abort()
        except Exception:
            log.exception("%s %s of %s failed", request.method, request.path, self._remote[0])
            return self._transport.abort()
        finally:
            self._task = None
        if not keeps_alive:
            return self._transport.close()
        self._transport.resume_reading()
        self._listener.answered(self)
        self._wait_for_request()
        self._next()
        if self._at_end and self._task is None:  # what is left is not a whole request
            self._transport.close()
        return None

    async def _send_whole(self, request: Request, response: Response, body: bytes, keeps_alive: bool) -> None:
        compressed = len(body) >= COMPRESSED_FROM and request.accepts("accept-encoding", "gzip")
        if compressed:
            body = await self._listener.in_thread(lambda: zlib.compress(body, COMPRESSION_LEVEL, GZIP))
        head = head_of(
            response,
            minor=request.minor,
            keeps_alive=keeps_alive,
            length=len(body),
            is_compressed=compressed,
        )
        await self._write(head if request.method == "HEAD" else head + body)

    async def _send_pieces(
        self, request: Request, response: Response, pieces: AsyncIterator[bytes], keeps_alive: bool
    ) -> None:
        compressor = None
        if request.accepts("accept-encoding", "gzip"):
            compressor = zlib.compressobj(COMPRESSION_LEVEL, wbits=GZIP)
        head = head_of(
            response,
            minor=request.minor,
            keeps_alive=keeps_alive,
            length=None,
            is_compressed=compressor is not None,
        )
        await self._write(head)
        if request.method == "HEAD":
            return
        framed: Callable[[bytes], bytes] = chunk if request.minor else bytes
        async for piece in pieces:
            data = piece
            if compressor is not None:
                data = await self._listener.in_thread(partial(compressor.compress, piece))
            if data:
                await self._write(framed(data))
        if compressor is not None:
            await self._write(framed(await self._listener.in_thread(compressor.flush)))
        if request.minor:
            await self._write(chunk(b""))

    async def _write(self, data: bytes) -> None:
        """TimeoutError: the client does not read."""
        self._transport.write(data)
        async with asyncio.timeout(WRITE_S):
            await self._writable.wait()


class HttpListener:
    """`answer(request, connection)` makes the response of each request; `bind(host, port, make)` listens, and serves
    each connection with what `make(forwarded)` returns; `thread` compresses."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, answer: Answer, bind: Bind, thread: ThreadPoolExecutor
    ) -> None:
        self.loop = loop
        self.answer = answer
        self._bind = bind
        self._thread = thread
        self._bound: Bound | None = None
        self._connections: dict[HttpConnection, None] = {}
        """The one that was idle longest first."""

    async def listen(self, host: str, port: int) -> Address:
        """Returns the bound address. StartError."""
        try:
            self._bound = await self._bind(host, port, lambda forwarded: HttpConnection(self, forwarded))
        except OSError as error:
            reason = error.strerror or str(error)
            raise StartError(
                f"cannot serve metrics on {host}:{port} ({reason}): choose another port with --http"
            ) from None
        address: Address = self._bound.sockets[0].getsockname()[:2]
        return address

    async def close(self) -> None:
        if self._bound is not None:
            self._bound.close()
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)  # the loop reports their loss

    def admit(self, connection: HttpConnection) -> bool:
        """Whether there may be one more connection; at the limit, the one that was idle longest is closed."""
        if len(self._connections) >= CONNECTIONS_MAX:
            idle = next((each for each in self._connections if each.is_idle), None)
            if idle is None:
                return False
            self.left(idle)
            idle.abort()
        self._connections[connection] = None
        return True

    def answered(self, connection: HttpConnection) -> None:
        """It is idle from now on."""
        if connection in self._connections:
            self.left(connection)
            self._connections[connection] = None

    def left(self, connection: HttpConnection) -> None:
        self._connections.pop(connection, None)

    async def in_thread(self, work: Callable[[], bytes]) -> bytes:
        return await self.loop.run_in_executor(self._thread, work)
