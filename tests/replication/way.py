"""Way: stands between a slave and its master's replication port, and cuts, splits or changes what the master sends."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable

HEADER = struct.Struct(">qi")
PAUSE_S = 0.02
Address = tuple[str, int]


class Way:
    """`cuts`: numbers of bytes of a frame after which both ends are closed, one a connection. `splits`: after how many
    bytes of a frame it pauses, one a frame with bytes of the log. `turn`: offset of the log's byte of which one bit is
    turned, once. `connections`: how many there were."""

    def __init__(self, to: Callable[[], Address], listen: Address = ("127.0.0.1", 0)) -> None:
        self._to = to
        self.cuts: list[int] = []
        self.splits: list[int] = []
        self.turn: int | None = None
        self.connections = 0
        self._listener = socket.create_server(listen)
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close all connections; new ones are served."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                slave, _ = self._listener.accept()
                try:
                    master = socket.create_connection(self._to(), 5)
                except OSError:
                    slave.close()
                    continue
                self.connections += 1
                for end in (slave, master):
                    end.settimeout(None)
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._open.append(end)
                for work in (self._to_master, self._to_slave):
                    threading.Thread(target=work, args=(slave, master), daemon=True).start()

    def _taken(self, numbers: list[int]) -> int | None:
        """The next one. Several connections share them."""
        with self._lock:
            return numbers.pop(0) if numbers else None

    def _to_master(self, slave: socket.socket, master: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := slave.recv(1 << 16):
                master.sendall(data)
            master.shutdown(socket.SHUT_RDWR)

    def _to_slave(self, slave: socket.socket, master: socket.socket) -> None:
        with slave, master, contextlib.suppress(OSError):
            while len(header := master.recv(HEADER.size, socket.MSG_WAITALL)) == HEADER.size:
                offset, size = HEADER.unpack(header)
                frame = bytearray(header)
                if size:
                    frame += master.recv(size, socket.MSG_WAITALL)
                if size and (at := self._taken(self.cuts)) is not None:
                    slave.sendall(frame[:at])
                    break
                if self.turn is not None and offset <= self.turn < offset + size:
                    frame[HEADER.size + self.turn - offset] ^= 0x10
                    self.turn = None
                if size and (at := self._taken(self.splits)) is not None:
                    slave.sendall(frame[:at])
                    time.sleep(PAUSE_S)
                    del frame[:at]
                slave.sendall(frame)
            with contextlib.suppress(OSError):
                slave.shutdown(socket.SHUT_RDWR)
