"""HAConnection: one slave of a master: its request and acknowledgements, and the log sent to it. Loop thread.

The wire of Apache 4 and 5: the slave sends the end of its log (i64), first as a request, then as an acknowledgement;
the master sends pieces: offset i64, size i32, bytes of the log, which end where a file ends. Size 0 is a heartbeat.

The bytes go from the mapped log to the socket; nothing is held between two calls but the rest of a header. A slave
that reads slowly therefore costs only what its socket buffers, and no file stays mapped for it.
"""

import asyncio
import socket
import struct
from collections.abc import Callable

from firearrow._native.replication.read_ahead import ReadAhead
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.peer import Address

OFFSET, HEADER = struct.Struct(">q"), struct.Struct(">qi")
READ_BYTES = 1 << 16
TURN_BYTES = 512 << 10
"""Most bytes of the log sent in one turn of the loop, so that a slave that catches up delays nothing else."""
READ_AGAIN_S = 0.001
"""The disk is looked at again while nothing that a slave lacks is in memory."""
PIECES_MAX = 256
"""Most pieces in one send: two buffers each, of 1024 that the system takes."""

Piece = tuple[int, int]
"""Its first offset and its end."""


class HAConnection:
    """`acknowledged(self)` is called after each request and acknowledgement, `closed(self, why)` once; `why` is empty
    if the slave left or was silent. `begins(self, byte)` is called with the first byte, before it is read: False if the
    connection is not one of this wire, and was closed or given to another."""

    header_bytes = HEADER.size

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        accepted: socket.socket,
        store: MessageStore,
        *,
        piece_bytes: Callable[[], int],
        begins: "Callable[[HAConnection, int], bool]",
        acknowledged: "Callable[[HAConnection], None]",
        closed: "Callable[[HAConnection, str], None]",
    ) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.remote: Address = accepted.getpeername()[:2]
        self._loop = loop
        self._socket = accepted
        self._store = store
        self._read_ahead = ReadAhead(store)
        self._awaited: asyncio.TimerHandle | None = None
        self._piece_bytes = piece_bytes
        self._begins = begins
        self._acknowledged = acknowledged
        self._closed = closed
        self.is_closed = self._is_full = False
        self._is_new = True
        self._received = b""
        self._header = b""
        self._sent = self._piece_end = -1
        self._moved = 0
        self.end = -1
        """The log's end at the slave; -1 before its first request."""
        self.began = self.last_read = self.last_written = loop.time()
        self.sent_bytes = 0
        self.in_sync = False
        self.target, self.target_at = 0, 0.0
        """The log's end at a time: a slave that has so much soon after is in sync."""
        loop.add_reader(accepted.fileno(), self._read)

    @property
    def is_newcomer(self) -> bool:
        """It has not asked for the log yet."""
        return self.end < 0

    @property
    def waits_for_confirmed(self) -> bool:
        """Its readers may see more than it knows: this wire states nothing of it."""
        return False

    @property
    def sent(self) -> int:
        """The log was sent up to here; -1 before the first request."""
        return self._sent

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
        self.last_read = self._loop.time()
        return self._take(self._received + data)

    def _take(self, data: bytes) -> None:
        """What came, after what was left of it before."""
        whole = len(data) - len(data) % OFFSET.size
        self._received = data[whole:]
        if whole == 0:
            return None
        is_first = self._sent < 0
        if is_first and (fault := self._begin(OFFSET.unpack_from(data)[0])):
            return self.close(fault)
        (end,) = OFFSET.unpack_from(data, whole - OFFSET.size)
        if end < 0 or end > self._sent:
            return self.close(f"it acknowledged the log up to {end}, but only {self._sent} was sent to it")
        self.end = end
        self._acknowledged(self)
        if is_first and not self.is_closed:  # later the writes of the log set the pace, not acknowledgements
            self.send()
        return None

    def _begin(self, asked: int) -> str:
        """Begin where the slave's log ends; the fault if there is nothing to send from there."""
        first, written = self._store.min_physical, self._store.written
        if not 0 <= asked <= written:
            return (
                f"its log ends at {asked} and this one at {written}: they are not of one pair, or this broker lost "
                "the end of its log; move the slave's store away, so that it copies the whole log"
            )
        if 0 < asked < first:
            return (
                f"its log ends at {asked} and this one begins at {first}, because older files expired: move the "
                "slave's store away, so that it copies the whole log"
            )
        self._sent = self._piece_end = first if asked == 0 else asked
        return ""

    # ---- to the slave ----

    def send(self) -> None:
        """Send what the log has and the socket takes; the rest follows as soon as the slave reads, and the disk."""
        if self._sent >= 0 and not self._is_full and self._awaited is None:
            self._send()

    def heartbeat(self) -> None:
        """Say that nothing is new, unless bytes are under way."""
        if self._sent >= 0 and not self._is_full and self._sent == self._piece_end and not self._header:
            self._header = self._pack(self._sent, 0)
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
        self.last_written = self._loop.time()
        self._note_sent(sent, pieces)
        return self._wait_until_writable(sent < length or self._sent < self._store.written)

    def _next(self) -> tuple[list[bytes | memoryview], list[Piece], int]:
        """The buffers of one send, the pieces in them without the one that was begun before, and their length, 0 while
        the disk reads. LookupError: the file was deleted."""
        buffers: list[bytes | memoryview] = [self._header] if self._header else []
        length, pieces = len(self._header), list[Piece]()
        if self._sent == self._store.written:
            return buffers, pieces, length
        at, view = self._sent, self._store.log_bytes(self._sent, TURN_BYTES)
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
            size = self._piece_size(at, min(most, last - at))
            buffers += (self._pack(at, size), view[begun : begun + size])
            pieces.append((at, at + size))
            length += self.header_bytes + size
            begun, at = begun + size, at + size
        return buffers, pieces, length

    def _pack(self, at: int, size: int) -> bytes:
        """The header of a piece."""
        return HEADER.pack(at, size)

    def _piece_size(self, at: int, most: int) -> int:
        return most

    def _note_sent(self, sent: int, pieces: list[Piece]) -> None:
        """Move on by what the socket took, which may end inside a header or a piece."""
        header = min(sent, len(self._header))
        self._header = self._header[header:]
        self._move(sent - header)
        left = sent - header - self._moved
        for at, end in pieces:
            if left == 0:
                return
            header = min(left, self.header_bytes)
            self._header, self._piece_end = self._pack(at, end - at)[header:], end
            self._move(left - header)
            left -= header + self._moved

    def _move(self, length: int) -> None:
        """At most to the end of the piece."""
        self._moved = min(length, self._piece_end - self._sent)
        self._sent += self._moved
        self.sent_bytes += self._moved

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
        """The socket, which this connection no longer serves."""
        self.is_closed = True
        self._loop.remove_reader(self._socket.fileno())
        return self._socket

    def close(self, why: str = "") -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._wait_until_writable(False)
        if self._awaited is not None:
            self._awaited.cancel()
        self._socket.close()
        self._closed(self, why)
