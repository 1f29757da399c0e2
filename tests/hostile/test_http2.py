"""What ends a connection of HTTP/2 is logged in one line, and others of both protocols are served meanwhile."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.http2_attacks import UPGRADE
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.grpc_caller import GrpcCaller, create_topic
from tests.support.http2_frames import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    headers_of,
    opening,
)
from tests.support.requests import send

TOPIC = "Served"
RESETS = 2500
LARGEST = struct.pack(">I", 0x7FFFFFFF)
CANCEL = struct.pack(">I", 8)
BLOCK = headers_of("ReceiveMessage")
RESET = "more than 1000 streams ended with an error"


def resets(end: bytes, kind: int) -> bytes:
    streams = range(1, 2 * RESETS, 2)
    return b"".join(frame(HEADERS, END_HEADERS, each, BLOCK) + frame(kind, 0, each, end) for each in streams)


def large_headers(count: int) -> bytes:
    """A header of 4,000 bytes, named so often in each of these requests that there are too many bytes of them."""
    large = b"\x40\x01k" + b"\x7f" + bytes((4000 - 127 & 0x7F | 0x80, (4000 - 127) >> 7)) + b"v" * 4000
    block = BLOCK + b"\xbe" * 10
    first = frame(HEADERS, END_HEADERS | END_STREAM, 1, BLOCK + large)
    return first + b"".join(
        frame(HEADERS, END_HEADERS | END_STREAM, stream, block) for stream in range(3, 2 * count, 2)
    )


ENDED = {
    "resets": (resets(CANCEL, RST_STREAM), RESET),
    "resets by us": (resets(LARGEST, WINDOW_UPDATE), RESET),
    "continuations": (
        frame(HEADERS, 0, 1, BLOCK) + frame(CONTINUATION, 0, 1) * 1000,
        "more than 4 CONTINUATION frames",
    ),
    "headers": (large_headers(200), "more than 128 headers, or 16384 bytes of them, more than 100 times"),
    "settings": (frame(SETTINGS, payload=struct.pack(">HI", 4, 1)) * 200, "more than 100 SETTINGS frames"),
    "window of the connection": (frame(WINDOW_UPDATE, 0, 0, LARGEST), "HTTP/2"),
    "window in the settings": (frame(SETTINGS, payload=struct.pack(">HI", 4, 0xFFFFFFFF)), "HTTP/2"),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("http2") / "store") as running:
        with running.connect() as connection:
            create_topic(connection, TOPIC)
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


def is_closed(attacker: ClientSocket) -> bool:
    """Whether the broker has closed it; what it sent before is read."""
    try:
        while attacker.socket.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("name", ENDED)
def test_what_ends_a_connection_is_logged(broker: BrokerProcess, name: str) -> None:
    attack, expected = ENDED[name]
    log = Path(broker.log)
    begun = len(log.read_text())
    with broker.connect() as other, GrpcCaller(broker.address) as caller:
        assert send(other, TOPIC, b"before").code == 0
        assert caller.send(TOPIC, b"before").entries
        with broker.connect() as attacker:
            try:
                attacker.send_raw(opening() + attack)
            except ConnectionError:
                pass
            assert is_closed(attacker)
        eventually(lambda: expected in log.read_text()[begun:])
        assert send(other, TOPIC, b"after").code == 0
        assert caller.send(TOPIC, b"after").entries


def test_http2_is_not_spoken_after_an_upgrade(broker: BrokerProcess) -> None:
    """gRPC's clients begin with the preface."""
    with broker.connect() as other, broker.connect() as attacker:
        attacker.send_raw(UPGRADE + opening())
        assert is_closed(attacker)
        assert send(other, TOPIC, b"after").code == 0
