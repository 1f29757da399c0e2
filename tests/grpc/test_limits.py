"""The limits of requests that clients of gRPC make to a broker, at each and one past it."""

import grpc

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.grpc.acknowledging import ENTRIES_MAX
from firearrow.broker.grpc.connection import CLIENTS_MAX
from firearrow.broker.grpc.receipts import INVISIBLE_MS_MAX
from firearrow.broker.grpc.sending import MESSAGES_MAX
from tests.support.broker_process import BrokerProcess
from tests.support.grpc_caller import GrpcCaller, create_group, create_topic, message, receive_fields


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


def duration(ms: int) -> dict[str, int]:
    return {"seconds": ms // 1000, "nanos": ms % 1000 * 1_000_000}
