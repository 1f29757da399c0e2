"""Frames of HTTP/2 as bytes, for tests and attacks that no library would send."""

import socket
import struct
from collections.abc import Iterable, Iterator

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    0,
    1,
    2,
    3,
    4,
    6,
    7,
    8,
    9,
)
END_STREAM, END_HEADERS, ACK = 1, 4, 1
HEAD_BYTES, FRAME_BYTES = 9, 16384
SERVICE = "/apache.rocketmq.v2.MessagingService"


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def headers_of(method: str, *more: tuple[str, str]) -> bytes:
    """The header block of a call, which changes no state of the decoder."""
    fields: Iterable[tuple[str, str]] = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", f"{SERVICE}/{method}"),
        (":authority", "x"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("x-mq-client-id", "hostile"),
        *more,
    )
    return hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(*field) for field in fields])


def opening(settings: bytes = b"") -> bytes:
    """What a client sends first."""
    return PREFACE + frame(SETTINGS, payload=settings) + frame(SETTINGS, ACK)


def message(body: bytes, claimed: int | None = None, compressed: int = 0) -> bytes:
    """A message of gRPC, which may claim another length."""
    return struct.pack(">BI", compressed, len(body) if claimed is None else claimed) + body


def data(stream: int, body: bytes, flags: int = 0) -> bytes:
    parts = range(0, len(body), FRAME_BYTES)
    return b"".join(
        frame(DATA, flags if at == parts[-1] else 0, stream, body[at : at + FRAME_BYTES]) for at in parts
    )


def call(stream: int, block: bytes, body: bytes) -> bytes:
    """A whole call of one message."""
    return frame(HEADERS, END_HEADERS, stream, block) + data(stream, message(body), END_STREAM)


def frames_from(connection: socket.socket) -> Iterator[tuple[int, int, int, bytes]]:
    """Kind, flags, stream and payload of each frame that comes, until the end of the connection."""
    read = connection.makefile("rb")
    while len(head := read.read(HEAD_BYTES)) == HEAD_BYTES:
        length, kind, flags, stream = int.from_bytes(head[:3]), head[3], head[4], int.from_bytes(head[5:])
        yield kind, flags, stream, read.read(length)
