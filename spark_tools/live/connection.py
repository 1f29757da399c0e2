"""BrokerSocket: one connection to one broker for large frames.

Used for bulk transfer instead of the client's channels: no asyncio task or future, no copy of a request's
parts. Responses are queued until they are read. One thread.
"""

import select
import socket
import ssl
from collections import deque
from collections.abc import Sequence

from firearrow._native.wire.command import RemotingCommand, WireError
from firearrow.client.base.errors import ConnectFailed
from firearrow.client.remoting.channels import SocksProxies, connect_through, host_port
from firearrow.client.remoting.tls import ClientTls, tls_fault
from firearrow.spark_tools.live.client_link import SharedAdmin

READ_BYTES = 1 << 18
FRAME_BYTES_MAX = 16 << 20
NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def connect(admin: SharedAdmin, address: str) -> "BrokerSocket":
    """Connect with the client's proxy and TLS options. OSError, ConnectFailed, ConfigError."""
    options = admin.options
    host, port = host_port(address)
    proxy = SocksProxies(options.socks_proxies).of(host)
    if proxy is None:
        made = socket.create_connection((host, port), options.connect_timeout_s)
    else:
        made = admin.run(lambda: connect_through(proxy, host, port, options.connect_timeout_s))
    try:
        made.settimeout(options.connect_timeout_s)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if options.tls:
            tls = ClientTls(options.tls)
            made = tls.context().wrap_socket(made, server_hostname=tls.server_name(host))
        return BrokerSocket(made)
    except ssl.SSLError as error:
        made.close()
        raise ConnectFailed(f"{address}: {tls_fault(error)}") from error
    except BaseException:
        made.close()
        raise


class BrokerSocket:
    """Owns a connected socket. Every method raises OSError when the connection is broken."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._socket.setblocking(False)
        self._encrypted = isinstance(connected, ssl.SSLSocket)
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)
        self._rest = b""
        self._answers: deque[RemotingCommand] = deque()

    def close(self) -> None:
        self._socket.close()

    def write(self, parts: Sequence[bytes], silent_s: float) -> None:
        """Write all parts. Read what arrives concurrently, so that both ends cannot block on writing.

        TimeoutError: no progress for `silent_s`.
        """
        left = [memoryview(part) for part in parts]
        if self._encrypted:
            left = [memoryview(b"".join(left))]
        while left:
            events = select.POLLIN | select.POLLOUT
            try:
                sent = self._socket.send(left[0]) if self._encrypted else self._socket.sendmsg(left)
                left = _after(left, sent)
                continue
            except ssl.SSLWantReadError:
                events = select.POLLIN
            except NOT_NOW:
                pass
            self._await(events, silent_s)
            self._read()

    def answers(self, silent_s: float) -> list[RemotingCommand]:
        """The responses received, at least one. TimeoutError: none came for `silent_s`."""
        if not self._answers:
            self._read()
        while not self._answers:
            self._await(select.POLLIN, silent_s)
            self._read()
        found = list(self._answers)
        self._answers.clear()
        return found

    def _await(self, events: int, silent_s: float) -> None:
        self._poll.modify(self._socket, events)
        if not self._poll.poll(silent_s * 1000):
            raise TimeoutError(f"no answer within {silent_s:g} s")

    def _read(self) -> None:
        """Read what has arrived, without waiting."""
        while True:
            try:
                chunk = self._socket.recv(READ_BYTES)
            except NOT_NOW:
                return
            except ssl.SSLError as error:  # TLS 1.3 refuses a client's certificate after the handshake
                raise ConnectionAbortedError(tls_fault(error)) from error
            if not chunk:
                raise ConnectionResetError("the broker closed the connection")
            self._rest = self._rest + chunk if self._rest else chunk
            self._take_frames()

    def _take_frames(self) -> None:
        data, at = self._rest, 0
        while len(data) - at >= 4:
            size = 4 + int.from_bytes(data[at : at + 4])
            if size > FRAME_BYTES_MAX:
                raise ConnectionAbortedError(
                    f"the broker sent a frame of {size} bytes, over the limit of {FRAME_BYTES_MAX}"
                )
            if len(data) - at < size:
                break
            try:
                command = RemotingCommand.decode(data[at : at + size])
            except WireError as error:
                raise ConnectionAbortedError(f"cannot decode a response: {error}") from error
            if command.is_response:
                self._answers.append(command)
            at += size
        self._rest = data[at:]


def _after(parts: list[memoryview], count: int) -> list[memoryview]:
    """The parts without their first `count` bytes."""
    for index, part in enumerate(parts):
        if count < len(part):
            return [part[count:], *parts[index + 1 :]]
        count -= len(part)
    return []
