"""Messages through gRPC: sent, received, acknowledged, delayed, in transactions; with clients of remoting as well."""

import json
import time
import zlib
from typing import Any

import grpc
import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.grpc import messages
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.grpc_caller import (
    GrpcCaller,
    create_group,
    create_topic,
    message,
    receive_fields,
    until_received,
)
from tests.support.requests import pull_ext, records, send_ext, topic_ext
from tests.support.stores import item

OK = messages.CODES["OK"]


def made(broker: BrokerProcess, topic: str, kind: str = "NORMAL", **group: object) -> None:
    with broker.connect() as connection:
        create_topic(connection, topic, kind)
        create_group(connection, f"{topic}-g", **group)


def bodies(received: list[Any]) -> list[bytes]:
    return sorted(each.body for each in received)


def test_a_message_arrives_with_all_its_fields(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    made(broker, topic)
    caller.produce(topic)
    caller.consume(group, topic)
    sent = caller.send(
        topic,
        b"body",
        tag="a",
        keys=["k1", "k2"],
        user={"n": "1", "ü": "ö"},
        born_timestamp={"seconds": 1_700_000_000, "nanos": 5_000_000},
        born_host="here",
        trace_context="00-1-2-01",
    )
    assert (sent.status.code, sent.entries[0].offset) == (OK, 0)
    assert sent.entries[0].transaction_id == sent.entries[0].message_id
    (received,) = caller.receive(group, topic)
    own = received.system_properties
    assert (received.topic.name, received.body, dict(received.user_properties)) == (
        topic,
        b"body",
        {"n": "1", "ü": "ö"},
    )
    assert (own.tag, list(own.keys), own.message_id) == ("a", ["k1", "k2"], sent.entries[0].message_id)
    assert (own.born_timestamp.seconds, own.born_timestamp.nanos, own.born_host) == (
        1_700_000_000,
        5_000_000,
        "here",
    )
    assert (own.body_digest.type, own.body_digest.checksum) == (2, "841A2D689AD86BD1611447453C22C6FC")
    assert (own.message_type, own.delivery_attempt, own.trace_context) == (1, 1, "00-1-2-01")
    assert own.store_host.endswith(str(broker.address[1]))
    assert len(own.receipt_handle.split(" ")) == 9
    assert caller.ack(group, topic, received).status.code == OK


def test_each_message_of_a_batch_has_an_entry(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    made(broker, topic)
    caller.consume(group, topic)
    sent = caller.send(topic, b"1", b"2", b"3")
    assert [entry.offset for entry in sent.entries] == [0, 1, 2]
    assert bodies(until_received(caller, group, topic, 3)) == [b"1", b"2", b"3"]


def test_what_is_not_acknowledged_comes_again(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    made(broker, topic)
    caller.consume(group, topic)
    caller.send(topic, b"again")
    (first,) = caller.receive(group, topic)
    changed = caller.call(
        "ChangeInvisibleDuration",
        group={"name": group},
        topic={"name": topic},
        receipt_handle=first.system_properties.receipt_handle,
        invisible_duration={"nanos": 200_000_000},
    )
    assert changed.status.code == OK
    assert changed.receipt_handle != first.system_properties.receipt_handle
    (second,) = caller.receive(group, topic)
    assert (second.body, second.topic.name) == (b"again", topic)
    assert second.system_properties.delivery_attempt == 2
    assert second.system_properties.message_id == first.system_properties.message_id
    assert caller.ack(group, topic, second).status.code == OK


def test_a_forwarded_message_is_a_dead_letter(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    made(broker, topic)
    caller.consume(group, topic)
    caller.send(topic, b"dead")
    (received,) = caller.receive(group, topic)
    own = received.system_properties
    forwarded = caller.code(
        "ForwardMessageToDeadLetterQueue",
        group={"name": group},
        topic={"name": topic},
        receipt_handle=own.receipt_handle,
        message_id=own.message_id,
    )
    assert forwarded == ("OK", "0")
    with broker.connect() as connection:
        pulled = connection.ask(RequestCode.PULL_MESSAGE, pull_ext(f"%DLQ%{group}"))
        assert [record.body for record in records(pulled.body)] == [b"dead"]


def test_a_message_that_failed_too_often_goes_to_the_dead_letters(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    made(broker, topic, retryMaxTimes=0)
    caller.consume(group, topic)
    caller.send(topic, b"bad")
    (first,) = caller.receive(group, topic)
    handle = first.system_properties.receipt_handle
    caller.call(
        "ChangeInvisibleDuration",
        group={"name": group},
        topic={"name": topic},
        receipt_handle=handle,
        invisible_duration={"nanos": 100_000_000},
    )
    assert caller.receive(group, topic) == []
    with broker.connect() as connection:

        def dead() -> list[bytes]:
            pulled = connection.ask(RequestCode.PULL_MESSAGE, pull_ext(f"%DLQ%{group}"))
            return [record.body for record in records(pulled.body)]

        eventually(lambda: dead() == [b"bad"])


def test_fifo_messages_of_a_group_come_one_after_the_other(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    made(broker, topic, "FIFO", consumeMessageOrderly=True)
    stream = caller.consume(group, topic)
    assert (
        caller.call("QueryAssignment", group={"name": group}, topic={"name": topic})
        .assignments[3]
        .message_queue.id
    )
    for n in range(2):
        sent = caller.send(topic, b"%d" % n, kind="FIFO", message_group="one")
        assert sent.entries[0].offset == n
    sent = caller.send(topic, b"2", b"3", kind="FIFO", message_group="one")
    assert [entry.offset for entry in sent.entries] == [2, 3], "in the queue of their group"
    (first, *rest) = caller.receive(group, topic, count=1)
    assert (first.body, rest, first.system_properties.message_group) == (b"0", [], "one")
    assert first.user_properties["__SHARDINGKEY"] == "one"
    assert first.system_properties.receipt_handle.split(" ")[3] == "999"
    assert caller.receive(group, topic, count=1) == []
    caller.ack(group, topic, first)
    assert [each.body for each in caller.receive(group, topic, count=3)] == [b"1", b"2", b"3"]
    stream.end()


def test_a_delayed_message_arrives_later_and_can_be_recalled(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    made(broker, topic, "DELAY")
    caller.consume(group, topic)
    due_s = int(time.time()) + 2
    caller.send(topic, b"later", kind="DELAY", delivery_timestamp={"seconds": due_s})
    recalled = caller.send(topic, b"never", kind="DELAY", delivery_timestamp={"seconds": due_s}).entries[0]
    answer = caller.call("RecallMessage", topic={"name": topic}, recall_handle=recalled.recall_handle)
    assert (answer.status.code, answer.message_id) == (OK, recalled.message_id)
    (received,) = until_received(caller, group, topic, 1)
    assert received.body == b"later"
    assert received.system_properties.message_type == messages.MESSAGE_TYPES["DELAY"]
    assert received.system_properties.delivery_timestamp.seconds == due_s
    assert time.time() >= due_s - 0.2
    assert caller.receive(group, topic) == []


def end(caller: GrpcCaller, topic: str, entry: Any, resolution: str) -> tuple[str, str]:  # noqa: ANN401
    return caller.code(
        "EndTransaction",
        topic={"name": topic},
        message_id=entry.message_id,
        transaction_id=entry.transaction_id,
        resolution=resolution,
        source="SOURCE_CLIENT",
    )


def test_deliveries_in_order_are_counted(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    """After too many of them the message goes to the dead letters, and the next one comes."""
    made(broker, topic, "FIFO", consumeMessageOrderly=True, retryMaxTimes=1)
    caller.consume(group, topic)
    for body in (b"bad", b"good"):
        caller.send(topic, body, kind="FIFO", message_group="one")
    for attempt in (1, 2):
        (received,) = caller.receive(group, topic, 1)
        own = received.system_properties
        assert (received.body, own.delivery_attempt) == (b"bad", attempt)
        names = {"group": {"name": group}, "topic": {"name": topic}, "receipt_handle": own.receipt_handle}
        code = caller.code("ChangeInvisibleDuration", **names, invisible_duration={"nanos": 1})
        assert code == ("OK", "OK")
    (received,) = until_received(caller, group, topic, 1)
    assert (received.body, received.system_properties.delivery_attempt) == (b"good", 1)
    with broker.connect() as connection:
        ext = {"topic": f"%DLQ%{group}", "queueId": "0"}
        assert connection.ask(RequestCode.GET_MAX_OFFSET, ext).ext["offset"] == "1"


def test_a_transaction_is_committed_or_rolled_back(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    made(broker, topic, "TRANSACTION")
    caller.consume(group, topic)
    kept = caller.send(topic, b"kept", kind="TRANSACTION").entries[0]
    gone = caller.send(topic, b"rolled back", kind="TRANSACTION").entries[0]
    assert kept.transaction_id.startswith(kept.message_id + "-")
    assert end(caller, topic, gone, "ROLLBACK") == ("OK", "OK")
    assert end(caller, topic, kept, "COMMIT") == ("OK", "OK")
    (received,) = until_received(caller, group, topic, 1)
    assert (received.body, received.system_properties.message_type) == (b"kept", 4)
    assert end(caller, topic, kept, "COMMIT") == ("OK", "OK")


def half_of(connection: ClientSocket, topic: str) -> Any:  # noqa: ANN401
    """The open transaction of a topic, as the broker lists it."""
    answer = connection.ask(RequestCode.LIST_HALF_MESSAGES, {"group": topic})
    [found] = json.loads(answer.body)["messages"]
    return found


def test_a_producer_is_asked_about_an_orphaned_transaction(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    made(broker, topic, "TRANSACTION")
    caller.consume(group, topic)
    with GrpcCaller(broker.address) as producer:
        ended = producer.produce(topic)
        ended.send(settings={"client_type": "PRODUCER", "publishing": {"topics": [{"name": "no name"}]}})
        with pytest.raises(grpc.RpcError, match="illegal characters"):
            ended.receive()
        producer.send(topic, b"orphan", kind="TRANSACTION", tag="t")
        with broker.connect() as connection:
            due_ms = half_of(connection, topic)["nextCheckMs"]
            eventually(lambda: half_of(connection, topic)["nextCheckMs"] > due_ms + 1000, what="some rounds")
        stream = producer.produce(topic)
        asked = stream.receive().recover_orphaned_transaction_command
        assert (asked.message.body, asked.message.system_properties.tag) == (b"orphan", "t")
        assert asked.message.user_properties["TRANSACTION_CHECK_TIMES"] == "1"
        answer = producer.call(
            "EndTransaction",
            topic={"name": topic},
            message_id=asked.message.system_properties.message_id,
            transaction_id=asked.transaction_id,
            resolution="COMMIT",
            source="SOURCE_SERVER_CHECK",
        )
        assert answer.status.code == OK
        (received,) = until_received(caller, group, topic, 1)
        assert received.body == b"orphan"


@pytest.mark.parametrize(
    ("kind", "expression", "expected"), [("TAG", "a || c", [b"0", b"2"]), ("SQL", "n > 0 AND n < 2", [b"1"])]
)
def test_filters(
    broker: BrokerProcess,
    caller: GrpcCaller,
    topic: str,
    group: str,
    kind: str,
    expression: str,
    expected: list[bytes],
) -> None:
    made(broker, topic)
    caller.consume(group, topic)
    for n, tag in enumerate("abc"):
        caller.send(topic, b"%d" % n, tag=tag, user={"n": str(n)})
    chosen = {"filter_expression": {"type": kind, "expression": expression}}
    found: list[Any] = []
    for _ in range(5):
        found += caller.receive(group, topic, **chosen)
        if len(found) == len(expected):
            break
    assert bodies(found) == expected


def test_a_priority_is_kept_and_chooses_the_queue(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    made(broker, topic, "PRIORITY")
    caller.consume(group, topic)
    caller.send(topic, b"p", kind="PRIORITY", priority=2)
    (received,) = caller.receive(group, topic)
    assert (received.system_properties.priority, received.system_properties.queue_id) == (2, 2)


def test_a_receive_waits_for_a_message(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    made(broker, topic)
    caller.consume(group, topic)
    began = time.monotonic()
    assert caller.code("ReceiveMessage", **_receive(group, topic)) == ("MESSAGE_NOT_FOUND", "no new message")
    assert time.monotonic() - began >= 4.5


def _receive(group: str, topic: str) -> dict[str, Any]:
    from tests.support.grpc_caller import receive_fields  # noqa: PLC0415

    return receive_fields(group, topic)


def test_a_cancelled_receive_takes_nothing(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    made(broker, topic)
    caller.consume(group, topic)
    request, _ = messages.method_classes("ReceiveMessage")
    stub = caller.channel.unary_stream(
        f"/{messages.SERVICE}/ReceiveMessage", request_serializer=request.SerializeToString
    )
    held = stub(request(**_receive(group, topic)), metadata=caller.metadata, timeout=20)
    assert not held.done()
    time.sleep(0.3)
    held.cancel()
    time.sleep(0.3)
    caller.send(topic, b"kept")
    (received,) = caller.receive(group, topic)
    assert (received.body, received.system_properties.delivery_attempt) == (b"kept", 1)


def test_large_bodies(broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str) -> None:
    made(broker, topic)
    caller.consume(group, topic)
    body = bytes(range(256)) * 16384
    assert caller.send(topic, body).status.code == OK
    assert caller.send(topic, body + b"x").status.code == messages.CODES["MESSAGE_BODY_TOO_LARGE"]
    (received,) = until_received(caller, group, topic, 1)
    assert received.body == body


def test_clients_of_remoting_and_grpc_share_messages(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    made(broker, topic)
    caller.consume(group, topic)
    with broker.connect() as connection:
        properties = "TAGS\x01a\x02KEYS\x01k\x02UNIQ_KEY\x01ABC\x02own\x011\x02"
        packed = zlib.compress(b"packed by remoting" * 10)
        ext = send_ext(topic, 1, i=properties, f="1")
        assert connection.ask(RequestCode.SEND_MESSAGE_V2, ext, packed).code == 0
        (received,) = until_received(caller, group, topic, 1)
        assert received.body == b"packed by remoting" * 10
        assert dict(received.user_properties) == {"own": "1"}
        assert received.system_properties.message_id == "ABC"
        caller.send(topic, b"from grpc", tag="b")
        pulled = connection.ask(RequestCode.PULL_MESSAGE, pull_ext(topic, queue_id=0))
        assert [record.body for record in records(pulled.body)] == [b"from grpc"]


def test_offsets_and_pulls(broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str) -> None:
    made(broker, topic)
    caller.send(topic, b"0", b"1", b"2")
    queue = {"topic": {"name": topic}, "id": 0}
    names = {"group": {"name": group}, "message_queue": queue}
    pulled = caller.call("PullMessage", offset=1, batch_size=8, **names)
    assert [each.message.body for each in pulled if each.HasField("message")] == [b"1", b"2"]
    assert pulled[-1].next_offset == 3
    assert caller.code("GetOffset", **names)[0] == "OFFSET_NOT_FOUND"
    assert caller.code("UpdateOffset", offset=2, **names) == ("OK", "OK")
    assert caller.code("UpdateOffset", offset=-1, **names)[0] == "ILLEGAL_OFFSET"
    for queue_id in (-1, 1 << 16):
        other = {"topic": {"name": topic}, "id": queue_id}
        for method in ("PullMessage", "UpdateOffset", "GetOffset", "QueryOffset"):
            fields = {"message_queue": other} | (
                {} if method == "QueryOffset" else {"group": {"name": group}}
            )
            assert caller.code(method, **fields)[0] == "BAD_REQUEST", method
    assert caller.call("GetOffset", **names).offset == 2
    assert caller.call("QueryOffset", message_queue=queue, query_offset_policy="END").offset == 3
    assert caller.call("QueryOffset", message_queue=queue, query_offset_policy="BEGINNING").offset == 0


def test_a_pull_takes_batches_apart(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    """Clients of gRPC know no inner batches. One that asks for a message within a batch gets those from there on."""
    with broker.connect() as connection:
        attributes = {"attributes": "+queue.type=BatchCQ"}
        assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, 1) | attributes).code == 0
        create_group(connection, group)
        items = b"".join(item(b"%d" % n, b"TAGS\x01t%d\x02UNIQ_KEY\x01u%d\x02" % (n, n)) for n in range(3))
        ext = send_ext(topic, i="UNIQ_KEY\x01all\x02") | {"m": "true"}
        assert connection.ask(RequestCode.SEND_BATCH_MESSAGE, ext, items).code == 0
    caller.send(topic, b"alone")
    names = {"group": {"name": group}, "message_queue": {"topic": {"name": topic}, "id": 0}}
    pulled = caller.call("PullMessage", offset=1, batch_size=32, **names)
    found = [each.message for each in pulled if each.HasField("message")]
    assert [(each.body, each.system_properties.queue_offset) for each in found] == [
        (b"1", 1), (b"2", 2), (b"alone", 3),
    ]  # fmt: skip
    assert (found[0].system_properties.tag, found[0].system_properties.message_id) == ("t1", "u1")
    assert pulled[-1].next_offset == 4
    caller.consume(group, topic)
    refused = caller.code("ReceiveMessage", **receive_fields(group, topic, 32))
    assert (refused[0], "can be pulled, not popped" in refused[1]) == ("FORBIDDEN", True)


def test_a_digest_is_checked(broker: BrokerProcess, caller: GrpcCaller, topic: str) -> None:
    made(broker, topic)
    wrong = message(topic, b"body", body_digest={"type": "MD5", "checksum": "00"})
    assert caller.code("SendMessage", messages=[wrong])[0] == "MESSAGE_CORRUPTED"
    right = message(topic, b"body", body_digest={"type": "CRC32", "checksum": f"{zlib.crc32(b'body'):X}"})
    assert caller.code("SendMessage", messages=[right]) == ("OK", "OK")


def test_numbers_beyond_those_of_the_protocol_do_not_fail_an_answer(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    """Clients of remoting choose them; they would fail the messages beside them as well."""
    made(broker, topic)
    with broker.connect() as connection:
        for body, times in ((b"odd", 0x7FFFFFFF), (b"plain", 0)):
            ext = send_ext(topic, j=str(times))
            assert connection.ask(RequestCode.SEND_MESSAGE_V2, ext, body).code == 0
    queue = {"topic": {"name": topic}, "id": 0}
    pulled = caller.call("PullMessage", group={"name": group}, message_queue=queue, batch_size=32)
    assert [each.message.body for each in pulled if each.HasField("message")] == [b"odd", b"plain"]


def test_bodies_that_inflate_much_come_in_several_answers(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    """An answer of 256 KiB could take 256 MiB."""
    made(broker, topic)
    caller.consume(group, topic)
    body = bytes(6 << 20)
    flags = str(1 | 3 << 8)  # compressed with zlib
    with broker.connect() as connection:
        for _ in range(6):
            ext = send_ext(topic, f=flags)
            assert connection.ask(RequestCode.SEND_MESSAGE_V2, ext, zlib.compress(body)).code == 0
    first = caller.receive(group, topic)
    assert 0 < len(first) <= 3
    assert all(each.body == body for each in first)
    caller.ack(group, topic, *first)
    rest = until_received(caller, group, topic, 6 - len(first))
    assert [len(each.body) for each in rest] == [len(body)] * (6 - len(first))
    pulled = caller.call(
        "PullMessage", group={"name": group}, message_queue={"topic": {"name": topic}, "id": 0}, batch_size=32
    )
    offsets = [each.message.system_properties.queue_offset for each in pulled if each.HasField("message")]
    assert offsets == [0, 1, 2]
    assert pulled[-1].next_offset == 3


def test_a_client_that_ended_may_come_back_on_another_stream(
    broker: BrokerProcess, caller: GrpcCaller, topic: str, group: str
) -> None:
    """It leaves its group with its connection, as at the first time."""
    made(broker, topic)
    waiting = caller.telemetry()
    caller.consume(group, topic)
    assert caller.code("NotifyClientTermination", group={"name": group})[0] == "OK"
    subscription = {"group": {"name": group}, "subscriptions": []}
    waiting.send(settings={"client_type": "SIMPLE_CONSUMER", "subscription": subscription})
    assert waiting.receive().status.code == OK
    with broker.connect() as connection:

        def members() -> int:
            return connection.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}).code

        assert members() == 0
        caller.channel.close()
        eventually(lambda: members() != 0)


def test_a_route_without_an_address_has_that_of_its_connection(broker: BrokerProcess, topic: str) -> None:
    """A client may have several."""
    made(broker, topic)
    assert broker.name_server is not None
    with GrpcCaller(broker.address, "two@1") as one, GrpcCaller(broker.name_server, "two@1") as other:
        for caller, port in ((one, broker.address[1]), (other, broker.name_server[1])):
            queues = caller.call("QueryRoute", topic={"name": topic}).message_queues
            assert {queue.broker.endpoints.addresses[0].port for queue in queues} == {port}
