"""Attacks by HTTP/2 and gRPC, on the port that clients of remoting use (see attacks.py)."""

import struct
import time

from tests.hostile.attack_sockets import AttackSockets
from tests.hostile.attacks import Attack, Field
from tests.support.http2_frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    call,
    data,
    frame,
    headers_of,
    message,
    opening,
)

CALLERS = 20
STREAMS = 10_000
CANCEL = struct.pack(">I", 8)
NO_WINDOW, ONE_BYTE = (struct.pack(">HI", 4, size) for size in (0, 1))
MORE = struct.pack(">I", 1)
UNKNOWN_KIND = 0x50
SMALL_BUFFER = 4096
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
)


def _callers(field: Field, settings: bytes = b"") -> AttackSockets:
    sockets = field.open_sockets(CALLERS)
    sockets.send(opening(settings))
    return sockets


def half_prefaces(field: Field) -> AttackSockets:
    """The preface byte by byte, and then nothing."""
    sockets = field.open_sockets()
    for at in range(len(PREFACE) - 1):
        sockets.send(PREFACE[at : at + 1])
    return sockets


def ten_thousand_streams(field: Field) -> AttackSockets:
    """More open streams than a connection may have, with as many headers as a request may have."""
    sockets = _callers(field)
    block = headers_of("Telemetry", *((f"k{n}", "v") for n in range(100)))
    for first in range(0, STREAMS, 100):
        streams = range(2 * first + 1, 2 * first + 201, 2)
        sockets.send(b"".join(frame(HEADERS, END_HEADERS, stream, block) for stream in streams))
    return sockets


def rapid_resets(field: Field) -> AttackSockets:
    """Half of them are reset by the client, half by the server, which the client makes do that."""
    sockets = _callers(field)
    block = headers_of("ReceiveMessage")
    overflow = struct.pack(">I", 0x7FFFFFFF)
    for first in range(0, STREAMS, 100):
        flood = b""
        for n in range(first, first + 100):
            stream = 2 * n + 1
            end = frame(RST_STREAM, 0, stream, CANCEL) if n % 2 else frame(WINDOW_UPDATE, 0, stream, overflow)
            flood += frame(HEADERS, END_HEADERS, stream, block) + end
        sockets.send(flood)
    return sockets


def continuations(field: Field) -> AttackSockets:
    """Header blocks without an end."""
    sockets = _callers(field)
    sockets.send(frame(HEADERS, 0, 1, headers_of("SendMessage")))
    for _ in range(100):
        sockets.send(frame(CONTINUATION, 0, 1) * 1000)
    return sockets


def header_bombs(field: Field) -> AttackSockets:
    """A large header is put in the table of the decoder, then named by one byte each."""
    sockets = _callers(field)
    large = b"\x40\x01k" + b"\x7f" + bytes((4000 - 127 & 0x7F | 0x80, (4000 - 127) >> 7)) + b"v" * 4000
    for n in range(200):
        block = headers_of("SendMessage") + (large if n == 0 else b"") + b"\xbe" * 10_000
        sockets.send(frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, block))
    return sockets


def pings_and_settings(field: Field) -> AttackSockets:
    """Frames that ask for an answer, which is not read."""
    sockets = _callers(field)
    flood = frame(PING, payload=bytes(8)) * 500 + frame(SETTINGS) * 500
    until = time.monotonic() + field.seconds
    while time.monotonic() < until:
        sockets.send(flood, within_s=0.2)
    return sockets


def closed_windows(field: Field) -> AttackSockets:
    """Calls whose answers may never be sent."""
    sockets = _callers(field, NO_WINDOW)
    block = headers_of("QueryRoute")
    body = b"\x0a\x08\x12\x06TBW102"
    for first in range(0, 4000, 100):
        sockets.send(b"".join(call(2 * n + 1, block, body) for n in range(first, first + 100)))
    return sockets


def lying_messages(field: Field) -> AttackSockets:
    """Messages that claim more than comes, or are compressed; and data of calls that were refused."""
    sockets = _callers(field)
    large = bytes(200_000)
    for n, body in enumerate(
        (
            message(large, claimed=100 << 20),
            message(large, claimed=0xFFFFFFFF),
            message(large, compressed=1),
            message(b"") * 10_000,
            message(b"\xff" * 100),
        )
    ):
        for name in ("SendMessage", "NoSuchMethod", "Telemetry"):
            stream = 2 * (3 * n + ("SendMessage", "NoSuchMethod", "Telemetry").index(name)) + 1
            sockets.send(frame(HEADERS, END_HEADERS, stream, headers_of(name)) + data(stream, body))
    return sockets


def empty_fields(field: Field) -> AttackSockets:
    """Requests of many empty fields, which take far more memory once they are parsed."""
    sockets = field.open_sockets(4)
    sockets.send(opening())
    for n, (name, entry) in enumerate(
        (
            ("SendMessage", b"\x0a\x00"),  # messages
            ("AckMessage", b"\x1a\x00"),  # entries
            ("Telemetry", b"\x12\x02\x2a\x00"),
        )
    ):
        stream = 2 * n + 1
        sockets.send(call(stream, headers_of(name), entry * (1 << 20)), within_s=5.0)
    return sockets


def changing_windows(field: Field) -> AttackSockets:
    """The windows of many streams, changed again and again, whose changes are confirmed."""
    sockets = _callers(field)
    block = headers_of("Telemetry")
    for first in range(0, 4000, 100):
        streams = range(2 * first + 1, 2 * first + 201, 2)
        sockets.send(b"".join(frame(HEADERS, END_HEADERS, stream, block) for stream in streams))
    flood = b"".join(frame(SETTINGS, payload=struct.pack(">HI", 4, size)) for size in range(1000, 1500))
    until = time.monotonic() + field.seconds
    while time.monotonic() < until:
        sockets.send(flood, within_s=0.2)
    return sockets


def one_byte_windows(field: Field) -> AttackSockets:
    """Answers that may be sent one byte at a time."""
    sockets = _callers(field, ONE_BYTE)
    block, body = headers_of("QueryRoute"), b"\x0a\x08\x12\x06TBW102"
    streams = range(1, 401, 2)
    sockets.send(b"".join(call(stream, block, body) for stream in streams))
    flood = b"".join(frame(WINDOW_UPDATE, 0, stream, MORE) for stream in streams)
    until = time.monotonic() + field.seconds
    while time.monotonic() < until:
        sockets.send(flood, within_s=0.2)
    return sockets


def empty_frames(field: Field) -> AttackSockets:
    """Frames that have no content, or mean nothing."""
    sockets = _callers(field)
    sockets.send(frame(HEADERS, END_HEADERS, 1, headers_of("SendMessage")))
    flood = (frame(DATA, 0, 1) + frame(PRIORITY, 0, 1, bytes(5)) + frame(UNKNOWN_KIND, 0, 1)) * 1000
    until = time.monotonic() + field.seconds
    while time.monotonic() < until:
        sockets.send(flood, within_s=0.2)
    return sockets


def slow_messages(field: Field) -> AttackSockets:
    """A byte from time to time, of large messages on many streams."""
    sockets = _callers(field)
    block, streams = headers_of("SendMessage"), range(1, 401, 2)
    begun = message(b"", claimed=4 << 20)
    for stream in streams:
        sockets.send(frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, 0, stream, begun))
    until = time.monotonic() + field.seconds
    while time.monotonic() < until:
        sockets.send(b"".join(frame(DATA, 0, stream, b"x") for stream in streams), within_s=0.2)
    return sockets


def deaf_callers(field: Field) -> AttackSockets:
    """Calls without end, whose answers they do not read though their windows are open."""
    sockets = field.open_sockets(CALLERS, receive_bytes=SMALL_BUFFER)
    wide = frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30))
    sockets.send(opening(struct.pack(">HI", 4, 0x7FFFFFFF)) + wide)
    block, body = headers_of("QueryRoute"), b"\x0a\x0c\x12\x0aBackground"
    for first in range(0, STREAMS, 100):
        sockets.send(b"".join(call(2 * n + 1, block, body) for n in range(first, first + 100)), within_s=0.5)
    return sockets


def upgrades(field: Field) -> AttackSockets:
    """HTTP/2 asked for by HTTP/1.1, as no gRPC client does."""
    sockets = field.open_sockets()
    sockets.send(UPGRADE + opening())
    return sockets


HTTP2: dict[str, Attack] = {
    each.__name__: each
    for each in (
        half_prefaces,
        ten_thousand_streams,
        rapid_resets,
        continuations,
        header_bombs,
        pings_and_settings,
        closed_windows,
        lying_messages,
        empty_fields,
        changing_windows,
        one_byte_windows,
        empty_frames,
        slow_messages,
        deaf_callers,
        upgrades,
    )
}
