"""Wire: one socket to one broker for large frames: parts leave without being joined, answers are kept until asked for.

Beside the client's channels because bulk is what it is for: no task, no future, no copy for a request. One thread.
"""

import select
import socket
import ssl
from collections import deque
from collections.abc import Sequence

from firearrow._native.wire.command import RemotingCommand, WireError
from firearrow.client.base.errors import ConnectFailed
from firearrow.client.remoting.channels import SocksProxies, connect_through, host_port
from firearrow.spark_tools.live.client_link import SharedAdmin

READ_BYTES = 1 << 18
FRAME_BYTES_MAX = 16 << 20
NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def connect(admin: SharedAdmin, address: str) -> "BrokerSocket":
    """As the client's options say: through a proxy, encrypted. OSError, ConnectFailed, ConfigError."""
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
        if isinstance(options.tls, ssl.SSLContext):
            made = options.tls.wrap_socket(made, server_hostname=host)
        return BrokerSocket(made)
    except ssl.SSLError as error:
        made.close()
        raise ConnectFailed(f"{address}: {error}") from error
    except BaseException:
        made.close()
        raise


class BrokerSocket:
    """Of a connected socket, which is its own now. Every verb: OSError when the connection is of no use any more."""

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
        """All of it; what arrives meanwhile is read, so that two who write do not wait for each other.

        TimeoutError: nothing moved for `silent_s`.
        """
        left = [memoryview(part) for part in parts]
        if self._encrypted:
            left = [memoryview(b"".join(left))]
        while left:
            wanted = select.POLLIN | select.POLLOUT
            try:
                sent = self._socket.send(left[0]) if self._encrypted else self._socket.sendmsg(left)
                left = _behind(left, sent)
                continue
            except ssl.SSLWantReadError:
                wanted = select.POLLIN
            except NOT_NOW:
                pass
            self._await(wanted, silent_s)
            self._read()

    def answers(self, silent_s: float) -> list[RemotingCommand]:
        """Those that are here, at least one. TimeoutError: none came for `silent_s`."""
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
        """Whatever is here now."""
        while True:
            try:
                piece = self._socket.recv(READ_BYTES)
            except NOT_NOW:
                return
            if not piece:
                raise ConnectionResetError("the connection was closed by the other end")
            self._rest = self._rest + piece if self._rest else piece
            self._take_frames()

    def _take_frames(self) -> None:
        data, at = self._rest, 0
        while len(data) - at >= 4:
            size = 4 + int.from_bytes(data[at : at + 4])
            if size > FRAME_BYTES_MAX:
                raise ConnectionAbortedError(f"a frame of {size} bytes, at most {FRAME_BYTES_MAX}")
            if len(data) - at < size:
                break
            try:
                command = RemotingCommand.decode(data[at : at + size])
            except WireError as error:
                raise ConnectionAbortedError(f"an answer that cannot be read: {error}") from error
            if command.is_response:
                self._answers.append(command)
            at += size
        self._rest = data[at:]


def _behind(parts: list[memoryview], count: int) -> list[memoryview]:
    """What is left of the parts behind their first `count` bytes."""
    for index, part in enumerate(parts):
        if count < len(part):
            return [part[count:], *parts[index + 1 :]]
        count -= len(part)
    return []
