"""A real broker process on free ports, and a plain blocking connection to it."""

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from firearrow._native.wire.command import RemotingCommand

READY = re.compile(
    r"firearrow ready: broker (?P<host>\S+):(?P<port>\d+), name server (?:(?P<ns_host>\S+):(?P<ns_port>\d+)|off), "
    r"store (?P<store>.+), (?P<topics>\d+) topics, (?P<seconds>[\d.]+) s"
)


class Broker:
    """`firearrow broker` on free ports. Its log goes to `broker.log` beside the store."""

    def __init__(self, store: Path, *args: str, environment: dict[str, str] | None = None, wait_s: float = 30) -> None:
        self.store = store
        self.log = store.parent / f"{store.name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "firearrow.broker", "--store", str(store), *self._listen(args), *args],
                stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ | (environment or {}),
            )  # fmt: skip
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], wait_s)[0]:
            self.kill()
            raise TimeoutError(f"no ready line within {wait_s} s; log: {self.log.read_text()[-2000:]}")
        self.line = self.process.stdout.readline().strip()
        match = READY.match(self.line)
        if match is None:
            self.process.wait(10)
            raise RuntimeError(f"exit {self.process.returncode}: {self.line!r} {self.log.read_text()[-2000:]}")
        self.address = (match["host"], int(match["port"]))
        self.name_server = (match["ns_host"], int(match["ns_port"])) if match["ns_port"] else None
        self.topics = int(match["topics"])
        self.seconds = float(match["seconds"])

    @staticmethod
    def _listen(args: tuple[str, ...]) -> list[str]:
        listen = [] if "--listen" in args else ["--listen", "127.0.0.1:0"]
        return listen if "--namesrv-listen" in args else [*listen, "--namesrv-listen", "127.0.0.1:0"]

    def connect(self) -> "Connection":
        return Connection(self.address)

    def connect_name_server(self) -> "Connection":
        assert self.name_server is not None
        return Connection(self.name_server)

    def stop(self, within_s: float = 10) -> int:
        """SIGTERM, and the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(within_s)
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL; nothing is flushed."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def anonymous_kib(self) -> int:
        """RssAnon of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1])  # type: ignore[index]

    def __enter__(self) -> "Broker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class Connection:
    """A blocking connection; `ask` sends one request and reads its answer, keeping what the broker asks of us meanwhile."""

    def __init__(self, address: tuple[str, int], timeout_s: float = 30) -> None:
        self.socket = socket.create_connection(address, timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.requests: list[RemotingCommand] = []
        self._rest = b""
        self._opaque = 0

    def send(self, command: RemotingCommand) -> int:
        self._opaque += 1
        command.opaque = self._opaque
        self.socket.sendall(command.encode())
        return self._opaque

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
            piece = self.socket.recv(1 << 18)
            if not piece:
                raise ConnectionError("closed by the broker")
            self._rest += piece

    def answer_to(self, opaque: int) -> RemotingCommand:
        while True:
            command = self.receive()
            if not command.is_response:
                self.requests.append(command)
            elif command.opaque == opaque:
                return command

    def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", serializer: int = 0) -> RemotingCommand:
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
        except ConnectionError:
            return True
        return False

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
