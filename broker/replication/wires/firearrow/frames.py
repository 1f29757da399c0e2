"""Frames of FireArrow's wire: what is sent after the magic number, both ways. Pure.

```
frame        u32 bytes of the body · u8 kind · body · u32 CRC-32C of all before it
1 log        offset i64 · epoch i32 · confirmed i64 · bytes of the log, to 1 MiB      master → slave
2 journal    entries as they are in the journal, whole ones, to 1 MiB                 master → slave
3 table      kind u8 · place, counter, stateVersion, timestamp i64 · its file         master → slave
4 heartbeat  end i64 · confirmed i64 · time in ms i64                                 master → slave
5 ack        written i64 · flushed i64 · noted i64                                    slave → master
6 ask        start, end i64 of each range (broker/replication/log/common_point)           slave → master
7 checksums  u32 of each range                                                        master → slave
8 to 11      broker/replication/wires/firearrow/handshake
```

Big-endian. Offsets are physical. A table's `place`: what the log has to reach before it counts. `confirmed`: up to
where readers of the slave may see what it has; its own copy counts. An ack's `written`: what is as durable at the slave
as its flushDiskType promises; `noted`: bytes of journal entries of this connection that are durable there.
"""

import struct
from collections.abc import Collection
from enum import IntEnum
from typing import NamedTuple

from firearrow._native.base.hash import crc32c
from firearrow.broker.replication.log.common_point import RANGES_MAX
from firearrow.broker.tables.dataversion import DataVersion

LOG_BYTES_MAX = 1 << 20
JOURNAL_BYTES_MAX = 1 << 20
TABLE_BYTES_MAX = 64 << 20
HANDSHAKE_BYTES_MAX = 16 << 10
HEAD, CRC = struct.Struct(">IB"), struct.Struct(">I")
LOG, TABLE = struct.Struct(">qiq"), struct.Struct(">Bqqqq")
THREE, RANGE = struct.Struct(">qqq"), struct.Struct(">qq")


class FrameError(ValueError):
    """What the other broker sent is not a frame; the connection has to be closed."""


class Kind(IntEnum):
    LOG = 1
    JOURNAL = 2
    TABLE = 3
    HEARTBEAT = 4
    ACK = 5
    ASK = 6
    CHECKSUMS = 7
    HELLO = 8
    ANSWER = 9
    PROOF = 10
    REFUSAL = 11


BODY_BYTES_MAX = {
    Kind.LOG: LOG.size + LOG_BYTES_MAX,
    Kind.JOURNAL: JOURNAL_BYTES_MAX,
    Kind.TABLE: TABLE.size + TABLE_BYTES_MAX,
    Kind.HEARTBEAT: THREE.size,
    Kind.ACK: THREE.size,
    Kind.ASK: RANGES_MAX * RANGE.size,
    Kind.CHECKSUMS: RANGES_MAX * CRC.size,
    Kind.HELLO: HANDSHAKE_BYTES_MAX,
    Kind.ANSWER: HANDSHAKE_BYTES_MAX,
    Kind.PROOF: HANDSHAKE_BYTES_MAX,
    Kind.REFUSAL: HANDSHAKE_BYTES_MAX,
}
TO_SLAVE = frozenset({Kind.LOG, Kind.JOURNAL, Kind.TABLE, Kind.HEARTBEAT, Kind.CHECKSUMS, Kind.REFUSAL})
TO_MASTER = frozenset({Kind.ACK, Kind.ASK, Kind.REFUSAL})
"""Kinds that may come after the handshake."""


class TableKind(IntEnum):
    """Which table a frame has: the text of its file, or of its request's answer."""

    TOPICS = 1
    GROUPS = 2
    CONSUMER_OFFSETS = 3
    DELAY_OFFSETS = 4
    REQUEST_MODES = 5
    TIMER_CHECKPOINT = 6
    CONSUMER_ORDERS = 7
    RECEIPT_HANDLES = 8
    """Of version 3 of the handshake."""


class Frame(NamedTuple):
    kind: Kind
    body: bytes


class LogPiece(NamedTuple):
    """`epoch`: the one that these bytes belong to."""

    offset: int
    epoch: int
    confirmed: int
    data: bytes


class Table(NamedTuple):
    kind: TableKind
    place: int
    version: DataVersion
    text: bytes


class Heartbeat(NamedTuple):
    """`time_ms`: the master's clock."""

    end: int
    confirmed: int
    time_ms: int


class Ack(NamedTuple):
    written: int
    flushed: int
    noted: int


# ---- encoding ----


def frame(kind: Kind, body: bytes) -> bytes:
    """ValueError: the body is too long."""
    head = _head(kind, len(body))
    return b"".join((head, body, CRC.pack(crc32c(body, crc32c(head)))))


def log_frame(offset: int, epoch: int, confirmed: int, data: memoryview) -> tuple[bytes, memoryview, bytes]:
    """What comes before the data, the data, and what comes after it: the data is not copied. ValueError."""
    before = _head(Kind.LOG, LOG.size + len(data)) + LOG.pack(offset, epoch, confirmed)
    return before, data, CRC.pack(crc32c(data, crc32c(before)))


def table_frame(table: Table) -> bytes:
    """ValueError: the text is too long."""
    version = table.version
    numbers = TABLE.pack(table.kind, table.place, version.counter, version.state_version, version.timestamp)
    return frame(Kind.TABLE, numbers + table.text)


def heartbeat_frame(heartbeat: Heartbeat) -> bytes:
    return frame(Kind.HEARTBEAT, THREE.pack(*heartbeat))


def ack_frame(ack: Ack) -> bytes:
    return frame(Kind.ACK, THREE.pack(*ack))


def ask_frame(ranges: Collection[tuple[int, int]]) -> bytes:
    return frame(Kind.ASK, b"".join(RANGE.pack(*each) for each in ranges))


def checksums_frame(checksums: Collection[int]) -> bytes:
    return frame(Kind.CHECKSUMS, struct.pack(f">{len(checksums)}I", *checksums))


def _head(kind: Kind, length: int) -> bytes:
    if length > BODY_BYTES_MAX[kind]:
        raise ValueError(f"a {kind.name} frame of {length} bytes, at most {BODY_BYTES_MAX[kind]}")
    return HEAD.pack(length, kind)


# ---- decoding ----


class FrameDecoder:
    """Takes the bytes of a connection in any cuts and returns the whole frames. It holds one unfinished frame, whose
    length is bounded by its kind as soon as its first five bytes are there.

    `allowed`: the kinds that may come now. It may be changed while no frame of `feed` is waiting to be handled.
    """

    def __init__(self, allowed: Collection[Kind]) -> None:
        self.allowed = frozenset(allowed)
        self._held = bytearray()

    def feed(self, data: bytes | memoryview) -> list[Frame]:
        """FrameError: close the connection; frames before the fault are lost with it."""
        self._held += data
        frames, at = [], 0
        with memoryview(self._held) as held:
            while (found := self._next(held[at:])) is not None:
                frames.append(found)
                at += HEAD.size + len(found.body) + CRC.size
        del self._held[:at]
        return frames

    def _next(self, held: memoryview) -> Frame | None:
        with held:
            if len(held) < HEAD.size:
                return None
            length, number = HEAD.unpack_from(held)
            kind = self._kind_of(number)
            if length > BODY_BYTES_MAX[kind]:
                raise FrameError(f"a {kind.name} frame claims {length} bytes, at most {BODY_BYTES_MAX[kind]}")
            end = HEAD.size + length
            if len(held) < end + CRC.size:
                return None
            if CRC.unpack_from(held, end)[0] != crc32c(held[:end]):
                raise FrameError(f"the CRC of a {kind.name} frame of {length} bytes does not match")
            return Frame(kind, bytes(held[HEAD.size : end]))

    def _kind_of(self, number: int) -> Kind:
        try:
            kind = Kind(number)
        except ValueError:
            raise FrameError(f"frames of kind {number} are unknown") from None
        if kind not in self.allowed:
            raise FrameError(f"a {kind.name} frame is not expected here")
        return kind


def log_piece(body: bytes) -> LogPiece:
    """FrameError, as for all below."""
    if len(body) <= LOG.size:
        raise FrameError("a LOG frame has no bytes of the log")
    offset, epoch, confirmed = LOG.unpack_from(body)
    if offset < 0 or epoch < 0 or confirmed < 0:
        raise FrameError(f"a LOG frame at {offset} of epoch {epoch}, confirmed {confirmed}, is inconsistent")
    return LogPiece(offset, epoch, confirmed, body[LOG.size :])


def table(body: bytes) -> Table:
    if len(body) < TABLE.size:
        raise FrameError("a TABLE frame is too short")
    number, place, counter, state_version, timestamp = TABLE.unpack_from(body)
    try:
        kind = TableKind(number)
    except ValueError:
        raise FrameError(f"tables of kind {number} are unknown") from None
    if place < 0:
        raise FrameError(f"a table at {place} is inconsistent")
    return Table(kind, place, DataVersion(counter, state_version, timestamp), body[TABLE.size :])


def heartbeat(body: bytes) -> Heartbeat:
    return Heartbeat(*_three(body))


def ack(body: bytes) -> Ack:
    return Ack(*_three(body))


def ask(body: bytes) -> list[tuple[int, int]]:
    """The ranges; `common_point.checked` bounds them."""
    if len(body) % RANGE.size:
        raise FrameError("an ASK frame has no whole ranges")
    return list(RANGE.iter_unpack(body))


def checksums(body: bytes) -> list[int]:
    if len(body) % CRC.size:
        raise FrameError("a CHECKSUMS frame has no whole numbers")
    return [sum_ for (sum_,) in CRC.iter_unpack(body)]


def _three(body: bytes) -> tuple[int, int, int]:
    if len(body) != THREE.size:
        raise FrameError(f"a frame has {len(body)} bytes, not {THREE.size}")
    first, second, third = THREE.unpack(body)
    if min(first, second, third) < 0:
        raise FrameError("a frame has an offset or time below 0")
    return first, second, third
