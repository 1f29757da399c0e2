"""Mutated frames and header blocks of HTTP/2: whatever comes, the session answers or ends, and others are served."""

import random
import struct

import grpc
import pytest

from tests.support.eventually import eventually
from tests.support.http2_server import Http2Server
from tests.unit.http2.test_abuse import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    encoded,
    frame,
)

ROUNDS = 60


def conversation(rng: random.Random) -> list[bytes]:
    """Valid frames of some calls."""
    block, found = encoded(), [frame(SETTINGS)]
    for n in range(rng.randrange(1, 6)):
        stream = 1 + 2 * n
        message = rng.randbytes(rng.randrange(200))
        found += [
            frame(HEADERS, END_HEADERS, stream, block),
            frame(DATA, END_STREAM, stream, b"\0" + struct.pack(">I", len(message)) + message),
            frame(PING, payload=rng.randbytes(8)),
            frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", rng.randrange(1, 1000))),
        ]
    found.append(frame(RST_STREAM, 0, 1, struct.pack(">I", 8)))
    return found


def mutated(rng: random.Random, frames: list[bytes]) -> bytes:
    """Bytes flipped, cut or added; frames dropped, repeated, of other kinds or out of order."""
    frames = list(frames)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(frames))
        chosen = bytearray(frames[at])
        way = rng.randrange(6)
        if way == 0:
            chosen[rng.randrange(len(chosen))] = rng.randrange(256)
        elif way == 1:
            chosen[3] = rng.randrange(12)
        elif way == 2:
            chosen[4] = rng.randrange(256)
        elif way == 3:
            del chosen[rng.randrange(len(chosen)) :]
        elif way == 4:
            frames.insert(rng.randrange(len(frames)), bytes(chosen))
        else:
            chosen[9:] = rng.randbytes(len(chosen) - 9)
        frames[at] = bytes(chosen)
    return b"".join(frames)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_frames_harm_nobody_else(seed: int) -> None:
    rng = random.Random(seed)
    with Http2Server() as server, grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        echo = channel.unary_unary("/echo.Echo/1")
        for _ in range(ROUNDS):
            with server.connect() as sock:
                data = PREFACE + mutated(rng, conversation(rng))
                half = rng.randrange(len(data))
                try:
                    for part in (data[:half], data[half:]):
                        sock.sendall(part)
                except ConnectionError:
                    pass
            assert echo(b"still served", timeout=10) == b"still served"
        eventually(lambda: sum(not each.closed for each in server.connections) == 1)
        assert all(each.held == 0 for each in server.connections if each.closed)
