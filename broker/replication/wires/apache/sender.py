"""ApacheSender: the master's end of Apache's wire: one slave of a master. Loop thread.

The wire of Apache 4 and 5: the slave sends the end of its log (i64), first as a request, then as an acknowledgement;
the master sends pieces: offset i64, size i32, bytes of the log. Size 0 is a heartbeat. Apache: HAConnection.
"""

import asyncio
import socket
import struct
from collections.abc import Callable

from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.peer import ip_text
from firearrow.broker.replication.session.expected_replicas import Place
from firearrow.broker.replication.session.slave_stream import SlaveStream
from firearrow.broker.replication.session.wire import SenderHost

OFFSET, HEADER = struct.Struct(">q"), struct.Struct(">qi")


class ApacheSender:
    header_bytes = HEADER.size
    waits_for_confirmed = False
    """This wire carries nothing of what is confirmed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        accepted: socket.socket,
        store: MessageStore,
        host: SenderHost,
        *,
        piece_bytes: Callable[[], int],
    ) -> None:
        self._host = host
        self.end = -1
        self._stream = SlaveStream(
            loop, accepted, store, self, piece_bytes=piece_bytes, received=self._received, left=self._left
        )
        self.traffic = self._stream.traffic

    @property
    def is_newcomer(self) -> bool:
        return self.end < 0

    @property
    def sent(self) -> int:
        return self._stream.sent

    @property
    def place(self) -> Place:
        return Place("", 0, ip_text(self.traffic.remote[0]), 0)

    def details(self) -> dict[str, object]:
        return {}

    def _received(self, data: bytes) -> bytes:
        stream, whole = self._stream, len(data) - len(data) % OFFSET.size
        if whole == 0:
            return data
        is_first = stream.sent < 0
        fault = stream.begin(OFFSET.unpack_from(data)[0]) if is_first else ""
        (end,) = OFFSET.unpack_from(data, whole - OFFSET.size)
        if fault := fault or stream.ack_fault(end):
            stream.close(fault)
            return b""
        self.end = end
        self._host.on_acknowledged(self)
        if (
            is_first and not stream.is_closed
        ):  # later the writes of the log set the pace, not acknowledgements
            stream.send()
        return data[whole:]

    def header(self, at: int, size: int) -> bytes:
        return HEADER.pack(at, size)

    def piece_size(self, at: int, most: int) -> int:
        return most

    def send(self) -> None:
        self._stream.send()

    def heartbeat(self) -> None:
        self._stream.heartbeat()

    def finish(self) -> None:
        self._stream.close()

    def close(self, why: str = "") -> None:
        self._stream.close(why)

    def _left(self, why: str) -> None:
        self._host.on_left(self, why)
