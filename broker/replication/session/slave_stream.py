"""SlaveStream: a slave's socket at its master, of a wire that carries the log alone: what the slave sends comes in,
pieces of the log go out: a header, then bytes of the log, which end where a file ends. Loop thread.

The bytes go from the mapped log to the socket; nothing is held between two calls but the rest of a header. A slave
that reads slowly therefore costs only what its socket buffers, and no file stays mapped for it.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from firearrow._native.replication.read_ahead import ReadAhead
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.peer import ip_text
from firearrow.broker.replication.session.expected_replicas import Place
from firearrow.broker.replication.session.wire import SenderHost, Traffic

READ_BYTES = 1 << 16
TURN_BYTES = 512 << 10
"""Most bytes of the log sent in one turn of the loop, so that a slave that catches up delays nothing else."""
READ_AGAIN_S = 0.001
"""The disk is looked at again while nothing that a slave lacks is in memory."""
PIECES_MAX = 256
"""Most pieces in one send: two buffers each, of 1024 that the system takes."""

Piece = tuple[int, int]
"""Its first offset and its end."""


class SlaveCodec(Protocol):
    """How one connection of a wire is read and written. `number`: that controllers gave the slave; 0: not known, or
    none."""

    @property
    def number(self) -> int: ...
    @property
    def header_bytes(self) -> int: ...
    def header(self, at: int, size: int) -> bytes: ...
    def piece_size(self, at: int, most: int) -> int:
        """Of a piece that begins there."""

    @property
    def waits_for_confirmed(self) -> bool:
        """As of `SenderWire`."""

    def received(self, stream: "SlaveStream", data: bytes) -> bytes:
        """What came, after what this returned the last time: what of it is not whole."""


class SlaveStream:
    """A `SenderWire`, from the accepted connection on. `codec`: of the wire. `begins(self, byte)`: called with the
    first byte, before it is read: False if it is of another wire, and the connection was closed or handed over."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        accepted: socket.socket,
        store: MessageStore,
        codec: SlaveCodec,
        host: SenderHost,
        *,
        begins: "Callable[[SlaveStream, int], bool]",
        piece_bytes: Callable[[], int],
    ) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        now = loop.time()
        self.traffic = Traffic(accepted.getpeername()[:2], now, now, now)
        self._loop = loop
        self._socket = accepted
        self._store = store
        self.codec = codec
        self._host = host
        self._read_ahead = ReadAhead(store)
        self._awaited: asyncio.TimerHandle | None = None
        self._piece_bytes = piece_bytes
        self._begins = begins
        self._is_new = True
        self.is_closed = self._is_full = False
        self._rest = self._header = b""
        self.end = self.sent = self._piece_end = -1
        self._moved = 0
        loop.add_reader(accepted.fileno(), self._read)

    @property
    def is_newcomer(self) -> bool:
        return self.end < 0

    @property
    def waits_for_confirmed(self) -> bool:
        return self.codec.waits_for_confirmed

    @property
    def place(self) -> Place:
        return Place("", self.codec.number, ip_text(self.traffic.remote[0]), 0)

    def details(self) -> dict[str, object]:
        return {}

    # ---- from the slave ----

    def _read(self) -> None:
        try:
            if self._is_new:
                first = self._socket.recv(1, socket.MSG_PEEK)
                if first and not self._begins(self, first[0]):
                    return None
                self._is_new = False
            data = self._socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            data = b""
        if not data:
            return self.close()
        self.traffic.last_read = self._loop.time()
        self._rest = self.codec.received(self, self._rest + data)
        return None

    def begin(self, asked: int) -> str:
        """Begin where the slave's log ends; the fault if there is nothing to send from there."""
        first, written = self._store.min_physical, self._store.written
        if not 0 <= asked <= written:
            return (
                f"its log ends at {asked} and this one at {written}: they are not of one master, or this broker lost "
                "the end of its log; move the slave's store away, so that it copies the whole log"
            )
        if 0 < asked < first:
            return (
                f"its log ends at {asked} and this one begins at {first}, because older files expired: move the "
                "slave's store away, so that it copies the whole log"
            )
        self.begin_at(first if asked == 0 else asked)
        return ""

    def begin_at(self, offset: int) -> None:
        self.sent = self._piece_end = offset

    def acknowledge(self, end: int) -> None:
        """The slave's log ends there."""
        if not 0 <= end <= self.sent:
            return self.close(f"it acknowledged the log up to {end}, but only {self.sent} was sent to it")
        self.end = end
        return self._host.on_acknowledged(self)

    # ---- to the slave ----

    def write(self, frame: bytes) -> bool:
        """Before the log; False: the socket does not take all of it. OSError."""
        is_taken = self._socket.send(frame) == len(frame)
        self.traffic.last_written = self._loop.time()
        return is_taken

    def send(self) -> None:
        """Send what the log has and the socket takes; the rest follows as soon as the slave reads, and the disk."""
        if self.sent >= 0 and not self._is_full and self._awaited is None:
            self._send()

    def heartbeat(self) -> None:
        """Send that nothing is new, unless bytes are under way."""
        if self.sent >= 0 and not self._is_full and self.sent == self._piece_end and not self._header:
            self._header = self.codec.header(self.sent, 0)
            self._send()

    def _send(self) -> None:
        try:
            buffers, pieces, length = self._next()
            if length == 0:
                return self._wait_until_writable(False)
            sent = self._socket.sendmsg(buffers)
        except (BlockingIOError, InterruptedError):
            return self._wait_until_writable(True)
        except OSError as error:
            lost = isinstance(error, ConnectionError)
            return self.close("" if lost else f"the log cannot be sent: {error}")
        except LookupError as fault:
            return self.close(str(fault))
        self.traffic.last_written = self._loop.time()
        self._note_sent(sent, pieces)
        return self._wait_until_writable(sent < length or self.sent < self._store.written)

    def _next(self) -> tuple[list[bytes | memoryview], list[Piece], int]:
        """The buffers of one send, the pieces in them without the one that was begun before, and their length, 0 while
        the disk reads. LookupError: the file was deleted."""
        buffers: list[bytes | memoryview] = [self._header] if self._header else []
        length, pieces = len(self._header), list[Piece]()
        if self.sent == self._store.written:
            return buffers, pieces, length
        at, view = self.sent, self._store.log_bytes(self.sent, TURN_BYTES)
        if view is None:
            raise LookupError(
                f"the log from {at} on has expired before it was sent: move the slave's store away, so that it copies "
                "the whole log, and set a longer fileReservedTime"
            )
        ready = self._read_ahead.ready(at, view)
        if ready == 0 and self._awaited is None:
            self._awaited = self._loop.call_later(READ_AGAIN_S, self._read_again)
        view = view[:ready]
        begun = min(self._piece_end - at, ready)
        if begun > 0:
            buffers.append(view[:begun])
        length += len(view[:begun])
        at, last, most = at + begun, at + len(view), self._piece_bytes()
        while at < last and len(pieces) < PIECES_MAX:
            size = self.codec.piece_size(at, min(most, last - at))
            buffers += (self.codec.header(at, size), view[begun : begun + size])
            pieces.append((at, at + size))
            length += self.codec.header_bytes + size
            begun, at = begun + size, at + size
        return buffers, pieces, length

    def _note_sent(self, sent: int, pieces: list[Piece]) -> None:
        """Move on by what the socket took, which may end inside a header or a piece."""
        header = min(sent, len(self._header))
        self._header = self._header[header:]
        self._move(sent - header)
        left = sent - header - self._moved
        for at, end in pieces:
            if left == 0:
                return
            header = min(left, self.codec.header_bytes)
            self._header, self._piece_end = self.codec.header(at, end - at)[header:], end
            self._move(left - header)
            left -= header + self._moved

    def _move(self, length: int) -> None:
        """At most to the end of the piece."""
        self._moved = min(length, self._piece_end - self.sent)
        self.sent += self._moved
        self.traffic.sent_bytes += self._moved

    def _read_again(self) -> None:
        self._awaited = None
        if not self.is_closed:
            self.send()

    def _wait_until_writable(self, wait: bool) -> None:
        if wait != self._is_full:
            self._is_full = wait
            if wait:
                self._loop.add_writer(self._socket.fileno(), self._send)
            else:
                self._loop.remove_writer(self._socket.fileno())

    def hand_over(self) -> socket.socket:
        """The socket, which this stream no longer serves."""
        self.is_closed = True
        self._loop.remove_reader(self._socket.fileno())
        return self._socket

    def finish(self) -> None:
        self.close()

    def close(self, why: str = "") -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._wait_until_writable(False)
        if self._awaited is not None:
            self._awaited.cancel()
        self._socket.close()
        self._host.on_left(self, why)
