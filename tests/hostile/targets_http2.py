"""What clients of gRPC send: frames and header blocks to a session, protobuf bodies to their parsers and codecs."""

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from firearrow._native.http2.grpc_stream import GrpcStream
from firearrow._native.http2.session import Http2Session
from firearrow._native.wire.buffer_pool import MemoryBudget
from firearrow.broker.grpc import authorization, messages, settings
from firearrow.broker.grpc.commands import HalfMessage
from firearrow.broker.grpc.message_codec import check_digest, flags_from, properties_from, type_of
from firearrow.broker.grpc.receipts import Receipt
from firearrow.broker.grpc.statuses import GrpcRefusal
from tests.hostile.fuzz import Target
from tests.support.connections import Echo, feed, run_once
from tests.support.http2_frames import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
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
from tests.support.transport import RecordingTransport

MESSAGE_BYTES_MAX = 1 << 20
PIECE = 1000
PASSES = 4


class Answering:
    """Answers each message at once, and ends with the client."""

    def __init__(self, stream: GrpcStream) -> None:
        self.stream = stream

    def message(self, received: bytes) -> None:
        self.stream.send(received[:100])

    def half_closed(self) -> None:
        self.stream.finish(3, "100 % done\n")

    def cancelled(self) -> None:
        assert not self.stream.is_open


class Http2Echo(Echo):
    def http2(self) -> Http2Session:
        return Http2Session(self, Answering, MESSAGE_BYTES_MAX)


class Transport(RecordingTransport):
    def get_write_buffer_size(self) -> int:
        return 0


class Host:
    """Sessions without a socket, on a loop of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.faults: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.faults.append(context))
        self.budget = MemoryBudget(self.loop, 1 << 30, lambda: None)

    def serve(self, received: bytes) -> None:
        """A connection that sends this in pieces, and ends: nothing of it is left."""
        connection = Http2Echo(self.loop, budget=self.budget)
        transport = Transport()
        connection.connection_made(transport)  # type: ignore[arg-type]
        for at in range(0, len(received), PIECE):
            if connection.closed or transport.is_closing():
                break
            feed(connection, received[at : at + PIECE])
            run_once(self.loop)
        for _ in range(PASSES):
            run_once(self.loop)
        connection.connection_lost(None)
        run_once(self.loop)
        assert connection.held == 0
        assert self.budget.held == 0
        assert not self.faults, self.faults


@functools.cache
def host() -> Host:
    return Host()


def read_frames(received: bytes) -> None:
    host().serve(opening() + received)


def read_headers(received: bytes) -> None:
    """As the header block of a request, in two frames."""
    half = len(received) // 2
    first, rest = received[:half][:16_000], received[half:][:16_000]
    host().serve(opening() + frame(HEADERS, END_STREAM, 1, first) + frame(CONTINUATION, END_HEADERS, 1, rest))


def sent_frames() -> list[bytes]:
    block = headers_of("SendMessage")
    return [
        call(1, block, b"body"),
        frame(HEADERS, END_HEADERS, 1, block)
        + data(1, message(b"x" * 20_000))
        + frame(RST_STREAM, 0, 1, bytes(4)),
        frame(HEADERS, 0, 3, block[:20]) + frame(CONTINUATION, END_HEADERS, 3, block[20:]),
        frame(PING, payload=bytes(8)) + frame(SETTINGS, payload=b"\0\4\0\0\0\0"),
        frame(WINDOW_UPDATE, 0, 0, b"\0\0\x10\0") + call(1, block, b"") + call(3, block, b"y"),
        frame(HEADERS, END_HEADERS, 1, block) + data(1, message(b"", claimed=0xFFFFFFFF)),
        frame(HEADERS, END_HEADERS, 1, block) + data(1, message(b"z", compressed=1)),
    ]


def message_of(method: str) -> Callable[[bytes], object]:
    request, _ = messages.method_classes(method)
    return lambda received: messages.parse(request, received)


def a_message() -> messages.ProtoMessage:
    found = messages.Message(body=b"body")
    found.topic.name = "T"
    own = found.system_properties
    own.message_id, own.tag, own.message_group, own.priority = "ID", "a", "g", 3
    own.keys.extend(["k1", "k2"])
    own.delivery_timestamp.seconds = 1_800_000_000
    own.body_digest.type, own.body_digest.checksum = 1, "DBA80BB2"
    found.user_properties["n"] = "1"
    return found


def sends() -> list[bytes]:
    request, _ = messages.method_classes("SendMessage")
    return [
        request(messages=[a_message()]).SerializeToString(),
        request(messages=[messages.Message()] * 3).SerializeToString(),
    ]


def read_send(received: bytes) -> None:
    request, _ = messages.method_classes("SendMessage")
    for each in messages.parse(request, received).messages:
        properties = properties_from(each, "T", "here", 1)
        type_of(properties), flags_from(each)
        check_digest(each)


def settings_seeds() -> list[bytes]:
    producer, consumer = messages.Settings(client_type=1), messages.Settings(client_type=3)
    producer.publishing.topics.add(name="T")
    consumer.subscription.group.name = "g"
    entry = consumer.subscription.subscriptions.add()
    entry.topic.name, entry.expression.type, entry.expression.expression = "T", 1, "a || b"
    return [producer.SerializeToString(), consumer.SerializeToString()]


def read_settings(received: bytes) -> None:
    given = messages.parse(messages.Settings, received)
    settings.check(given)
    settings.heartbeat(given, "client", 1)


def read_receipt(received: bytes) -> None:
    receipt = Receipt.of(received.decode("utf-8", "replace"), "T", "g")
    assert Receipt.of(receipt.text, "T", "g").key == receipt.key


def read_authorization(received: bytes) -> None:
    text = received.decode("latin-1")
    authorization.client_of({"x-mq-client-id": text, "authorization": text})


REFUSALS = (GrpcRefusal, messages.DecodeError)
SIGNATURE = b"MQv2-HMAC-SHA1 Credential=u/x, SignedHeaders=x-mq-date-time, Signature=00FF"
HANDLE = b"0 1700000000000 60000 0 0 broker-a 1 5 4096"

HTTP2 = (
    Target("frames of HTTP2", sent_frames, read_frames),
    Target("headers of HTTP2", lambda: [headers_of("SendMessage", ("k", "v" * 100))], read_headers),
    Target("SendMessage", sends, read_send, REFUSALS),
    Target("settings of gRPC", settings_seeds, read_settings, REFUSALS),
    Target(
        "AckMessage",
        lambda: [b"\x0a\x03\x12\x01g\x12\x03\x12\x01T\x1a\x06\x0a\x01i\x12\x01h"],
        message_of("AckMessage"),
        REFUSALS,
    ),
    Target("receipt of gRPC", lambda: [HANDLE], read_receipt, REFUSALS),
    Target(
        "id of a transaction",
        lambda: [b"ID-1-2"],
        lambda received: HalfMessage.of(received.decode("utf-8", "replace")),
        REFUSALS,
    ),
    Target("authorization of gRPC", lambda: [SIGNATURE], read_authorization, REFUSALS),
)
