"""ClientSocket: a blocking connection of a client that sends one request after the other."""

import socket
import ssl
import time

from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.signatures import sign


class ClientSocket:
    """A blocking connection; `ask` sends one request and reads its answer.

    Requests of the broker that arrive meanwhile are kept in `requests`. `tls`: the connection speaks TLS.
    `keys`: user and password, with which it signs.
    """

    def __init__(
        self,
        address: tuple[str, int],
        timeout_s: float = 30,
        tls: ssl.SSLContext | None = None,
        keys: tuple[str, str] | None = None,
    ) -> None:
        self.keys = keys
        self.socket = socket.create_connection(address, timeout_s)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.requests: list[RemotingCommand] = []
        self._rest = b""
        self._opaque = 0

    def send(self, command: RemotingCommand) -> int:
        self._opaque += 1
        command.opaque = self._opaque
        if self.keys is not None:
            sign(command, *self.keys)
        self.socket.sendall(command.encode())
        return self._opaque

    def send_request(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> int:
        """Without waiting for the response; returns its opaque."""
        return self.send(RemotingCommand(code, ext, body))

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> RemotingCommand:
        """The next frame; ConnectionError at the end of the stream."""
        while True:
            if len(self._rest) >= 4:
                size = 4 + int.from_bytes(self._rest[:4])
                if len(self._rest) >= size:
                    frame, self._rest = self._rest[:size], self._rest[size:]
                    return RemotingCommand.decode(frame)
            chunk = self.socket.recv(1 << 18)
            if not chunk:
                raise ConnectionError("closed by the broker")
            self._rest += chunk

    def answer_to(self, opaque: int) -> RemotingCommand:
        while True:
            command = self.receive()
            if not command.is_response:
                self.requests.append(command)
            elif command.opaque == opaque:
                return command

    def ask(
        self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", serializer: int = 0
    ) -> RemotingCommand:
        command = RemotingCommand(code, ext, body, serializer=serializer)
        return self.answer_to(self.send(command))

    def closed_by_peer(self, within_s: float = 10) -> bool:
        """Read until the broker closes; False if it is still open after `within_s`."""
        deadline = time.monotonic() + within_s
        try:
            while time.monotonic() < deadline:
                self.socket.settimeout(max(deadline - time.monotonic(), 0.01))
                if not self.socket.recv(1 << 16):
                    return True
        except TimeoutError:
            return False
        except (ConnectionError, ssl.SSLError):
            return True
        return False

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "ClientSocket":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
