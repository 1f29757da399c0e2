"""Plain sends take the fast path, and are answered and stored as by the complete path. What is not plain, or not
allowed any more, goes there."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firearrow._native.store.log.record import Record, decode
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.grpc import messages
from firearrow.broker.grpc.message_codec import NOT_SETTABLE
from tests.auth.secured import SignedSocket, create_user, grant, options, revoke_all
from tests.support.broker_process import WAYS, BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.grpc_caller import GrpcCaller, create_group, create_topic, message, signature
from tests.support.requests import pull_ext

OK = messages.CODES["OK"]
TOPICS = {"plain": "NORMAL", "ordered": "FIFO", "delayed": "DELAY"}
QUEUES = 4


def plain_sends(connection: ClientSocket) -> int:
    """How many took the fast path."""
    table = json.loads(connection.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    return int(table.get("fastPath_gRPC", "sends: 0 fast").split()[1])


def serialized(**fields: Any) -> bytes:  # noqa: ANN401
    request, _ = messages.method_classes("SendMessage")
    return request(**fields).SerializeToString()  # type: ignore[no-any-return]


class Both:
    """A broker with the fast path and one without; the same calls are made to both."""

    def __init__(self, stack: ExitStack, folder: Path, *settings: str) -> None:
        words = tuple(word for setting in settings for word in ("--set", setting))
        self.brokers = [
            stack.enter_context(BrokerProcess(folder / name, *words, way=WAYS[name]))
            for name in ("engine", "complete")
        ]
        self.callers = [stack.enter_context(GrpcCaller(broker.address, "both@1")) for broker in self.brokers]
        self.sockets = [stack.enter_context(broker.connect()) for broker in self.brokers]
        for socket in self.sockets:
            for topic, kind in TOPICS.items():
                create_topic(socket, topic, kind, QUEUES)
        self.pulled = 0

    def send(self, data: bytes) -> tuple[bytes | str, bytes | str]:
        """The answers, or the statuses of gRPC, of both."""
        found = []
        for caller in self.callers:
            stub = caller.channel.unary_unary(f"/{messages.SERVICE}/SendMessage")
            try:
                found.append(stub(data, metadata=caller.metadata, timeout=60))
            except grpc.RpcError as error:
                found.append(f"{error.code()} {error.details()}")
        return found[0], found[1]

    def stored(self) -> list[list[tuple[object, ...]]]:
        """What the brokers have stored since the last call, without what their clocks and addresses decide."""
        return [
            [as_stored(record) for topic in TOPICS for record in records(socket, topic)]
            for socket in self.sockets
        ]


def records(socket: ClientSocket, topic: str) -> Iterator[Record]:
    for queue_id in range(QUEUES):
        at = 0
        while body := socket.ask(RequestCode.PULL_MESSAGE, pull_ext(topic, at, queue_id)).body:
            while body:
                size = int.from_bytes(body[:4], "big")
                record = decode(memoryview(body)[:size], False)
                yield record
                at, body = record.queue_offset + 1, body[size:]


def as_stored(record: Record) -> tuple[object, ...]:
    own = [pair for pair in record.properties.items() if pair[0] in NOT_SETTABLE or pair[0] == "PGROUP"]
    user = sorted(pair for pair in record.properties.items() if pair not in own)
    stated = "BORN_TIMESTAMP" in record.properties and record.born_timestamp < 2_000_000_000
    return (
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.body,
        [pair for pair in own if stated or pair[0] != "BORN_TIMESTAMP"],
        user,
        record.flag,
        record.sys_flag,
        record.born_timestamp if stated else None,
        record.born_host[:-4],
        record.reconsume_times,
        record.prepared_offset,
    )


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with ExitStack() as stack:
        found = Both(stack, tmp_path_factory.mktemp("plain"), "maxMessageSize=4096")
        yield found
        for broker in found.brokers:
            assert "Traceback" not in broker.log.read_text()


# ---- generated requests ----

PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=12)
ANY = st.text(st.characters(codec="utf-8"), max_size=12)
TEXT = st.one_of(
    PRINTABLE, PRINTABLE, ANY, st.sampled_from(["", " ", "a b", "\u00a0", "é", "\x85", " a", "a|b"])
)
NAMES = st.one_of(PRINTABLE, PRINTABLE, PRINTABLE, ANY, st.sampled_from(sorted(NOT_SETTABLE)))
PLAIN = st.fixed_dictionaries(
    {"message_id": PRINTABLE, "message_type": st.just("NORMAL")},
    optional={
        "tag": TEXT,
        "keys": st.lists(TEXT, max_size=3),
        "body_encoding": st.sampled_from(["IDENTITY", "GZIP", "ENCODING_UNSPECIFIED"]),
        "born_timestamp": st.fixed_dictionaries(
            {
                "seconds": st.sampled_from([0, 1, 1_700_000]),
                "nanos": st.sampled_from([0, 5_999_999, 999_999_999]),
            }
        ),
        "born_host": TEXT,
        "queue_id": st.integers(0, 9),
        "trace_context": TEXT,
    },
)
SPECIAL = st.fixed_dictionaries(
    {"message_id": TEXT, "message_type": st.sampled_from(["NORMAL", "FIFO", "PRIORITY", "DELAY"])},
    optional={
        "tag": TEXT,
        "message_group": TEXT,
        "priority": st.integers(-1, 3),
        "delivery_attempt": st.integers(0, 3),
        "body_digest": st.fixed_dictionaries(
            {
                "type": st.sampled_from(["CRC32", "MD5"]),
                "checksum": st.sampled_from(["", "0", "D41D8CD98F00B204"]),
            }
        ),
        "born_timestamp": st.fixed_dictionaries({"seconds": st.integers(-2, 2), "nanos": st.integers(-3, 3)}),
        "store_host": TEXT,
    },
)


def requests(own: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "topic": st.fixed_dictionaries(
                {
                    "name": st.sampled_from(
                        ["plain", "plain", "plain", "delayed", "ordered", "none", "%DLQ%plain", ""]
                    )
                },
                optional={"resource_namespace": st.sampled_from(["", "space"])},
            ),
            "user_properties": st.dictionaries(NAMES, TEXT, max_size=3),
            "system_properties": own,
            "body": st.one_of(
                st.binary(min_size=1, max_size=40), st.sampled_from([b"", bytes(4096), bytes(4097)])
            ),
        }
    )


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(requests(PLAIN), requests(PLAIN), requests(PLAIN), requests(SPECIAL)),
        min_size=1,
        max_size=2,
    ),
    st.sampled_from([b"", b"", b"", b"\x10\x01", b"\x1a\x00", b"\x0a", b"\x0a\x00"]),
)
def test_both_paths_answer_alike(both: Both, made: list[dict[str, Any]], more: bytes) -> None:
    one, other = both.send(serialized(messages=made) + more)
    assert one == other


def test_both_paths_have_stored_the_same(both: Both) -> None:
    """Of what the test before has sent, and of some more."""
    both.send(serialized(messages=[message("plain", b"first")]))  # after which the client is known
    before = plain_sends(both.sockets[0])
    for n in range(20):
        system = {
            "message_id": f"M{n}",
            "message_type": "NORMAL",
            "keys": ["a", "b"][: n % 3],
            "trace_context": "t",
        }
        made = {
            "topic": {"name": "plain"},
            "body": b"x" * (n + 1),
            "user_properties": {"ü": "ö", "n": str(n)} if n % 2 else {},
            "system_properties": system | ({"tag": "t"} if n % 2 else {}),
        }
        one, other = both.send(serialized(messages=[made]))
        assert one == other
        _, response = messages.method_classes("SendMessage")
        assert response.FromString(one).status.code == OK
    assert plain_sends(both.sockets[0]) == before + 20
    assert plain_sends(both.sockets[1]) == 0
    one_stored, other_stored = both.stored()
    assert len(one_stored) >= 20
    assert one_stored == other_stored


def test_an_answer_without_copies_is_the_same(tmp_path: Path) -> None:
    """Messages are stored, but too few slaves have them."""
    settings = ("brokerRole=SYNC_MASTER", "inSyncReplicas=2", "minInSyncReplicas=1", "syncFlushTimeout=200")
    with ExitStack() as stack:
        both = Both(stack, tmp_path, *settings)
        for n in range(3):
            one, other = both.send(serialized(messages=[message("plain", b"x", message_id=f"M{n}")]))
            assert one == other
            _, response = messages.method_classes("SendMessage")
            assert response.FromString(one).status.code == messages.CODES["HA_NOT_AVAILABLE"]
        assert plain_sends(both.sockets[0]) == 2


# ---- who may send ----


@pytest.fixture
def one(both: Both) -> tuple[BrokerProcess, ClientSocket]:
    return both.brokers[0], both.sockets[0]


def test_a_client_that_has_ended_registers_again(one: tuple[BrokerProcess, ClientSocket]) -> None:
    broker, socket = one
    with GrpcCaller(broker.address) as caller:
        caller.produce("plain")
        before = plain_sends(socket)
        for expected in (0, 1, 2):
            assert caller.send("plain", b"x").status.code == OK
            assert plain_sends(socket) == before + expected
        assert caller.call("NotifyClientTermination").status.code == OK
        assert caller.send("plain", b"x").status.code == OK
        assert plain_sends(socket) == before + 2


def test_a_topic_that_changes_its_type_refuses_plain_sends(one: tuple[BrokerProcess, ClientSocket]) -> None:
    broker, socket = one
    create_topic(socket, "changes")
    with GrpcCaller(broker.address) as caller:
        for _ in range(2):
            assert caller.send("changes", b"x").status.code == OK
        socket.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "changes"})
        create_topic(socket, "changes", "FIFO")
        refused = caller.send("changes", b"x")
        assert refused.status.code == messages.CODES["MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"]


def test_plain_sends_reach_a_receiver_that_waits(one: tuple[BrokerProcess, ClientSocket]) -> None:
    broker, socket = one
    create_topic(socket, "waited")
    create_group(socket, "waited-g")
    with GrpcCaller(broker.address) as producer, GrpcCaller(broker.address) as consumer:
        consumer.consume("waited-g", "waited")
        producer.send("waited", b"first")
        assert [each.body for each in consumer.receive("waited-g", "waited")] == [b"first"]
        producer.send("waited", b"second")
        assert [each.body for each in consumer.receive("waited-g", "waited")] == [b"second"]


def test_users_and_rules_count_for_each_plain_send(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store", *options(), way=WAYS["engine"]) as broker:
        with SignedSocket(broker.address) as root:
            for topic in ("mine", "other"):
                create_topic(root, topic)
            create_user(root, "alice", "first-word")
            grant(root, "alice", "Topic:mine", "Pub")
            with GrpcCaller(broker.address, "alice@1", signature("alice", "first-word")) as alice:
                before = plain_sends(root)
                for _ in range(4):
                    assert alice.send("mine", b"x").status.code == OK
                assert plain_sends(root) == before + 3
                assert alice.send("other", b"x").status.code == messages.CODES["UNAUTHORIZED"]
                revoke_all(root, "alice")
                assert alice.send("mine", b"x").status.code == messages.CODES["UNAUTHORIZED"]
                grant(root, "alice", "Topic:mine", "Pub")
                assert alice.send("mine", b"x").status.code == OK
                changed = json.dumps({"username": "alice", "password": "second-word"}).encode()
                assert root.ask(RequestCode.AUTH_UPDATE_USER, {"username": "alice"}, changed).code == 0
                assert alice.send("mine", b"x").status.code == messages.CODES["UNAUTHORIZED"]
        assert broker.stop() == 0
