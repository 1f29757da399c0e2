"""Http2Session and its enemies: each limit of session.pxd, at it and one past it, by raw frames."""

import socket
import struct
import time
from collections.abc import Iterator

import hpack
import pytest

from firearrow._native.http2.grpc_stream import UNSENT_BYTES_MAX, GrpcStream
from tests.support.eventually import eventually
from tests.support.http2_server import EchoCall, Http2Server

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4
STREAMS_MAX, HEADER_BYTES_MAX, CONTINUATIONS_MAX, RESETS_MAX, FAULTS_MAX = 4096, 16384, 4, 1000, 100
SETTINGS_MAX = 100
HEADERS_MAX, MESSAGES_MAX, SLICE_CALLS = 128, 64, 16
CANCEL = struct.pack(">I", 8)
REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/echo.Echo/1"),
    (":authority", "x"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def encoded(*more: tuple[str, str]) -> bytes:
    """A header block that leaves no state in the decoder."""
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    return encoder.encode([*REQUEST, *more])


class Waiting(EchoCall):
    """Never answers."""

    def message(self, message: bytes) -> None:
        self.messages += 1

    def half_closed(self) -> None:
        pass


class Enemy:
    """A client by raw frames, which reads what it gets."""

    def __init__(self, server: Http2Server, settings: bytes = b"") -> None:
        self.sock: socket.socket = server.connect()
        self.block = encoded()
        self.sock.sendall(PREFACE + frame(SETTINGS, payload=settings))
        self.rest = b""
        self.wait_for(SETTINGS)
        self.send(frame(SETTINGS, 1))  # until then the server's windows are those of the standard

    def __enter__(self) -> "Enemy":
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, *frames: bytes) -> None:
        self.sock.sendall(b"".join(frames))

    def request(
        self, stream: int, flags: int = END_HEADERS | END_STREAM, block: bytes | None = None
    ) -> bytes:
        return frame(HEADERS, flags, stream, self.block if block is None else block)

    def frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Kind, flags, stream and payload of each, until the server closes."""
        while True:
            while len(self.rest) >= 9:
                length = int.from_bytes(self.rest[:3], "big")
                if len(self.rest) < 9 + length:
                    break
                kind, flags, stream = struct.unpack(">BBI", self.rest[3:9])
                payload, self.rest = self.rest[9 : 9 + length], self.rest[9 + length :]
                yield kind, flags, stream, payload
            try:
                chunk = self.sock.recv(1 << 16)
            except ConnectionResetError:
                return
            if not chunk:
                return
            self.rest += chunk

    def wait_for(self, kind: int) -> tuple[int, int, int, bytes]:
        return next(found for found in self.frames() if found[0] == kind)

    def ping(self) -> None:
        """Everything before it was read, and the connection lives."""
        self.send(frame(PING, payload=b"\0" * 8))
        assert self.wait_for(PING)[1] == 1

    def is_closed(self) -> bool:
        list(self.frames())
        return True


@pytest.fixture
def server() -> Iterator[Http2Server]:
    with Http2Server(Waiting) as running:
        yield running


@pytest.fixture
def enemy(server: Http2Server) -> Iterator[Enemy]:
    with Enemy(server) as opened:
        yield opened


def test_open_streams_are_bounded(server: Http2Server, enemy: Enemy) -> None:
    enemy.send(*(enemy.request(1 + 2 * n) for n in range(STREAMS_MAX)))
    enemy.ping()
    assert len(server.calls) == STREAMS_MAX
    enemy.send(enemy.request(1 + 2 * STREAMS_MAX))
    assert enemy.wait_for(GOAWAY)
    assert enemy.is_closed()
    assert len(server.calls) == STREAMS_MAX


def test_open_streams_count_as_memory(server: Http2Server, enemy: Enemy) -> None:
    enemy.send(*(enemy.request(1 + 2 * n) for n in range(1000)))
    enemy.ping()
    assert server.connections[0].held >= 1000 * 4096


def test_ten_thousand_streams_that_end_leave_nothing() -> None:
    with Http2Server(EchoCall) as server, Enemy(server) as client:
        for start in range(0, 10_000, 100):
            client.send(*(client.request(1 + 2 * (start + n)) for n in range(100)))
            client.ping()
        assert len(server.calls) == 10_000
        assert server.connections[0].held == 0


def block_of(header_bytes: int) -> bytes:
    """Headers that count for so many bytes."""
    used = sum(len(name) + len(value) + 32 for name, value in REQUEST) + 32 + 1
    return encoded(("k", "v" * (header_bytes - used)))


@pytest.mark.parametrize(("size", "served"), [(HEADER_BYTES_MAX, True), (HEADER_BYTES_MAX + 1, False)])
def test_headers_are_bounded(server: Http2Server, enemy: Enemy, size: int, served: bool) -> None:
    block = block_of(size)
    enemy.send(
        enemy.request(1, END_STREAM, block[:16000]), frame(CONTINUATION, END_HEADERS, 1, block[16000:])
    )
    if not served:
        assert enemy.wait_for(RST_STREAM)[2] == 1
    enemy.ping()
    assert len(server.calls) == served


def test_malformed_requests_are_bounded(server: Http2Server, enemy: Enemy) -> None:
    block = block_of(HEADER_BYTES_MAX + 1000)
    for n in range(FAULTS_MAX):
        stream = 1 + 2 * n
        enemy.send(enemy.request(stream, END_STREAM, block[:16000]))
        enemy.send(frame(CONTINUATION, END_HEADERS, stream, block[16000:]))
    enemy.ping()
    stream = 1 + 2 * FAULTS_MAX
    enemy.send(
        enemy.request(stream, END_STREAM, block[:16000]),
        frame(CONTINUATION, END_HEADERS, stream, block[16000:]),
    )
    assert enemy.is_closed()
    assert server.connections[0].faults == [
        "HTTP/2: more than 128 headers, or 16384 bytes of them, more than 100 times",
    ]


@pytest.mark.parametrize(("count", "served"), [(CONTINUATIONS_MAX, True), (CONTINUATIONS_MAX + 1, False)])
def test_continuation_frames_are_bounded(server: Http2Server, enemy: Enemy, count: int, served: bool) -> None:
    parts = [frame(CONTINUATION, END_HEADERS if n == count - 1 else 0, 1) for n in range(count)]
    enemy.send(enemy.request(1, END_STREAM), *parts)
    if served:
        enemy.ping()
        assert len(server.calls) == 1
    else:
        assert enemy.is_closed()
        assert server.connections[0].faults == ["HTTP/2: more than 4 CONTINUATION frames of one request"]


def test_rapid_reset_ends_the_connection(server: Http2Server, enemy: Enemy) -> None:
    cancel = struct.pack(">I", 8)

    def reset(n: int) -> bytes:
        return enemy.request(1 + 2 * n, END_HEADERS) + frame(RST_STREAM, 0, 1 + 2 * n, cancel)

    enemy.send(*(reset(n) for n in range(RESETS_MAX)))
    enemy.ping()
    enemy.send(*(reset(RESETS_MAX + n) for n in range(RESETS_MAX)))
    assert enemy.is_closed()
    assert server.connections[0].faults == [
        "HTTP/2: more than 1000 streams ended with an error, and 33 in each second"
    ]
    assert all(call.was_cancelled for call in server.calls)  # type: ignore[attr-defined]


def test_settings_frames_are_bounded(server: Http2Server, enemy: Enemy) -> None:
    """Each changes the windows of all streams: 16 KiB of them took a connection with 4,000 streams 40 ms, in which
    no other client was served."""
    change = [frame(SETTINGS, payload=struct.pack(">HI", 4, 1000 + n)) for n in range(SETTINGS_MAX)]
    enemy.send(*change[1:])  # the first one came when it connected
    enemy.ping()
    enemy.send(*change)
    assert enemy.is_closed()
    assert server.connections[0].faults == ["HTTP/2: more than 100 SETTINGS frames, and 10 in each second"]


def test_pings_without_end_are_answered_in_bounded_memory(server: Http2Server, enemy: Enemy) -> None:
    """To a peer that does not read, the connection ends instead."""
    floods = frame(PING, payload=b"\0" * 8) * 2000
    enemy.sock.settimeout(0.5)
    try:
        for _ in range(2000):
            enemy.send(floods)
    except (TimeoutError, ConnectionError):
        pass
    assert server.connections[0].held < 8 << 20


def test_a_peer_that_takes_no_data_makes_its_producer_wait() -> None:
    with Http2Server(EchoCall) as server, Enemy(server, struct.pack(">HI", 4, 0)) as client:
        message = b"\0" + struct.pack(">I", 65536) + bytes(65536)
        client.send(client.request(1, END_HEADERS))
        for _ in range(2):
            client.send(
                *(frame(DATA, 0, 1, message[at : at + 16384]) for at in range(0, len(message), 16384))
            )
        client.ping()
        stream = server.calls[0].stream  # type: ignore[attr-defined]
        assert not stream.is_slow
        assert server.connections[0].held >= 2 * 65536
        for _ in range(UNSENT_BYTES_MAX // 65536):
            server.run(lambda: stream.send(bytes(65536)))
        assert stream.is_slow
        assert server.connections[0].held > UNSENT_BYTES_MAX
        client.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 24)))
        client.send(frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 1 << 24)))
        received = 0
        for kind, _, _, payload in client.frames():
            received += len(payload) if kind == DATA else 0
            if received == 2 * 65541 + (UNSENT_BYTES_MAX // 65536) * 65541:
                break
        eventually(lambda: not stream.is_slow)


@pytest.mark.parametrize(
    "junk",
    [
        frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\0"),
        frame(DATA, 0, 0, b"x"),
        frame(SETTINGS, 0, 1),
        frame(PING, 0, 0, b"short"),
        frame(HEADERS, END_HEADERS, 2, b"\x82"),
        frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
        b"\xff" * 100,
    ],
)
def test_broken_frames_end_the_connection_with_goaway(server: Http2Server, enemy: Enemy, junk: bytes) -> None:
    enemy.send(junk)
    assert enemy.wait_for(GOAWAY)
    assert enemy.is_closed()


def test_a_preface_that_goes_on_wrong_is_refused(server: Http2Server) -> None:
    with server.connect() as sock:
        sock.sendall(b"PRI * HTTP/1.1\r\n\r\nXX\r\n\r\n")
        while sock.recv(1000):
            pass
    assert len(server.connections[0].faults) == 1


def test_the_preface_may_come_byte_by_byte(server: Http2Server) -> None:
    with server.connect() as sock:
        for byte in PREFACE + frame(SETTINGS):
            sock.sendall(bytes([byte]))
        assert sock.recv(9)[3] == SETTINGS


# ---- what streams cost ----


@pytest.mark.parametrize(("more", "served"), [(0, True), (1, False)])
def test_the_number_of_headers_is_bounded(server: Http2Server, enemy: Enemy, more: int, served: bool) -> None:
    headers = [(f"k{n}", "") for n in range(HEADERS_MAX - len(REQUEST) + more)]
    enemy.send(enemy.request(1, block=encoded(*headers)))
    if not served:
        assert enemy.wait_for(RST_STREAM)[2] == 1
    enemy.ping()
    assert len(server.calls) == served


def test_headers_count_as_memory(server: Http2Server, enemy: Enemy) -> None:
    headers = [(f"k{n}", "v") for n in range(100)]
    enemy.send(enemy.request(1, block=encoded(*headers)))
    enemy.ping()
    assert server.connections[0].held > 100 * 256
    enemy.send(frame(RST_STREAM, 0, 1, CANCEL))
    enemy.ping()
    assert server.connections[0].held == 0


def test_requests_count_as_those_of_the_connection(server: Http2Server, enemy: Enemy) -> None:
    """Connections that never sent one are closed first when there are too many."""
    assert server.connections[0].received_frames == 0
    enemy.send(enemy.request(1), enemy.request(3))
    enemy.ping()
    assert server.connections[0].received_frames == 2


def test_trailers_of_the_client_change_no_header(server: Http2Server, enemy: Enemy) -> None:
    enemy.send(enemy.request(1, END_HEADERS, encoded(("authorization", "right"))))
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    trailers = encoder.encode([("authorization", "other"), ("x-mq-client-id", "other")])
    enemy.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, trailers))
    enemy.ping()
    headers = server.calls[0].stream.headers  # type: ignore[attr-defined]
    assert headers["authorization"] == "right"
    assert "x-mq-client-id" not in headers


def message(length: int, sent: int | None = None) -> bytes:
    """A message that states this length, with so many bytes of it."""
    return b"\0" + struct.pack(">I", length) + bytes(length if sent is None else sent)


def data(stream: int, body: bytes) -> list[bytes]:
    return [frame(DATA, 0, stream, body[at : at + 16384]) for at in range(0, len(body), 16384)]


def refused(stream: GrpcStream) -> None:
    stream.finish(12, "no such method")


def test_data_of_a_refused_call_is_dropped() -> None:
    with Http2Server(refused) as server, Enemy(server) as client:
        for n in range(10):
            client.send(client.request(1 + 2 * n, END_HEADERS), *data(1 + 2 * n, message(1 << 20, 100_000)))
        client.ping()
        assert server.connections[0].held < 10 * 8192


def test_a_request_counts_as_memory_until_its_call_ends(server: Http2Server, enemy: Enemy) -> None:
    enemy.send(enemy.request(1, END_HEADERS), *data(1, message(500_000)))
    enemy.ping()
    assert server.connections[0].held > 500_000
    stream = server.calls[0].stream  # type: ignore[attr-defined]
    server.run(stream.finish)
    enemy.send(frame(DATA, END_STREAM, 1))
    enemy.ping()
    eventually(lambda: server.connections[0].held == 0)


@pytest.mark.parametrize("count", [MESSAGES_MAX, 1000])
def test_messages_of_one_frame_are_bounded(server: Http2Server, enemy: Enemy, count: int) -> None:
    enemy.send(enemy.request(1, END_HEADERS), frame(DATA, 0, 1, message(0) * count))
    enemy.ping()
    call = server.calls[0]
    assert isinstance(call, Waiting)
    assert call.messages == min(count, MESSAGES_MAX + 1)
    assert call.stream.finished == (count > MESSAGES_MAX)


def test_a_peer_that_makes_the_server_reset_its_streams_is_disconnected(
    server: Http2Server, enemy: Enemy
) -> None:
    """A window that overflows is an error of its stream, which the server has to reset."""
    overflow = struct.pack(">I", 0x7FFFFFFF)
    for n in range(RESETS_MAX + 200):
        try:
            enemy.send(enemy.request(1 + 2 * n, END_HEADERS), frame(WINDOW_UPDATE, 0, 1 + 2 * n, overflow))
        except ConnectionError:
            break
    assert enemy.is_closed()
    assert server.connections[0].faults == [
        "HTTP/2: more than 1000 streams ended with an error, and 33 in each second"
    ]


# ---- calls that end their connection ----


@pytest.mark.parametrize("poller", [True, False])
@pytest.mark.parametrize("end", ["close", "abort"])
@pytest.mark.parametrize("when", ["accept", "message", "half_closed", "cancelled"])
def test_a_call_may_end_its_connection(poller: bool, end: str, when: str) -> None:
    """nghttp2 is receiving then, and its session has to outlive that."""

    class Ending(Waiting):
        def __init__(self, stream: GrpcStream) -> None:
            super().__init__(stream)
            self.end_at("accept")

        def end_at(self, what: str) -> None:
            if what == when:
                self.stream.send(b"answer")
                getattr(server.connections[0], end)()

        def message(self, message: bytes) -> None:
            super().message(message)
            self.end_at("message")

        def half_closed(self) -> None:
            self.end_at("half_closed")

        def cancelled(self) -> None:
            super().cancelled()
            self.end_at("cancelled")

    with Http2Server(Ending, poller=poller) as server, Enemy(server) as client:
        client.send(
            *(client.request(1 + 2 * n, END_HEADERS) for n in range(40)),
            *(frame(DATA, 0, 1 + 2 * n, message(10) * 3) for n in range(40)),
            *(frame(RST_STREAM, 0, 1 + 2 * n, CANCEL) for n in range(20)),
            *(frame(DATA, END_STREAM, 1 + 2 * n) for n in range(20, 40)),
        )
        assert client.is_closed()
        eventually(lambda: server.connections[0].losses == 1)
        assert server.connections[0].held == 0


def test_a_call_that_fails_in_its_end_does_not_keep_the_others() -> None:
    class Failing(Waiting):
        def cancelled(self) -> None:
            super().cancelled()
            raise RuntimeError("expected")

    with Http2Server(Failing) as server:
        with Enemy(server) as client:
            client.send(*(client.request(1 + 2 * n, END_HEADERS) for n in range(3)))
            client.ping()
        eventually(lambda: server.connections[0].losses == 1)
        assert all(call.was_cancelled for call in server.calls)  # type: ignore[attr-defined]
        assert server.connections[0].held == 0


def test_many_calls_of_one_peer_leave_time_for_others() -> None:
    at_once = [0]

    def slow(stream: GrpcStream) -> Waiting:
        if at_once[-1] == 0:
            server.loop.call_soon(at_once.append, 0)
        at_once[-1] += 1
        time.sleep(0.0002)
        return Waiting(stream)

    with Http2Server(slow) as server, Enemy(server) as client:
        client.send(*(client.request(1 + 2 * n) for n in range(500)))
        client.ping()
        assert sum(at_once) == 500
        assert max(at_once) <= 2 * SLICE_CALLS
