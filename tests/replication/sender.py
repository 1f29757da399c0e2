"""Sender: the replication port of a master, as Apache's is on the wire, fed from a store's files.

It asks for nothing and checks nothing; tests change what it sends.
"""

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

HEADER = struct.Struct(">qi")
PIECE, HEARTBEAT_S = 32_768, 0.05
Change = Callable[[int, bytes], bytes]
"""Offset and bytes of a piece → what is sent instead."""


class Sender:
    """Sends the log in `folder` up to `end()`, to each connection from the offset that it asks for.

    `change`: what is sent of a piece, without its header. `frame`: what is sent for a whole frame. `piece`: the
    largest piece. `cuts`: numbers of bytes of a frame after which the connection is closed, one each. `acks`: what was
    acknowledged; `asked`: what each connection asked for. `heartbeats`: whether it says that nothing is new.
    """

    def __init__(self, folder: Path, end: Callable[[], int], segment: int) -> None:
        self.folder, self.end, self.segment = folder, end, segment
        self.change: Change = lambda offset, data: data
        self.frame: Callable[[int, bytes], bytes] = lambda offset, frame: frame
        self.piece = PIECE
        self.heartbeats = False
        self.cuts: list[int] = []
        self.acks: list[int] = []
        self.asked: list[int] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._stopping = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close all connections; new ones are served."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        self._stopping = True
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            offset = int.from_bytes(connection.recv(8, socket.MSG_WAITALL), signed=True)
            self.asked.append(offset)
            connection.settimeout(5)
            while not self._stopping:
                self._read_acks(connection)
                data = self._read(offset)
                if not data:
                    if self.heartbeats:
                        connection.sendall(HEADER.pack(offset, 0))
                        time.sleep(HEARTBEAT_S)
                    time.sleep(0.005)
                else:
                    sent = self.change(offset, data)
                    frame = self.frame(offset, HEADER.pack(offset, len(sent)) + sent)
                    if self.cuts:
                        connection.sendall(frame[: self.cuts.pop(0)])
                        return
                    connection.sendall(frame)
                    offset += len(data)

    def _read_acks(self, connection: socket.socket) -> None:
        if not select.select([connection], [], [], 0)[0]:
            return
        data = connection.recv(1 << 16)
        if not data:
            raise ConnectionError
        self.acks += [int.from_bytes(data[at : at + 8]) for at in range(0, len(data) // 8 * 8, 8)]

    def _read(self, offset: int) -> bytes:
        base = offset - offset % self.segment
        length = min(self.piece, base + self.segment - offset, self.end() - offset)
        if length <= 0:
            return b""
        with (self.folder / f"{base:020d}").open("rb") as file:
            file.seek(offset - base)
            return file.read(length)
