"""The load of gRPC's rows against a server that resets some calls: each is made again and counted, and ours may reset
none."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench import grpc_rows
from bench.load import LoadError
from bench.rows import OURS
from bench.servers import Server
from firearrow.broker.grpc import messages

DATA, HEADERS, RST_STREAM, SETTINGS, PREFACE_BYTES = 0, 1, 3, 4, 24
END_STREAM, END_HEADERS, ACK = 0x1, 0x4, 0x1
REFUSED_STREAM = 7


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header that HPACK does not index."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def answer(stream: int) -> bytes:
    _, response = messages.method_classes("SendMessage")
    body = response(status={"code": "OK", "message": "OK"}).SerializeToString()
    head = b"\x88" + literal(b"content-type", b"application/grpc")
    return (
        frame(HEADERS, END_HEADERS, stream, head)
        + frame(DATA, 0, stream, struct.pack(">BI", 0, len(body)) + body)
        + frame(HEADERS, END_HEADERS | END_STREAM, stream, literal(b"grpc-status", b"0"))
    )


def serve(listener: socket.socket, resets: int) -> None:
    """Answers each call of one connection, but resets the first ones."""
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as reader:
        reader.read(PREFACE_BYTES)
        connection.sendall(frame(SETTINGS, 0, 0))
        while head := reader.read(9):
            length, (kind, flags, stream) = int.from_bytes(head[:3]), struct.unpack(">BBI", head[3:])
            reader.read(length)
            if kind == SETTINGS and not flags & ACK:
                connection.sendall(frame(SETTINGS, ACK, 0))
            if kind not in (DATA, HEADERS) or not flags & END_STREAM:
                continue
            if resets:
                resets -= 1
                connection.sendall(frame(RST_STREAM, 0, stream, struct.pack(">I", REFUSED_STREAM)))
            else:
                connection.sendall(answer(stream))


@contextmanager
def resetting(name: str, resets: int) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener, resets))
        thread.start()
        yield Server(name, listener.getsockname(), 0.0)
        thread.join()


def test_calls_that_a_peer_resets_are_made_again_and_counted() -> None:
    with resetting(grpc_rows.PROXY, 3) as server:
        done = grpc_rows.calls(server, grpc_rows.sends(16), connections=1, depth=2, requests=10)
    assert (done.requests, done.resets, done.wrong) == (10, 3, 0)


def test_ours_may_reset_none() -> None:
    with resetting(OURS, 1) as server, pytest.raises(LoadError, match="1 of 10 calls were reset"):
        grpc_rows.calls(server, grpc_rows.sends(16), connections=1, depth=2, requests=10)
