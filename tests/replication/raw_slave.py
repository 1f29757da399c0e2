"""RawSlave: the slave's end of the replication wire, written from its description alone; and a master to copy from."""

import json
import socket
import struct
from pathlib import Path
from typing import Self

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import send

FILE_BYTES = 1 << 16
HEADER = struct.Struct(">qi")


class RawSlave:
    """A connection that keeps what it gets. Every piece is checked: it goes on where the last one ended, is not larger
    than `piece_max`, and does not cross the end of a file."""

    def __init__(self, address: tuple[str, int], *, piece_max: int = 32_768, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(10)
        self.socket.connect(address)
        self.piece_max, self.file_bytes = piece_max, FILE_BYTES
        self.begin = self.end = -1
        self.log = bytearray()
        self.pieces: list[tuple[int, int]] = []
        self.heartbeats = 0

    def say(self, offset: int) -> None:
        self.socket.sendall(struct.pack(">q", offset))

    def piece(self) -> int:
        """Read one piece; returns its size, 0 for a heartbeat. ConnectionError: the master closed."""
        offset, size = HEADER.unpack(self._exactly(HEADER.size))
        if self.end < 0:
            self.begin = self.end = offset
        assert offset == self.end
        assert 0 <= size <= self.piece_max
        if size == 0:
            self.heartbeats += 1
            return 0
        assert offset // self.file_bytes == (offset + size - 1) // self.file_bytes
        self.log += self._exactly(size)
        self.end += size
        self.pieces.append((offset, size))
        return size

    def copy(self, until: int, *, acknowledge: bool = True) -> None:
        while self.end < until:
            self.piece()
            if acknowledge:
                self.say(self.end)

    def refused(self) -> bool:
        """The master closes without a byte of the log."""
        try:
            return self.piece() < 0
        except (ConnectionError, EOFError):
            return True

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(min(size - len(data), 1 << 18))
            if not chunk:
                raise EOFError("closed by the master")
            data += chunk
        return data

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Master(BrokerProcess):
    """A broker with a replication port and small log files; `settings` go to `--set`."""

    def __init__(self, store: Path, **settings: object) -> None:
        self.ha_port = int(str(settings.get("haListenPort") or free_port()))
        all_settings = {"haListenPort": self.ha_port, "mappedFileSizeCommitLog": FILE_BYTES} | settings
        super().__init__(
            store, *(word for key, value in all_settings.items() for word in ("--set", f"{key}={value}"))
        )

    def slave(self, *, piece_max: int = 32_768, receive_buffer: int = 0) -> RawSlave:
        return RawSlave((self.address[0], self.ha_port), piece_max=piece_max, receive_buffer=receive_buffer)

    def status(self) -> dict[str, object]:
        with self.connect() as connection:
            return status_of(connection)

    def written(self) -> int:
        return int(str(self.status()["masterCommitLogMaxOffset"]))

    def log_bytes(self, begin: int, end: int) -> bytes:
        files = sorted((self.store / "commitlog").iterdir())
        first = int(files[0].name)
        whole = b"".join(file.read_bytes() for file in files)
        return whole[begin - first : end - first]

    def fill(self, bytes_wanted: int, topic: str = "T", body: bytes = bytes(1000)) -> int:
        """Send until the log is `bytes_wanted` longer; returns its end."""
        goal = self.written() + bytes_wanted
        with self.connect() as connection:
            while True:
                for _ in range(50):
                    assert send(connection, topic, body).code == 0
                if (end := int(str(status_of(connection)["masterCommitLogMaxOffset"]))) >= goal:
                    return end


def status_of(connection: ClientSocket) -> dict[str, object]:
    found: dict[str, object] = json.loads(connection.ask(RequestCode.GET_BROKER_HA_STATUS).body)
    return found
