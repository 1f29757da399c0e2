"""PairProxy: stands between a slave and a port of its master, and changes what they send."""

import contextlib
import socket
import threading
from collections.abc import Callable


class PairProxy:
    """`change(connection, at, data)`: what the slave gets in the place of these bytes, which begin at byte `at` of what
    the master sent on that connection. `connections`: how many there were. `asked(data)`: the same for what the slave
    sends."""

    def __init__(self, port: int) -> None:
        self.change: Callable[[int, int, bytes], bytes] = lambda connection, at, data: data
        self.asked: Callable[[bytes], bytes] = lambda data: data
        self.connections = 0
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)

    def _accept(self) -> None:
        with self._listener, contextlib.suppress(OSError):
            while True:
                slave, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(slave, self.connections), daemon=True).start()

    def _serve(self, slave: socket.socket, number: int) -> None:
        with (
            slave,
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._port)) as master,
        ):
            back = threading.Thread(target=self._copy, args=(slave, master, None), daemon=True)
            back.start()
            self._copy(master, slave, number)
            back.join(10)

    def _copy(self, source: socket.socket, target: socket.socket, number: int | None) -> None:
        at = 0
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(self.asked(data) if number is None else self.change(number, at, data))
                at += len(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
