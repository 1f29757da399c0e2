"""The wire of the log under a controller: both ends exchange their state first. Pure.

    slave → master   handshake 16: state i32 = 1 · syncFromLastFile i16 · asyncLearner i16 · the slave's number i64
                     acknowledgement 12: state i32 = 2 · end of the slave's log i64
    master → slave   handshake 20 + n: state i32 = 1 · n i32 · end of the master's log i64 · last epoch i32, then n / 12
                     epochs: number i32 · first offset i64
                     piece 36 + n: state i32 = 2 · n i32 · offset i64 · epoch i32 · its first offset i64
                     · confirmed offset i64, then n bytes of the log; n = 0: a heartbeat

Apache: AutoSwitchHAClient, AutoSwitchHAConnection.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from firearrow.broker.replication.log.epoch_file import EPOCHS_MAX, Epoch, checked

HANDSHAKE, TRANSFER = 1, 2
GREETING, ACKNOWLEDGEMENT = struct.Struct(">ihhq"), struct.Struct(">iq")
WELCOME, EPOCH, PIECE = struct.Struct(">iiqi"), struct.Struct(">iq"), struct.Struct(">iiqiqq")
NO_EPOCH = -1
PIECE_BYTES_MAX = 4 << 20


class FrameError(Exception):
    """What the other end sent is none of these frames; the text states why."""


class Greeting(NamedTuple):
    """A slave's handshake. `learner`: it is never to be in the sync state set."""

    number: int
    from_last_file: bool = False
    learner: bool = False


class Welcome(NamedTuple):
    """A master's handshake. `end`: of its log."""

    end: int
    epochs: tuple[Epoch, ...]


class PieceHeader(NamedTuple):
    size: int
    offset: int
    epoch: Epoch
    confirmed: int


def greeting_frame(greeting: Greeting) -> bytes:
    return GREETING.pack(HANDSHAKE, greeting.from_last_file, greeting.learner, greeting.number)


def greeting_of(data: bytes) -> Greeting:
    """FrameError."""
    state, last_file, learner, number = GREETING.unpack(data)
    if state != HANDSHAKE or number < 0:
        raise FrameError(
            f"it sent no handshake of a controller's member ({data.hex()}): set enableControllerMode there as here"
        )
    return Greeting(number, last_file == 1, learner == 1)


def acknowledgement(end: int) -> bytes:
    return ACKNOWLEDGEMENT.pack(TRANSFER, end)


def acknowledged(data: bytes) -> int:
    """FrameError."""
    state, end = ACKNOWLEDGEMENT.unpack(data)
    if state != TRANSFER:
        raise FrameError(f"it sent state {state}, where an acknowledgement was next")
    return int(end)


def welcome_frame(end: int, epochs: Iterable[Epoch]) -> bytes:
    """Apache's slaves take at most 1000 epochs: older ones are left out."""
    sent = tuple(epochs)[-1000:]
    last = sent[-1].number if sent else NO_EPOCH
    header = WELCOME.pack(HANDSHAKE, EPOCH.size * len(sent), end, last)
    return header + b"".join(EPOCH.pack(*epoch) for epoch in sent)


def welcome_of(data: bytes) -> Welcome | None:
    """None: there are not enough bytes yet. FrameError."""
    if len(data) < WELCOME.size:
        return None
    state, size, end, _ = WELCOME.unpack_from(data)
    if state != HANDSHAKE or size < 0 or size % EPOCH.size or size > EPOCHS_MAX * EPOCH.size or end < -1:
        raise FrameError(
            f"the master sent no handshake of a controller's member ({data[: WELCOME.size].hex()}): set "
            "enableControllerMode there as here"
        )
    if len(data) < WELCOME.size + size:
        return None
    if len(data) > WELCOME.size + size:
        raise FrameError("the master sent more than its handshake")
    try:
        epochs = checked(Epoch(*each) for each in EPOCH.iter_unpack(data[WELCOME.size :]))
    except ValueError as error:
        raise FrameError(f"the master's epochs do not follow each other: {error}") from None
    return Welcome(max(end, 0), epochs)


def piece_header(header: PieceHeader) -> bytes:
    return PIECE.pack(TRANSFER, header.size, header.offset, *header.epoch, header.confirmed)


def piece_of(data: bytes) -> PieceHeader:
    """FrameError."""
    state, size, offset, epoch, start, confirmed = PIECE.unpack(data)
    if state != TRANSFER or not 0 <= size <= PIECE_BYTES_MAX:
        raise FrameError(f"the master sent state {state} and size {size}, where a piece of the log was next")
    return PieceHeader(size, offset, Epoch(epoch, start), confirmed)
