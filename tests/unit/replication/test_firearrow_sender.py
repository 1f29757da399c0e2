"""The master's end of a pair's connection: what comes out of order ends it, before it changes anything."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.store.message_store import MessageStore
from firearrow.broker.replication.log.epoch_file import EpochFile
from firearrow.broker.replication.log.pair_identity import NO_ID, PairIdentity
from firearrow.broker.replication.session.wire import Traffic
from firearrow.broker.replication.wires.firearrow import frames as firearrow_frames
from firearrow.broker.replication.wires.firearrow import sender
from firearrow.broker.replication.wires.firearrow.agreement import OwnLog
from firearrow.broker.replication.wires.firearrow.frames import Ack, FrameDecoder, Kind
from firearrow.broker.replication.wires.firearrow.handshake import MAGIC, LogSummary, SlaveHandshake
from firearrow.broker.replication.wires.firearrow.sender import FireArrowSender
from tests.support.stores import put

SECRET = b"a secret of sixteen or more"
EMPTY = LogSummary(NO_ID, b"n" * 16, 0, 0, 0, 0, (), 0, ())


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class Scene:
    """A master with some messages, and the connection of a slave with an empty store. It is the service itself."""

    secret = SECRET

    def __init__(self, folder: Path) -> None:
        self.store = MessageStore.open(folder)
        for number in range(50):
            put(self.store, b"%d" % number)
        self.store.write()
        self.calls: list[str] = []
        self.transport = Transport()
        log = OwnLog(self.store, PairIdentity(folder / "config"), EpochFile(folder))
        traffic = Traffic(("127.0.0.1", 1), 0.0, 0.0, 0.0)
        self.connection = FireArrowSender(asyncio.new_event_loop(), traffic, self.store, log, self)
        self.connection.connection_made(self.transport)
        self.slave = SlaveHandshake(SECRET, EMPTY)

    def greet(self) -> None:
        self.connection.data_received(self.slave.hello())
        [frame] = FrameDecoder({Kind.ANSWER}).feed(bytes(self.transport.written[len(MAGIC) :]))
        self.slave.answered(frame)
        self.transport.written.clear()

    def feed(self) -> None: ...
    def confirmed(self, connection: FireArrowSender) -> int:
        return 0

    def now_ms(self) -> int:
        return 0

    def proved(self, connection: FireArrowSender) -> None:
        self.calls.append("proved")

    def joined(self, connection: FireArrowSender) -> None:
        self.calls.append("joined")

    def acknowledged(self, connection: FireArrowSender) -> None:
        self.calls.append(f"acknowledged {connection.end}")

    def left(self, connection: FireArrowSender, why: str, code: int) -> None:
        self.calls.append("left")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.store.close()
    scene.connection._loop.close()


def ack(end: int) -> bytes:
    return firearrow_frames.ack_frame(Ack(end, 0, 0))


def test_a_slave_gets_the_log_after_its_proof(scene: Scene) -> None:
    scene.greet()
    assert not scene.transport.written
    scene.connection.data_received(scene.slave.proof() + ack(0))
    assert scene.calls == ["proved", "joined", "acknowledged 0"]
    frames = FrameDecoder({Kind.LOG}).feed(bytes(scene.transport.written))
    pieces = [firearrow_frames.log_piece(frame.body) for frame in frames]
    assert sum(len(piece.data) for piece in pieces) == scene.store.written
    scene.connection.data_received(ack(scene.store.written))
    assert scene.calls[-1] == f"acknowledged {scene.store.written}"


def test_nothing_counts_before_the_proof(scene: Scene) -> None:
    scene.greet()
    scene.connection.data_received(ack(0))
    assert scene.calls == ["left"]
    assert not scene.transport.written


def test_a_proof_with_another_secret_is_refused(scene: Scene) -> None:
    scene.greet()
    other = SlaveHandshake(b"another secret of some bytes", EMPTY)
    scene.connection.data_received(other.proof())
    assert scene.calls == ["left"]
    assert scene.transport.written[4] == Kind.REFUSAL


@pytest.mark.parametrize("end", [1, 1 << 40])
def test_an_end_that_cannot_be_ends_the_connection(end: int, scene: Scene) -> None:
    scene.greet()
    scene.connection.data_received(scene.slave.proof() + ack(end))
    assert scene.calls == ["proved", "left"]


def test_what_waits_for_a_slave_is_bounded(scene: Scene) -> None:
    scene.greet()
    scene.connection.data_received(scene.slave.proof() + ack(0))
    scene.connection.pause_writing()
    frame = bytes(1 << 20)
    for _ in range(sender.UNSENT_BYTES_MAX >> 20):
        scene.connection.queue([frame])
    assert not scene.connection.is_closed
    scene.connection.queue([b"x"])
    assert scene.connection.is_closed
    assert scene.calls[-1] == "left"
