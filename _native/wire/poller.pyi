import asyncio
from collections.abc import Callable
from socket import socket
from typing import Any

from firearrow._native.base.histogram import Histogram
from firearrow._native.wire.connection import Connection, RawTransport
from firearrow._native.wire.tls_session import TlsContext

TURN_BOUNDS_US: tuple[int, ...]

class PassListener:
    """Native code that is called when each pass began and ended."""

class EpollPoller:
    """Serves sockets without the loop's transports, many in one pass. Loop thread.

    Connections and the write batch use it in place of the loop: `time`, and `call_soon`, which runs callbacks
    after the pass's last socket, in order.
    """

    in_pass: bool
    turns: Histogram
    """The length of each pass, in microseconds."""
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None: ...
    @property
    def handshakes(self) -> dict[SocketTransport, float]:
        """Incomplete TLS handshakes, and when they began by the loop's time; the oldest first."""
    def add(self, socket: socket, connection: Connection, tls: TlsContext | None = None) -> SocketTransport:
        """Serve a connected socket from now on; the poller closes it. `tls`: its peer may begin a TLS
        handshake. OSError: its peer is gone already."""
    def listen(self, listener: PassListener) -> None: ...
    def time(self) -> float: ...
    def call_soon(self, callback: Callable[[], object]) -> None: ...
    def close(self) -> None: ...

class SocketTransport(RawTransport):
    """A socket of a poller, with the part of asyncio.Transport that connections use."""

    def get_extra_info(self, name: str, default: Any = None) -> Any: ...  # noqa: ANN401 (as asyncio's)
    def set_write_buffer_limits(self, high: int) -> None: ...
    def is_closing(self) -> bool: ...
    def write(self, data: bytes) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
