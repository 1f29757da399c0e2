"""Malformed frames: each closes at most its own connection; other clients are not affected."""

import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.signatures import sign
from tests.golden import GOLDEN, whole_frames
from tests.integration.latency_probe import LatencyProbe
from tests.support.broker_process import BrokerProcess
from tests.support.requests import pull, pull_ext, send, send_ext

FUZZ_S = 6.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("frames") / "store") as running:
        yield running
        # recorded frames commit offsets that this store does not have, which a check reports
        assert running.stop(verified=False) == 0
        assert "Traceback" not in running.log.read_text()


def frame(header: bytes, body: bytes = b"", *, serializer: int = 0, header_bytes: int | None = None) -> bytes:
    length = len(header) if header_bytes is None else header_bytes
    return (
        (4 + len(header) + len(body)).to_bytes(4)
        + (serializer << 24 | length & 0xFFFFFF).to_bytes(4)
        + header
        + body
    )


LOST = {
    "length 0": bytes(8),
    "length 3": (3).to_bytes(4) + bytes(8),
    "negative length": b"\xff\xff\xff\xff" + bytes(8),
    "over the limit": (16 << 20).to_bytes(4) + bytes(8),
    "header longer than the frame": frame(b"{}", header_bytes=3),
    "header of 16 MiB": frame(b"{}", header_bytes=0xFFFFFF),
    "unknown serialisation": frame(b"{}", serializer=2),
    "TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no JSON": frame(b"code=10"),
    "JSON of another type": frame(b"[1,2,3]"),
    "JSON cut": frame(b'{"code":10,"opaque":'),
    "code of another type": frame(b'{"code":"ten","opaque":1,"flag":0}'),
    "binary header cut": frame(b"\x00\x0a\x0c", serializer=1),
}


@pytest.mark.parametrize("name", LOST)
def test_lost_boundary_closes_this_connection_only(broker: BrokerProcess, name: str) -> None:
    with broker.connect() as other, broker.connect() as bad:
        bad.send_raw(LOST[name])
        assert bad.closed_by_peer(5)
        assert other.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0


def test_responses_before_the_bad_frame_are_still_sent(broker: BrokerProcess) -> None:
    with broker.connect() as connection:
        opaque = connection.send_request(RequestCode.GET_BROKER_RUNTIME_INFO)
        connection.send_raw(bytes(8))
        assert connection.answer_to(opaque).code == 0
        assert connection.closed_by_peer(5)


def conversation(keys: tuple[str, str] | None) -> bytes:
    frames = [
        RemotingCommand(RequestCode.SEND_MESSAGE_V2, send_ext("Cut"), b"in two chunks", opaque=1),
        RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": "Cut", "queueId": "0"}, opaque=2, serializer=1),
        RemotingCommand(RequestCode.PULL_MESSAGE, pull_ext("Cut", 10**9), opaque=3),
    ]
    if keys is not None:
        for command in frames:
            sign(command, *keys)
    return b"".join(command.encode() for command in frames)


def check_conversation(broker: BrokerProcess, chunks: list[bytes]) -> None:
    with broker.connect() as connection:
        for chunk in chunks:
            connection.send_raw(chunk)
        found: dict[int, int] = {}
        while len(found) < 3:
            answer = connection.receive()
            found[answer.opaque] = answer.code
        assert found == {1: 0, 2: 0, 3: 21}


def test_a_conversation_in_two_parts_at_every_cut(broker: BrokerProcess) -> None:
    whole = conversation(broker.keys)
    for cut in range(1, len(whole)):
        check_conversation(broker, [whole[:cut], whole[cut:]])


def test_a_conversation_byte_by_byte(broker: BrokerProcess) -> None:
    check_conversation(broker, [bytes([byte]) for byte in conversation(broker.keys)])


def test_a_large_message_in_parts(broker: BrokerProcess) -> None:
    body = random.Random(1).randbytes(1_000_000)
    command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, send_ext("Large"), body, opaque=7)
    if broker.keys is not None:
        sign(command, *broker.keys)
    whole = command.encode()
    with broker.connect() as connection:
        for at in range(0, len(whole), 9973):
            connection.send_raw(whole[at : at + 9973])
        assert connection.answer_to(7).code == 0
        assert body in pull(connection, "Large").body


def mutated(draw: random.Random, raw: bytes) -> bytes:
    data = bytearray(raw)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(data)) if data else 0
        match draw.randrange(4):
            case 0:
                data[at : at + 1] = draw.randbytes(1)
            case 1:
                del data[at : at + draw.randint(1, 9)]
            case 2:
                data[at:at] = draw.choice((b'"', b"\x00", b"-1", b"{", b"\xff\xff\xff\xff", b"9" * 25))
            case _:
                other = draw.randrange(len(data)) if data else 0
                data[at:other] = data[other:at]
    if draw.random() < 0.7 and len(data) > 8:
        data[:4] = (len(data) - 4).to_bytes(4)
    return bytes(data)


@pytest.mark.skipif(not GOLDEN.exists(), reason="the recorded conversations are not beside the project")
def test_mutated_golden_frames(broker: BrokerProcess) -> None:
    """Mutations of what Apache's clients sent: whatever is returned, the broker lives and others are served."""
    draw = random.Random(20)
    spoken = [
        raw for _, recorded, raw in whole_frames() if recorded.line["dir"] == "c2s" and len(raw) < 20_000
    ]
    until = time.monotonic() + FUZZ_S
    rounds = 0
    with LatencyProbe(broker) as probe:
        while time.monotonic() < until and rounds < 5000:
            rounds += 1
            with broker.connect() as connection:
                try:
                    for _ in range(draw.randint(1, 20)):
                        connection.send_raw(mutated(draw, draw.choice(spoken)))
                    connection.socket.shutdown(socket.SHUT_WR)
                    connection.socket.settimeout(5)
                    while connection.socket.recv(1 << 18):
                        pass
                except OSError:  # closed for a lost boundary, as it should
                    pass
    assert rounds > 20
    assert probe.sent > 20
    assert broker.process.poll() is None
    assert "Traceback" not in broker.log.read_text()


def test_idle_connections_are_closed(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "store", "--set", "serverChannelMaxIdleTimeSeconds=1") as running,
        running.connect() as idle,
        LatencyProbe(running),
    ):
        begun = time.monotonic()
        assert idle.closed_by_peer(8)
        assert time.monotonic() - begun >= 0.9
        with running.connect() as fresh:
            assert send(fresh, "Idle", b"x").code == 0
