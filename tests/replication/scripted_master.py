"""ScriptedMaster: what a slave under controllers asks of its master, answered by a test from the files of a log."""

import contextlib
import json
import socket
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand

GREETING_BYTES, ACK_BYTES = 16, 12


class ScriptedMaster:
    """`address` as host:port. `folder` has the log, which ends at `end`. `welcome()`: what is sent after a greeting.

    `greeted`: a slave said who it is. `acks`: the last offset that each connection acknowledged.
    """

    def __init__(self, folder: Path, end: int, welcome: Callable[[], bytes]) -> None:
        self.folder, self.end, self.welcome = folder, end, welcome
        self.greeted = threading.Event()
        self.acks: dict[int, int] = {}
        self._ha = socket.create_server(("127.0.0.1", 0))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._open: list[socket.socket] = []
        for listener, serve in ((self._ha, self._serve_log), (self._listener, self._serve)):
            threading.Thread(target=self._accept, args=(listener, serve), daemon=True).start()

    def close(self) -> None:
        for each in (self._ha, self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self, listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self._open.append(connection)
                threading.Thread(target=self._guarded, args=(serve, connection), daemon=True).start()

    def _guarded(self, serve: Callable[[socket.socket], None], connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            serve(connection)

    # ---- the log ----

    def _serve_log(self, connection: socket.socket) -> None:
        number = len(self.acks)
        self.acks[number] = -1
        if len(connection.recv(GREETING_BYTES, socket.MSG_WAITALL)) < GREETING_BYTES:
            return
        self.greeted.set()
        connection.sendall(self.welcome())
        while len(ack := connection.recv(ACK_BYTES, socket.MSG_WAITALL)) == ACK_BYTES:
            self.acks[number] = int.from_bytes(ack[4:])

    # ---- requests ----

    def _serve(self, connection: socket.socket) -> None:
        rest = b""
        while chunk := connection.recv(1 << 16):
            rest += chunk
            while len(rest) >= 4 and len(rest) >= (size := 4 + int.from_bytes(rest[:4])):
                frame, rest = rest[:size], rest[size:]
                request = RemotingCommand.decode(frame)
                if not request.is_oneway:
                    connection.sendall(self._answer(request).encode())

    def _answer(self, request: RemotingCommand) -> RemotingCommand:
        if request.code == RequestCode.EXCHANGE_BROKER_HA_INFO:
            ext = {"masterHaAddress": "{}:{}".format(*self._ha.getsockname())}
            if "firearrowRecordOffset" in request.ext:
                record = self._record(int(request.ext["firearrowRecordOffset"]))
                ext["firearrowRecordSum"] = f"{len(record)}-{zlib.crc32(record)}"
            return request.answer(ext=ext)
        if request.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            table = {"commitLogMinOffset": "0", "commitLogMaxOffset": str(self.end)}
            return request.answer(body=json.dumps({"table": table}).encode())
        return request.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not scripted")

    def _record(self, offset: int) -> bytes:
        """Of the first file."""
        with (self.folder / f"{0:020d}").open("rb") as file:
            file.seek(offset)
            head = file.read(4)
            return head + file.read(int.from_bytes(head) - 4)
