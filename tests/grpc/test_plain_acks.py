"""Plain acknowledgements take the fast path, and are answered and stored as by the complete path. What is not plain, or
not allowed any more, goes there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow._native.protocol.name_rules import TIMER_TOPIC
from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.grpc import acknowledging, messages
from tests.auth.secured import SignedSocket, create_user, grant, options, revoke_all
from tests.support.broker_process import WAYS, BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.grpc_caller import GrpcCaller, create_group, create_topic, renewed, signature

OK = messages.CODES["OK"]


def plain_acks(connection: ClientSocket) -> int:
    """How many took the fast path."""
    table = json.loads(connection.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    found = re.search(r"acks: (\d+) fast", table.get("fastPath_gRPC", ""))
    return 0 if found is None else int(found[1])


def received(caller: GrpcCaller, count: int, topic: str = "T", **fields: Any) -> list[Any]:  # noqa: ANN401
    """So many messages of one queue, which are sent before; in the order of their offsets."""
    assert caller.send(topic, *(b"%d" % n for n in range(count))).status.code == OK
    found: list[Any] = []
    while len(found) < count:
        found += caller.receive("G", topic, **fields)
    return found


def code(caller: GrpcCaller, message: Any, handle: str = "", topic: str = "T") -> str:  # noqa: ANN401
    """Of the one entry, as of the answer."""
    own = message.system_properties
    entry = {"message_id": own.message_id, "receipt_handle": handle or own.receipt_handle}
    answer = caller.call("AckMessage", group={"name": "G"}, topic={"name": topic}, entries=[entry])
    [result] = answer.entries
    assert answer.status.code == result.status.code
    assert (result.message_id, result.receipt_handle) == (entry["message_id"], entry["receipt_handle"])
    return next(name for name, number in messages.CODES.items() if number == result.status.code)


def acknowledgements(root: Path) -> list[Record]:
    with MessageStore.open(root) as store:
        entries = store.reader.entries(TIMER_TOPIC, 0, 0, 1000)
        found = [decode(store.reader.record_at(entry.physical_offset)) for entry in entries]
    return [record for record in found if record.properties["TAGS"] == "ack"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("acks") / "store", way=WAYS["engine"]) as found:
        with found.connect() as socket:
            create_topic(socket, "T", queues=1)
            create_group(socket, "G")
        yield found
        assert "Traceback" not in found.log.read_text()


@pytest.fixture
def socket(broker: BrokerProcess) -> Iterator[ClientSocket]:
    with broker.connect() as found:
        yield found


@pytest.fixture
def caller(broker: BrokerProcess) -> Iterator[GrpcCaller]:
    with GrpcCaller(broker.address) as found:
        found.consume("G", "T")
        yield found


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_they_are_answered_and_stored_as_by_the_complete_path(tmp_path: Path, flush: str) -> None:
    with BrokerProcess(tmp_path / "store", "--set", f"flushDiskType={flush}", way=WAYS["engine"]) as broker:
        with broker.connect() as socket, GrpcCaller(broker.address) as caller:
            create_topic(socket, "T", queues=1)
            create_group(socket, "G")
            caller.consume("G", "T")
            found = received(caller, 6)
            own = [message.system_properties for message in found]
            request, response = messages.method_classes("AckMessage")
            stub = caller.channel.unary_unary(f"/{messages.SERVICE}/AckMessage")
            for each in own:
                entry = {"message_id": each.message_id, "receipt_handle": each.receipt_handle}
                data = request(group={"name": "G"}, topic={"name": "T"}, entries=[entry]).SerializeToString()
                status = {"code": "OK", "message": "OK"}
                expected = response(status=status, entries=[entry | {"status": status}]).SerializeToString()
                assert stub(data, metadata=caller.metadata, timeout=60) == expected
            popped = len({each.receipt_handle.split(" ")[0] for each in own})
            assert plain_acks(socket) == len(own) - popped, (
                "the first one of each check point is no plain one"
            )
        assert broker.stop() == 0
    stored = acknowledgements(broker.store)
    assert [json.loads(record.body)["ao"] for record in stored] == [each.queue_offset for each in own]
    first = stored[0]
    for record in stored[popped:]:
        offset = json.loads(record.body)["ao"]
        if json.loads(record.body)["so"] == json.loads(first.body)["so"]:
            assert record.body == first.body.replace(b'"ao":0', b'"ao":%d' % offset)
            assert record.properties_bytes == first.properties_bytes.replace(b"T@0@0@", b"T@0@%d@" % offset)


def test_what_is_not_plain_is_answered_as_before(
    broker: BrokerProcess, socket: ClientSocket, caller: GrpcCaller
) -> None:
    one, *found = received(caller, 12)
    assert code(caller, one) == "OK"
    words = found[0].system_properties.receipt_handle.split(" ")
    before = plain_acks(socket)
    wrong = {
        (7, "1000000"): "INVALID_RECEIPT_HANDLE",
        (7, "x"): "INVALID_RECEIPT_HANDLE",
        (7, "9" * 19): "INVALID_RECEIPT_HANDLE",
        (2, "0"): "INVALID_RECEIPT_HANDLE",
        (3, "99"): "INTERNAL_SERVER_ERROR",
        (4, "5"): "INVALID_RECEIPT_HANDLE",
        (6, "7"): "INTERNAL_SERVER_ERROR",
    }
    for (at, word), expected in wrong.items():
        assert code(caller, found[0], " ".join([*words[:at], word, *words[at + 1 :]])) == expected, (at, word)
    assert code(caller, found[0], " ".join(words[:5])) == "INVALID_RECEIPT_HANDLE"
    assert code(caller, found[0], " ".join(words[:8])) == "OK", "Apache's handles have no log offset"
    assert caller.ack("G", "T", *found[1:4]).status.code == OK, "several entries"
    assert plain_acks(socket) == before
    assert code(caller, found[4]) == "OK"
    assert plain_acks(socket) >= before
    with GrpcCaller(broker.address) as stranger:  # its first call is checked
        assert code(stranger, found[5]) == "OK"


def test_names_that_only_clients_of_remoting_may_use_are_refused(
    socket: ClientSocket, caller: GrpcCaller
) -> None:
    """Also after one of them has acknowledged a message of the same check point."""
    assert caller.ack("G", "T", *received(caller, 1)).status.code == OK  # the client is known
    group, [message] = "CID_RMQ_SYS_G", received(caller, 1)
    own = message.system_properties
    ext = {"consumerGroup": group, "topic": "T", "queueId": "0", "offset": str(own.queue_offset)}
    assert socket.ask(RequestCode.ACK_MESSAGE, ext | {"extraInfo": own.receipt_handle}).code == 0
    entry = {"message_id": own.message_id, "receipt_handle": own.receipt_handle}
    for _ in range(2):
        refused = caller.call("AckMessage", group={"name": group}, topic={"name": "T"}, entries=[entry])
        assert refused.status.code == messages.CODES["ILLEGAL_CONSUMER_GROUP"]


def test_messages_that_are_renewed_end_with_their_acknowledgement(
    socket: ClientSocket, caller: GrpcCaller
) -> None:
    found = received(caller, 8, auto_renew=True)
    assert renewed(socket) == len(found)
    before = plain_acks(socket)
    for message in found:
        assert code(caller, message) == "OK"
    assert plain_acks(socket) > before
    assert renewed(socket) == 0


def test_a_topic_that_was_deleted_is_not_known(socket: ClientSocket, caller: GrpcCaller) -> None:
    create_topic(socket, "deleted", queues=1)
    one, other, third = received(caller, 3, "deleted")
    assert [code(caller, each, topic="deleted") for each in (one, other)] == ["OK", "OK"]
    socket.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "deleted"})
    assert code(caller, third, topic="deleted") == "TOPIC_NOT_FOUND"


def test_users_and_rules_count_for_each(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store", *options(), way=WAYS["engine"]) as broker:
        with SignedSocket(broker.address) as root:
            create_topic(root, "T", queues=1)
            create_group(root, "G")
            create_user(root, "alice", "first-word")
            grant(root, "alice", "Topic:T", "Pub", "Sub")
            grant(root, "alice", "Group:G", "Sub")
            with GrpcCaller(broker.address, "alice@1", signature("alice", "first-word")) as alice:
                alice.consume("G", "T")
                found = received(alice, 12)
                assert [code(alice, each) for each in found[:6]] == ["OK"] * 6
                assert plain_acks(root) > 0
                revoke_all(root, "alice")
                assert alice.ack("G", "T", found[6]).status.code == messages.CODES["UNAUTHORIZED"]
                grant(root, "alice", "Topic:T", "Pub")
                grant(root, "alice", "Group:G", "Sub")
                assert alice.ack("G", "T", found[6]).status.code == messages.CODES["UNAUTHORIZED"]
                grant(root, "alice", "Topic:T", "Sub")
                assert [code(alice, each) for each in found[6:]] == ["OK"] * 6
        assert broker.stop() == 0


def test_one_that_was_not_stored_states_it() -> None:
    entry = {"message_id": "M", "receipt_handle": "H", "status": {"code": "OK", "message": "OK"}}
    _, response = messages.method_classes("AckMessage")
    reply = response(status={"code": "OK", "message": "OK"}, entries=[entry]).SerializeToString()
    found = response.FromString(acknowledging._failed(reply, 14, "the disk is full"))
    assert found.status.code == messages.CODES["INTERNAL_SERVER_ERROR"]
    [result] = found.entries
    assert (result.message_id, result.receipt_handle) == ("M", "H")
    assert (result.status.code, result.status.message) == (found.status.code, "the disk is full")
    late = response.FromString(acknowledging._failed(reply, 10, None))
    assert late.entries[0].status.code == messages.CODES["MASTER_PERSISTENCE_TIMEOUT"]
