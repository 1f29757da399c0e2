"""The limits of requests that clients of gRPC make to a broker, at each and one past it."""

import struct
from typing import Any

import grpc
import pytest

from firearrow._native.http2.grpc_stream import UNSENT_BYTES_MAX
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.grpc import messages
from firearrow.broker.grpc.acknowledging import ENTRIES_MAX
from firearrow.broker.grpc.connection import CLIENTS_MAX
from firearrow.broker.grpc.message_checks import TIME_MS_MAX
from firearrow.broker.grpc.receipts import INVISIBLE_MS_MAX
from firearrow.broker.grpc.sending import MESSAGES_MAX
from firearrow.broker.grpc.statuses import RESOURCE_BYTES_MAX
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.grpc_caller import (
    GrpcCaller,
    create_group,
    create_topic,
    message,
    receive_fields,
    renewed,
)
from tests.support.http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    call,
    data,
    frame,
    frames_from,
    headers_of,
    opening,
)
from tests.support.http2_frames import message as framed

CLOSED_WINDOW, OPEN_WINDOW = (struct.pack(">HI", 4, size) for size in (0, 1 << 30))
CANCEL = struct.pack(">I", 8)
FAR_MS = 4_000_000_000_000
HOSTILE = "hostile"
"""The client of `headers_of`."""


def test_entries_of_an_acknowledgement(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    with broker.connect() as socket:
        create_topic(socket, topic)
        create_group(socket, group)
    entry = {"message_id": "ID", "receipt_handle": "wrong"}
    names = {"group": {"name": group}, "topic": {"name": topic}}
    assert caller.code("AckMessage", entries=[entry] * ENTRIES_MAX, **names)[0] == "INVALID_RECEIPT_HANDLE"
    assert caller.code("AckMessage", entries=[entry] * (ENTRIES_MAX + 1), **names)[0] == "BAD_REQUEST"


def test_messages_of_a_send(broker: BrokerProcess, caller: GrpcCaller, topic: str) -> None:
    with broker.connect() as socket:
        create_topic(socket, topic)
    each = message(topic, b"x")
    assert caller.code("SendMessage", messages=[each] * MESSAGES_MAX)[0] == "OK"
    assert caller.code("SendMessage", messages=[each] * (MESSAGES_MAX + 1))[0] == "BAD_REQUEST"


def test_clients_of_a_connection(broker: BrokerProcess, caller: GrpcCaller, topic: str) -> None:
    """Calls of further ones are served, but they cannot register."""
    with broker.connect() as socket:
        create_topic(socket, topic)
    own = caller.metadata[1:]

    def registers(client_id: str) -> bool:
        caller.metadata = [("x-mq-client-id", client_id), *own]
        assert caller.code("QueryRoute", topic={"name": topic})[0] == "OK"
        stream = caller.telemetry()
        stream.send(settings={"client_type": "PRODUCER", "publishing": {"topics": [{"name": topic}]}})
        try:
            stream.receive()
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT  # noqa: PT017
            return False
        return caller.code("Heartbeat")[0] == "OK"

    for n in range(CLIENTS_MAX - 1):
        caller.metadata = [("x-mq-client-id", f"many@{n}"), *own]
        assert caller.code("QueryRoute", topic={"name": topic})[0] == "OK"
    assert registers("last")
    assert not registers("one more")
    assert registers("last")
    with broker.connect() as socket:
        asked = {"producerGroup": topic, "topic": topic}
        body = socket.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, asked).body
        assert b"last" in body
        assert b"one more" not in body


def test_invisible_durations(broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str) -> None:
    with broker.connect() as socket:
        create_topic(socket, topic)
        create_group(socket, group)
    caller.consume(group, topic)
    caller.send(topic, b"x")

    asked = receive_fields(group, topic) | {"invisible_duration": duration(INVISIBLE_MS_MAX + 1)}
    assert caller.code("ReceiveMessage", **asked)[0] == "ILLEGAL_INVISIBLE_TIME"
    longest = {"invisible_duration": duration(INVISIBLE_MS_MAX)}
    (got,) = caller.receive(group, topic, **longest)
    handle = got.system_properties.receipt_handle
    names = {"group": {"name": group}, "topic": {"name": topic}, "receipt_handle": handle}

    def changed(ms: int) -> str:
        return caller.code("ChangeInvisibleDuration", **names, invisible_duration=duration(ms))[0]

    assert changed(INVISIBLE_MS_MAX + 1) == "ILLEGAL_INVISIBLE_TIME"
    assert changed(INVISIBLE_MS_MAX) == "OK"


def test_times_of_messages(broker: BrokerProcess, caller: GrpcCaller, topic: str) -> None:
    """Consumers could not read others."""
    with broker.connect() as socket:
        create_topic(socket, topic)
    last = TIME_MS_MAX // 1000
    for time, code in (
        ({"seconds": 1, "nanos": 0}, "OK"),
        ({"seconds": last, "nanos": 999_999_999}, "OK"),
        ({"seconds": last + 1}, "BAD_REQUEST"),
        ({"seconds": (1 << 63) - 1}, "BAD_REQUEST"),
        ({"seconds": -1}, "BAD_REQUEST"),
        ({"nanos": -1}, "BAD_REQUEST"),
    ):
        sends = [message(topic, b"x", born_timestamp=time)]
        assert caller.code("SendMessage", messages=sends)[0] == code, time


def test_forged_receipt_handles(broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str) -> None:
    """Clients ask again and again after any other code."""
    with broker.connect() as socket:
        create_topic(socket, topic)
        create_group(socket, group)
    names = {"group": {"name": group}, "topic": {"name": topic}}
    for handle in (
        " " * (3 << 20),
        f"0 {FAR_MS} 60000 0 0 broker-a {1 << 31} 0 0",
        f"0 {FAR_MS} 60000 0 9 broker-a 0 0 0",
        f"0 {FAR_MS} 60000 0 0 broker-a 0 {10**17} 0",
    ):
        acks = caller.call("AckMessage", **names, entries=[{"message_id": "x", "receipt_handle": handle}])
        assert acks.status.code == messages.CODES["INVALID_RECEIPT_HANDLE"], handle[:80]
        for method in ("ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue"):
            code = caller.code(method, **names, receipt_handle=handle)[0]
            assert code == "INVALID_RECEIPT_HANDLE", (method, handle[:80])


def duration(ms: int) -> dict[str, int]:
    return {"seconds": ms // 1000, "nanos": ms % 1000 * 1_000_000}


# ---- clients that read too slowly, or no more ----


@pytest.mark.parametrize(("end", "auto_renew"), [("late", True), ("reset", True), ("lost", False)])
def test_what_a_client_does_not_get_comes_to_others(
    broker: BrokerProcess, topic: str, group: str, end: str, auto_renew: bool
) -> None:
    """And is not renewed for it: its call ends before the pop is stored, or before the window lets the answer through.
    The client itself goes on."""
    with broker.connect() as socket:
        create_topic(socket, topic, queues=1)
        create_group(socket, group)
        before = renewed(socket)
    of_group = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    fields: dict[str, Any] = receive_fields(group, topic) | {"auto_renew": auto_renew}
    request = serialized("ReceiveMessage", **fields)
    receive = call(1, headers_of("ReceiveMessage"), request)
    reset = frame(RST_STREAM, 0, 1, CANCEL)
    with GrpcCaller(broker.address, HOSTILE) as caller, GrpcCaller(broker.address) as other:
        caller.consume(group, topic, kind="PUSH_CONSUMER")
        other.consume(group, topic)
        caller.send(topic, b"x")
        with broker.connect() as attacker:
            attacker.send_raw(opening(CLOSED_WINDOW) + receive + (reset if end == "late" else b""))
            with broker.connect() as socket:
                eventually(
                    lambda: socket.ask(RequestCode.QUERY_CONSUMER_OFFSET, of_group).ext.get("offset") == "1"
                )
            if end == "reset":
                attacker.send_raw(reset)
            if end != "lost":
                eventually(lambda: [each.body for each in other.receive(group, topic)] == [b"x"])
        if end == "lost":
            eventually(lambda: [each.body for each in other.receive(group, topic)] == [b"x"])
        with broker.connect() as socket:
            assert renewed(socket) == before


def test_settings_of_a_client_that_reads_no_answers(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as socket:
        create_topic(socket, topic)
    settings: dict[str, Any] = {
        "client_type": "PRODUCER",
        "publishing": {"topics": [{"name": topic}]},
        "user_agent": {"hostname": "h" * 250_000},
    }
    command = data(1, framed(messages.TelemetryCommand(settings=settings).SerializeToString()))
    with broker.connect() as attacker:
        attacker.send_raw(
            opening(CLOSED_WINDOW) + frame(HEADERS, END_HEADERS, 1, headers_of("Telemetry")) + command * 4
        )
        frames = frames_from(attacker.socket)
        next(each for each in frames if (each[0], each[2]) == (WINDOW_UPDATE, 1))
        attacker.send_raw(command * 3 + frame(SETTINGS, payload=OPEN_WINDOW))
        attacker.send_raw(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30)))
        answered = 0
        for kind, flags, stream, payload in frames:
            answered += len(payload) if (kind, stream) == (DATA, 1) else 0
            if stream == 1 and flags & END_STREAM:
                assert b"8" in payload, "grpc-status"
                break
        assert UNSENT_BYTES_MAX < answered < UNSENT_BYTES_MAX + 300_000


def serialized(method: str, **fields: Any) -> bytes:  # noqa: ANN401
    return bytes(messages.method_classes(method)[0](**fields).SerializeToString())


# ---- what goes back with each queue or message ----


def test_a_request_is_not_sent_back_many_times(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    """Also what protobuf does not know of it."""
    with broker.connect() as socket:
        create_topic(socket, topic, queues=64)
        create_group(socket, group)
    caller.consume(group, topic)
    unknown = messages.Resource.FromString(b"\x4a\x90\x4e" + b"x" * 10_000)
    unknown.name = topic
    queue = {"topic": unknown, "id": 0}
    named = {"topic": {"name": topic}, "group": {"name": group}}
    for method, fields in {
        "QueryRoute": {"topic": {"name": topic, "resource_namespace": "n" * RESOURCE_BYTES_MAX}},
        "QueryAssignment": named | {"topic": unknown},
        "ReceiveMessage": receive_fields(group, topic) | {"message_queue": queue},
        "PullMessage": {"group": {"name": group}, "message_queue": queue},
    }.items():
        assert caller.code(method, **fields)[0] == "ILLEGAL_TOPIC", method
    for count, code in ((50, "OK"), (1000, "ILLEGAL_ACCESS_POINT")):
        addresses = [{"host": f"host-{n:03d}.a.domain.example", "port": 65_535} for n in range(count)]
        endpoints = {"scheme": "DOMAIN_NAME", "addresses": addresses}
        for method in ("QueryRoute", "QueryAssignment"):
            fields = named if method == "QueryAssignment" else {"topic": {"name": topic}}
            assert caller.code(method, **fields, endpoints=endpoints)[0] == code


def test_an_acknowledgement_counts_though_its_call_has_ended(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    """The message is not renewed any more: it would come again once its client ends."""
    with broker.connect() as socket:
        create_topic(socket, topic)
        create_group(socket, group)
        before = renewed(socket)
    with GrpcCaller(broker.address, HOSTILE) as caller:
        caller.consume(group, topic, kind="PUSH_CONSUMER")
        caller.send(topic, b"x")
        [received] = caller.receive(group, topic, auto_renew=True)
        entry = {"message_id": "x", "receipt_handle": received.system_properties.receipt_handle}
        names = {"group": {"name": group}, "topic": {"name": topic}}
        ack = call(1, headers_of("AckMessage"), serialized("AckMessage", **names, entries=[entry]))
        with broker.connect() as attacker, broker.connect() as socket:
            assert renewed(socket) == before + 1
            attacker.send_raw(opening() + ack + frame(RST_STREAM, 0, 1, CANCEL))
            eventually(lambda: renewed(socket) == before)


def test_settings_of_many_clients_take_little_memory(broker: BrokerProcess, topic: str) -> None:
    """No more of them is kept than counts."""
    with broker.connect() as socket:
        create_topic(socket, topic)
    settings: dict[str, Any] = {
        "client_type": "PRODUCER",
        "publishing": {"topics": [{"name": topic}]},
        "user_agent": {"hostname": "h" * 250_000},
    }
    command = framed(messages.TelemetryCommand(settings=settings).SerializeToString())
    with broker.connect() as attacker:
        attacker.send_raw(
            opening(OPEN_WINDOW) + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", (1 << 31) - 65_536))
        )
        frames = frames_from(attacker.socket)
        before = 0
        for n in range(120):
            block = headers_of("Telemetry", ("x-mq-client-id", f"many@{n}"))
            attacker.send_raw(
                frame(HEADERS, END_HEADERS, 2 * n + 1, block) + data(2 * n + 1, command, END_STREAM)
            )
            next(each for each in frames if each[2] == 2 * n + 1 and each[1] & END_STREAM)
            before = broker.anonymous_kib() if n == 20 else before
        assert broker.anonymous_kib() - before < 10_000, "of 25 MB"
