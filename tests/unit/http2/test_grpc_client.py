"""Http2Session with a real gRPC client: calls of every shape, large messages, cancellation, many at once."""

import threading
from collections.abc import Iterator

import grpc
import pytest

from firearrow._native.http2.grpc_stream import GrpcStream
from tests.support.eventually import eventually
from tests.support.http2_server import MESSAGE_BYTES_MAX, EchoCall, Http2Server

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@pytest.fixture(params=[True, False], ids=["poller", "transports"])
def server(request: pytest.FixtureRequest) -> Iterator[Http2Server]:
    with Http2Server(poller=request.param) as running:
        yield running


@pytest.fixture
def channel(server: Http2Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}", options=OPTIONS) as opened:
        yield opened


def test_a_unary_call_is_answered(channel: grpc.Channel) -> None:
    call = channel.unary_unary("/echo.Echo/1")
    for body in (b"", b"a", bytes(1000), bytes(range(256)) * 64, bytes(1 << 20)):
        assert call(body, timeout=10) == body


def test_the_request_headers_arrive(server: Http2Server, channel: grpc.Channel) -> None:
    channel.unary_unary("/echo.Echo/Call")(b"", metadata=[("x-mq-client-id", "c@1"), ("k", "v")], timeout=10)
    stream = server.calls[0].stream  # type: ignore[attr-defined]
    assert (stream.path, stream.method) == ("/echo.Echo/Call", "POST")
    assert stream.headers["x-mq-client-id"] == "c@1"
    assert stream.headers["k"] == "v"
    assert stream.headers["te"] == "trailers"
    assert int(stream.headers["grpc-timeout"][:-1]) > 0


def test_many_messages_are_streamed_in_both_directions(channel: grpc.Channel) -> None:
    sent = [bytes([n % 251]) * (n * 37) for n in range(300)]
    assert list(channel.stream_stream("/echo.Echo/1")(iter(sent), timeout=30)) == sent


def test_a_stream_of_more_than_all_windows_is_delivered(channel: grpc.Channel) -> None:
    body = bytes(MESSAGE_BYTES_MAX)
    received = list(channel.unary_stream("/echo.Echo/6")(body, timeout=30))
    assert [len(message) for message in received] == [len(body)] * 6


def test_a_message_over_the_limit_is_refused(channel: grpc.Channel) -> None:
    call = channel.unary_unary("/echo.Echo/1")
    with pytest.raises(grpc.RpcError) as refused:
        call(bytes(MESSAGE_BYTES_MAX + 1), timeout=30)
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (
        refused.value.details()
        == f"gRPC message exceeds maximum size {MESSAGE_BYTES_MAX}: {MESSAGE_BYTES_MAX + 1}"
    )
    assert call(b"next", timeout=10) == b"next"


def test_a_compressed_message_is_refused(channel: grpc.Channel) -> None:
    call = channel.unary_unary("/echo.Echo/1")
    with pytest.raises(grpc.RpcError) as refused:
        call(bytes(1000), timeout=10, compression=grpc.Compression.Gzip)
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert "send them uncompressed" in refused.value.details()


class Refusing(EchoCall):
    def message(self, message: bytes) -> None:
        self.stream.finish(7, "naïve 100 % no\n")


def test_a_status_has_a_readable_reason() -> None:
    with Http2Server(Refusing) as server, grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary("/echo.Echo/1")(b"x", timeout=10)
        assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
        assert refused.value.details() == "naïve 100 % no\n"


class Silent(EchoCall):
    def message(self, message: bytes) -> None:
        self.messages += 1

    def half_closed(self) -> None:
        pass


def test_a_cancelled_call_and_a_lost_connection_are_reported() -> None:
    with Http2Server(Silent) as server:
        channel = grpc.insecure_channel(f"127.0.0.1:{server.port}")
        calls = [channel.unary_unary("/echo.Echo/1").future(b"x") for _ in range(3)]
        eventually(lambda: sum(call.messages for call in server.calls) == 3)  # type: ignore[attr-defined]
        calls[0].cancel()
        eventually(lambda: [call.was_cancelled for call in server.calls].count(True) == 1)  # type: ignore[attr-defined]
        channel.close()
        eventually(lambda: all(call.was_cancelled for call in server.calls))  # type: ignore[attr-defined]
        eventually(lambda: server.connections[0].held == 0)


def test_a_finished_call_is_not_cancelled(server: Http2Server, channel: grpc.Channel) -> None:
    channel.unary_unary("/echo.Echo/1")(b"x", timeout=10)
    channel.close()
    eventually(lambda: server.connections[0].closed)
    assert not server.calls[0].was_cancelled  # type: ignore[attr-defined]


def test_hundreds_of_calls_at_once_get_their_own_answers(channel: grpc.Channel) -> None:
    call = channel.unary_unary("/echo.Echo/1")
    futures = [call.future(str(n).encode() * n, timeout=30) for n in range(600)]
    assert [future.result() for future in futures] == [str(n).encode() * n for n in range(600)]


class Late(EchoCall):
    """Is answered by another thread of the test, through the loop."""

    def message(self, message: bytes) -> None:
        self.stream.send(message)


def test_answers_after_the_pass_are_sent_at_once() -> None:
    streams: list[GrpcStream] = []

    class Kept(Silent):
        def __init__(self, stream: GrpcStream) -> None:
            super().__init__(stream)
            streams.append(stream)

    with Http2Server(Kept) as server, grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        answers = channel.unary_stream("/echo.Echo/1")(b"x", timeout=20)
        eventually(lambda: len(streams) == 1)
        for n in range(3):
            server.run(lambda n=n: streams[0].send(b"%d" % n))  # type: ignore[misc]
            assert next(answers) == b"%d" % n
        server.run(streams[0].finish)
        assert list(answers) == []


def test_a_closing_server_says_goodbye() -> None:
    with Http2Server(Silent) as server, grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        pending = channel.unary_unary("/echo.Echo/1").future(b"x", timeout=20)
        eventually(lambda: sum(call.messages for call in server.calls) == 1)  # type: ignore[attr-defined]
        server.run(server.connections[0].close)
        with pytest.raises(grpc.RpcError) as ended:
            pending.result()
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE


def test_frames_of_the_remoting_protocol_share_the_port(server: Http2Server) -> None:
    from firearrow._native.wire.command import RemotingCommand  # noqa: PLC0415

    with server.connect() as sock:
        sock.sendall(RemotingCommand.request(11, {}).encode())
        assert sock.recv(100)
    assert threading.active_count() > 0
