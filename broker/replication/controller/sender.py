"""AutoSwitchSender: the master's end of the wire under controllers, for Apache's slaves and ours: a handshake with our
epochs, then pieces with the epoch and the confirmed offset. Apache: AutoSwitchHAConnection. Loop thread.
"""

import asyncio
import socket
from collections.abc import Callable

from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.peer import ip_text
from firearrow.broker.replication.controller import frames
from firearrow.broker.replication.controller.frames import Greeting, PieceHeader
from firearrow.broker.replication.log.epoch_file import Epoch, EpochFile
from firearrow.broker.replication.session.expected_replicas import Place
from firearrow.broker.replication.session.slave_stream import SlaveStream
from firearrow.broker.replication.session.wire import SenderHost


class AutoSwitchSender:
    """`greeting` None: the slave has not reported who it is. `file_bytes`: of the log's files."""

    header_bytes = frames.PIECE.size

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        accepted: socket.socket,
        store: MessageStore,
        host: SenderHost,
        epochs: EpochFile,
        *,
        piece_bytes: Callable[[], int],
        file_bytes: int,
    ) -> None:
        self._store = store
        self._host = host
        self._epochs = epochs
        self._file_bytes = file_bytes
        self.greeting: Greeting | None = None
        self.end = -1
        self._confirmed_sent = -1
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
        number = 0 if self.greeting is None else self.greeting.number
        return Place("", number, ip_text(self.traffic.remote[0]), 0)

    def details(self) -> dict[str, object]:
        return {}

    # ---- from the slave ----

    def _received(self, data: bytes) -> bytes:
        try:
            rest = self._take_frames(data)
        except frames.FrameError as fault:
            self._stream.close(str(fault))
            return b""
        if not self._stream.is_closed and self.end >= 0:
            self._stream.send()
        return rest

    def _take_frames(self, data: bytes) -> bytes:
        at = 0
        while not self._stream.is_closed:
            size = frames.GREETING.size if self.greeting is None else frames.ACKNOWLEDGEMENT.size
            frame = data[at : at + size]
            if len(frame) < size:
                break
            at += size
            if self.greeting is None:
                self.greeting = frames.greeting_of(frame)
                self._welcome()
            else:
                self._note_end(frames.acknowledged(frame))
        return data[at:]

    def _welcome(self) -> None:
        """Send which epochs we have; the slave then reports where its log ends, after it has truncated it."""
        try:
            if not self._stream.write(frames.welcome_frame(self._store.written, self._epochs.entries)):
                self._stream.close("it does not take our handshake")
        except OSError:
            self._stream.close()

    def _note_end(self, end: int) -> None:
        fault = self._begin(end) if self._stream.sent < 0 else ""
        if fault := fault or self._stream.ack_fault(end):
            return self._stream.close(fault)
        self.end = end
        return self._host.on_acknowledged(self)

    def _begin(self, asked: int) -> str:
        """As `SlaveStream.begin`."""
        if asked == 0 and self.greeting is not None and self.greeting.from_last_file:
            written = self._store.written
            self._stream.begin_at(max(written - written % self._file_bytes, self._store.min_physical))
            return ""
        return self._stream.begin(asked)

    # ---- to the slave ----

    def header(self, at: int, size: int) -> bytes:
        self._confirmed_sent = self._store.reader.confirmed
        return frames.piece_header(PieceHeader(size, at, self._epoch_at(at), self._confirmed_sent))

    @property
    def waits_for_confirmed(self) -> bool:
        return self._confirmed_sent != self._store.reader.confirmed

    def piece_size(self, at: int, most: int) -> int:
        """A piece is of one epoch."""
        ends = [epoch.start - at for epoch in self._epochs.entries if at < epoch.start < at + most]
        return min(ends, default=most)

    def _epoch_at(self, at: int) -> Epoch:
        """Of the byte there; the oldest one, if that is older."""
        entries = self._epochs.entries
        return next((epoch for epoch in reversed(entries) if epoch.start <= at), entries[0])

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
