"""FakeBroker: a server that answers sends or pulls wrongly in one chosen way, which a load test must detect."""

import socket
import struct
import threading
import zlib
from collections.abc import Callable
from typing import Self

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand

Lie = Callable[[list[bytes]], list[bytes]]
"""Records of a queue as they are → as the broker sends them."""


def answer(
    opaque: int, code: int = 0, queue_offset: int = 0, next_offset: int = 1, body: bytes = b""
) -> bytes:
    ext = f'{{"queueOffset":"{queue_offset}","nextBeginOffset":"{next_offset}"}}'
    header = f'{{"code":{code},"extFields":{ext},"flag":1,"opaque":{opaque}}}'.encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def record(body: bytes, *, queue_offset: int = 0, crc: int | None = None) -> bytes:
    body_crc = zlib.crc32(body) & 0x7FFFFFFF if crc is None else crc
    head = struct.pack(
        ">iIIiiqqiq8sq8siqi",
        92 + len(body),
        0xDAA320A7,
        body_crc,
        0,
        0,
        queue_offset,
        0,
        0,
        0,
        bytes(8),
        0,
        bytes(8),
        0,
        0,
        len(body),
    )
    return head + body + b"\x01T\0\0"


class FakeBroker:
    """Keeps bodies by queue and answers 17, 310 and 11 from a thread for each connection."""

    def __init__(self, lie: Lie) -> None:
        self.lie = lie
        self.queues: dict[str, list[bytes]] = {}
        self.news = threading.Condition()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with peer:
            try:
                while head := peer.recv(4, socket.MSG_WAITALL):
                    frame = head + peer.recv(int.from_bytes(head), socket.MSG_WAITALL)
                    peer.sendall(self._answer(RemotingCommand.decode(frame)))
            except OSError:
                return  # the load generator gave up

    def _answer(self, request: RemotingCommand) -> bytes:
        if request.code == RequestCode.SEND_MESSAGE_V2:
            with self.news:
                queue = self.queues.setdefault(request.ext["e"], [])
                queue.append(request.body)
                self.news.notify_all()
            return answer(request.opaque, queue_offset=len(queue) - 1)
        if request.code == RequestCode.PULL_MESSAGE:
            return self._pulled(request)
        return answer(request.opaque)

    def _pulled(self, request: RemotingCommand) -> bytes:
        start = request.integer("queueOffset")
        with self.news:
            self.news.wait_for(lambda: len(self.queues.get(request.ext["queueId"], ())) > start, 20)
            bodies = self.queues.get(request.ext["queueId"], [])[start:]
        records = [record(body, queue_offset=start + n) for n, body in enumerate(bodies)]
        records = self.lie(records) if records else []
        end = start + len(bodies)
        return answer(request.opaque, next_offset=end, body=b"".join(records))
