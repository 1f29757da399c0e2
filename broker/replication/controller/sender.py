"""AutoSwitchCodec: the master's end of the wire under controllers, for Apache's slaves and ours: a handshake with our
epochs, then pieces with the epoch and the confirmed offset. Apache: AutoSwitchHAConnection. Loop thread.
"""

from firearrow._native.store.message_store import MessageStore
from firearrow.broker.replication.controller import frames
from firearrow.broker.replication.controller.frames import Greeting, PieceHeader
from firearrow.broker.replication.log.epoch_file import Epoch, EpochFile
from firearrow.broker.replication.session.slave_stream import SlaveStream


class AutoSwitchCodec:
    """`greeting` None: the slave has not reported who it is. `file_bytes`: of the log's files."""

    header_bytes = frames.PIECE.size

    def __init__(self, store: MessageStore, epochs: EpochFile, file_bytes: int) -> None:
        self._store = store
        self._epochs = epochs
        self._file_bytes = file_bytes
        self.greeting: Greeting | None = None
        self._confirmed_sent = -1

    @property
    def number(self) -> int:
        return 0 if self.greeting is None else self.greeting.number

    # ---- from the slave ----

    def received(self, stream: SlaveStream, data: bytes) -> bytes:
        try:
            rest = self._take_frames(stream, data)
        except frames.FrameError as fault:
            stream.close(str(fault))
            return b""
        if not stream.is_closed and stream.end >= 0:
            stream.send()
        return rest

    def _take_frames(self, stream: SlaveStream, data: bytes) -> bytes:
        at = 0
        while not stream.is_closed:
            size = frames.GREETING.size if self.greeting is None else frames.ACKNOWLEDGEMENT.size
            frame = data[at : at + size]
            if len(frame) < size:
                break
            at += size
            if self.greeting is None:
                self.greeting = frames.greeting_of(frame)
                self._welcome(stream)
            else:
                self._acknowledged(stream, frames.acknowledged(frame), self.greeting)
        return data[at:]

    def _welcome(self, stream: SlaveStream) -> None:
        """Send which epochs we have; the slave then reports where its log ends, after it has truncated it."""
        try:
            if not stream.write(frames.welcome_frame(self._store.written, self._epochs.entries)):
                stream.close("it does not take our handshake")
        except OSError:
            stream.close()

    def _acknowledged(self, stream: SlaveStream, end: int, greeting: Greeting) -> None:
        if stream.sent < 0:
            if end == 0 and greeting.from_last_file:
                written = self._store.written
                stream.begin_at(max(written - written % self._file_bytes, self._store.min_physical))
            elif fault := stream.begin(end):
                return stream.close(fault)
        return stream.acknowledge(end)

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
