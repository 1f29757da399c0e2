"""Quotas at a real broker: rates, delays, refusals, connections; on the fast and the complete path."""

import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.local_broker import LocalBrokerError
from tests.auth.secured import SignedSocket, create_user, grant, revoke_all, secured
from tests.quotas.limited import (
    BYTES_IN,
    BYTES_OUT,
    FLOW_CONTROL,
    IN,
    OUT,
    SYSTEM_BUSY,
    clear_quotas,
    make_topic,
    pull,
    quotas_of,
    rate_of,
    send,
    set_quota,
)
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import SUBSCRIPTION, SUSPEND, pull_ext, send_ext

WAYS = {
    "fast": ("fastPath=true", "fastSockets=true"),
    "complete": ("fastPath=false", "fastSockets=true"),
    "transports": ("fastPath=true", "fastSockets=false", "flushDiskType=SYNC_FLUSH"),
}
NEAR = 0.15
NO_PERMISSION = 16


LONG_WAYS = [pytest.param(way, marks=pytest.mark.long) for way in ("complete", "transports")]
WAYS_WITH_QUOTAS = ["fast", "complete", LONG_WAYS[1]]
"""Quotas are in the fast path and in the complete one; other transports and a sync change nothing of them."""
in_one_way = pytest.mark.parametrize("broker", ["fast", *LONG_WAYS], indirect=True)
"""What both paths do by the same code: requests without a fast path, delays of a connection, names of entities."""


@pytest.fixture(scope="module", params=WAYS_WITH_QUOTAS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("quotas") / "store", way=WAYS[request.param]) as started:
        yield started


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[ClientSocket]:
    """Topic T is new, and no quota is left by the test before or for the next one."""
    with ClientSocket(broker.address) as opened:
        make_topic(opened)
        yield opened
    with ClientSocket(broker.address) as cleaner:
        clear_quotas(cleaner)
        assert cleaner.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0


def test_messages_sent(connection: ClientSocket) -> None:
    assert set_quota(connection, "topic", "T", **{IN: 50}).code == 0
    rate = rate_of(lambda: send(connection), limit=50)
    assert rate == pytest.approx(50, rel=NEAR)
    row = quotas_of(connection)["topic", "T"]
    assert row["quotas"] == {IN: 50}
    assert row["delayed"] > 50
    assert row["refused"] == 0
    assert row["used"][IN] == pytest.approx(50, abs=5)
    assert set_quota(connection, "topic", "T", **{IN: None}).code == 0
    assert rate_of(lambda: send(connection), for_s=0.5) > 300
    assert quotas_of(connection) == {}


def test_bytes_sent(connection: ClientSocket) -> None:
    assert set_quota(connection, "topic", "*", **{BYTES_IN: 100_000}).code == 0
    rate = rate_of(lambda: send(connection, b"x" * 2000), limit=50)
    assert rate * 2000 == pytest.approx(100_000, rel=NEAR)
    assert quotas_of(connection)["topic", "T"]["byDefault"]


def test_batches_count_their_messages(connection: ClientSocket) -> None:
    item = (24).to_bytes(4, "big") + bytes(12) + (2).to_bytes(4, "big") + b"ab" + bytes(2)
    assert set_quota(connection, "topic", "T", **{IN: 100}).code == 0

    def batch() -> None:
        answer = connection.ask(RequestCode.SEND_BATCH_MESSAGE, send_ext("T", m="true"), 20 * item)
        assert answer.code == 0, answer.remark

    assert rate_of(batch, limit=5) == pytest.approx(5, rel=NEAR)


def test_a_large_debt_is_refused_late(broker: BrokerProcess, connection: ClientSocket) -> None:
    assert set_quota(connection, "topic", "T", **{BYTES_IN: 1000}).code == 0
    with ClientSocket(broker.address) as other:
        assert send(connection, b"x" * 4000).code == 0
        since = time.monotonic()
        answer = send(other, b"y")
        assert answer.code == SYSTEM_BUSY
        assert answer.remark == "the topic T is over its quota bytesInPerSecond=1000: send more slowly"
        assert 0.8 < time.monotonic() - since < 2
        time.sleep(1.5)
        assert send(other, b"z").code == 0
    stored = connection.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
    assert stored.ext["offset"] == "2", "what is refused is not stored"


def test_pipelined_sends_are_not_read(connection: ClientSocket) -> None:
    """All are stored in the end, in the time that the quota gives; nothing queues up in the broker."""
    assert set_quota(connection, "topic", "T", **{IN: 100}).code == 0
    since = time.monotonic()
    for _ in range(300):
        connection.send(RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"x"))
    codes = [connection.receive().code for _ in range(300)]
    assert codes == [0] * 300
    assert time.monotonic() - since == pytest.approx(2, rel=NEAR)


@in_one_way
def test_oneway_sends_are_slowed(connection: ClientSocket) -> None:
    assert set_quota(connection, "topic", "T", **{IN: 100}).code == 0
    since = time.monotonic()
    for _ in range(300):
        connection.send(
            RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"x", oneway=True)
        )
    assert send(connection).code == 0
    assert time.monotonic() - since == pytest.approx(2, rel=NEAR)


def test_messages_read(connection: ClientSocket) -> None:
    for _ in range(300):
        send(connection, e="0")
    assert set_quota(connection, "group", "CG", **{OUT: 50}).code == 0
    offsets = itertools.count()
    codes = set()

    def read() -> None:
        codes.add(pull(connection, next(offsets)).code)

    assert rate_of(read, limit=50) == pytest.approx(50, rel=NEAR)
    assert codes == {0}
    assert quotas_of(connection)["group", "CG"]["delayed"] > 50


def test_reads_over_the_quota_are_refused(broker: BrokerProcess, connection: ClientSocket) -> None:
    for _ in range(8):
        send(connection, b"x" * 1000, e="0")
    assert set_quota(connection, "topic", "T", **{BYTES_OUT: 2000}).code == 0
    assert pull(connection, 0, 8).code == 0
    since = time.monotonic()
    answer = pull(connection, 0, 1, sysFlag="4")
    assert answer.code == FLOW_CONTROL
    assert answer.remark == "the topic T is over its quota bytesOutPerSecond=2000: read more slowly"
    assert 0.8 < time.monotonic() - since < 2
    assert pull(connection, 0, 1, sysFlag="6", suspendTimeoutMillis="15000").code == 0, "it may wait"
    assert 2.5 < time.monotonic() - since < 6


def test_a_read_that_waits_delays_nobody(connection: ClientSocket) -> None:
    """Not even its own connection: a Java process sends and consumes on one."""
    for _ in range(8):
        send(connection, b"x" * 1000, e="0")
    assert set_quota(connection, "topic", "T", **{OUT: 2}).code == 0
    assert pull(connection, 0, 8).code == 0
    connection.send(RemotingCommand.request(RequestCode.PULL_MESSAGE, pull_ext("T", sysFlag="4")))
    since = time.monotonic()
    sent = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"x")
    connection.send(sent)
    answer = connection.receive()
    assert (answer.opaque, answer.code) == (sent.opaque, 0)
    assert time.monotonic() - since < 0.5
    assert connection.receive().code == FLOW_CONTROL


@in_one_way
def test_held_pulls_are_answered_once_the_connection_is_not_throttled(
    broker: BrokerProcess, connection: ClientSocket
) -> None:
    """Messages come while it is throttled, more than it keeps answers of then."""
    make_topic(connection, "Big")
    assert set_quota(connection, "topic", "T", **{IN: 1}).code == 0
    ext = {"sysFlag": str(SUSPEND | SUBSCRIPTION), "suspendTimeoutMillis": "15000"}
    held = {connection.send_request(RequestCode.PULL_MESSAGE, pull_ext("Big", 0, n, **ext)) for n in range(4)}
    assert pull(connection).code != 0, "the broker holds those sent before"
    for _ in range(2):
        connection.send_request(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"x")
    with ClientSocket(broker.address) as other:
        for queue in range(4):
            assert send(other, b"x" * 600_000, "Big", e=str(queue)).code == 0
    since = time.monotonic()
    answers = [connection.receive() for _ in range(6)]
    assert {each.opaque for each in answers if len(each.body) > 600_000} == held
    assert 0.3 < time.monotonic() - since < 5


@in_one_way
def test_pops(connection: ClientSocket) -> None:
    for _ in range(200):
        send(connection, e="0")
    assert set_quota(connection, "group", "CG", **{OUT: 20}).code == 0

    def pop() -> None:
        ext = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "maxMsgNums": "1", "pollTime": "15000"}
        ext |= {"invisibleTime": "60000", "initMode": "0", "exp": "*", "expType": "TAG"}
        ext |= {"bornTime": str(time.time_ns() // 1_000_000)}
        assert connection.ask(RequestCode.POP_MESSAGE, ext).code == 0

    assert rate_of(pop, limit=20) == pytest.approx(20, rel=NEAR)


@in_one_way
def test_half_messages_count(connection: ClientSocket) -> None:
    assert set_quota(connection, "topic", "T", **{IN: 20}).code == 0
    half = {"f": "4", "i": "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01k\x02"}
    assert rate_of(lambda: send(connection, **half), limit=20) == pytest.approx(20, rel=NEAR)


def offset_of(sent: RemotingCommand) -> str:
    """The physical offset of the message that was sent."""
    return str(int(sent.ext["msgId"][-16:], 16))


@in_one_way
class TestWaysRound:
    """What clients might do to use more than their quota."""

    def test_properties_are_bytes(self, connection: ClientSocket) -> None:
        assert set_quota(connection, "topic", "T", **{BYTES_IN: 100_000}).code == 0
        properties = f"KEY\x01{'x' * 1994}\x02"
        rate = rate_of(lambda: send(connection, b"x", i=properties), limit=50)
        assert rate == pytest.approx(50, rel=NEAR)

    def test_a_batch_however_it_is_marked(self, connection: ClientSocket) -> None:
        item = (24).to_bytes(4, "big") + bytes(12) + (2).to_bytes(4, "big") + b"ab" + bytes(2)
        assert set_quota(connection, "topic", "T", **{IN: 100}).code == 0
        since = time.monotonic()
        assert send(connection, item * 150, m="TRUE").code == 0
        assert 0.4 < time.monotonic() - since < 2

    def test_a_message_that_is_sent_back_again_and_again(self, connection: ClientSocket) -> None:
        """Each time the broker stores a copy."""
        offset = offset_of(send(connection, b"x" * 10_000, e="0"))
        assert pull(connection).code == 0, "now there is the group"
        assert set_quota(connection, "topic", "%RETRY%CG", **{BYTES_IN: 100_000}).code == 0
        ext = {"offset": offset, "group": "CG", "delayLevel": "3", "originMsgId": "", "originTopic": "T"}

        def send_back() -> None:
            assert connection.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext).code == 0

        assert rate_of(send_back, limit=10) == pytest.approx(10, rel=2 * NEAR)

    def test_pulls_of_messages_that_are_about_to_come(
        self, broker: BrokerProcess, connection: ClientSocket
    ) -> None:
        """A client that always waits at the end of the queue gets each message at once, unless that is limited, too."""
        assert set_quota(connection, "group", "CG", **{OUT: 10}).code == 0
        ext = {"sysFlag": str(SUSPEND | SUBSCRIPTION), "suspendTimeoutMillis": "500"}
        since, read = time.monotonic(), 0
        with ClientSocket(broker.address) as producer:
            while time.monotonic() - since < 3:
                connection.send_request(RequestCode.PULL_MESSAGE, pull_ext("T", read, maxMsgNums="1", **ext))
                connection.send_request(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
                assert connection.receive().code == 0, "the pull was read, and is held or waits"
                send(producer, e="0")
                read += connection.receive().code == 0
        assert read <= 10 * (3 + 1) + 2

    def test_messages_by_key_and_by_offset(self, connection: ClientSocket) -> None:
        offset = offset_of(send(connection, i="KEYS\x01k\x02"))
        query = {"topic": "T", "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": str(1 << 50)}
        for code, ext in (
            (RequestCode.QUERY_MESSAGE, query),
            (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset}),
        ):
            assert set_quota(connection, "topic", "T", **{OUT: 2}).code == 0
            answers = [connection.ask(code, ext) for _ in range(6)]
            if code == RequestCode.VIEW_MESSAGE_BY_ID:  # whose topic is known only when it was found
                assert FLOW_CONTROL in {answer.code for answer in answers}
            else:
                assert {answer.code for answer in answers} == {0}
                assert quotas_of(connection)["topic", "T"]["delayed"] >= 3
            assert set_quota(connection, "topic", "T", **{OUT: None}).code == 0


@in_one_way
def test_a_read_waits_no_longer_than_its_quota(broker: BrokerProcess, connection: ClientSocket) -> None:
    for _ in range(30):
        send(connection, e="0")
    assert set_quota(connection, "topic", "T", **{OUT: 2}).code == 0
    assert pull(connection, 0, 30).code == 0
    since = time.monotonic()
    connection.send_request(
        RequestCode.PULL_MESSAGE, pull_ext("T", sysFlag="6", suspendTimeoutMillis="15000")
    )
    with ClientSocket(broker.address) as other:
        assert set_quota(other, "topic", "T", **{OUT: None}).code == 0
    assert connection.receive().code == 0
    assert time.monotonic() - since < 3


def test_a_pull_waits_once(connection: ClientSocket) -> None:
    """What it has waited for its quota, it does not wait for messages: its client would give up."""
    for _ in range(6):
        send(connection, e="0")
    assert set_quota(connection, "topic", "T", **{OUT: 2}).code == 0
    assert pull(connection, 0, 6).code == 0
    since = time.monotonic()
    answer = pull(connection, 6, sysFlag="6", suspendTimeoutMillis="3000")
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert 2.5 < time.monotonic() - since < 4


def test_quotas_survive_a_kill(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "store", way=WAYS["fast"]) as broker,
        ClientSocket(broker.address) as connection,
    ):
        assert set_quota(connection, "topic", "T", **{IN: 5, BYTES_IN: 7}).code == 0
        assert set_quota(connection, "address", "127.0.0.9", connections=3).code == 0
        broker.kill()
    with (
        BrokerProcess(tmp_path / "store", way=WAYS["fast"]) as broker,
        ClientSocket(broker.address) as connection,
    ):
        rows = quotas_of(connection)
        assert {key: row["quotas"] for key, row in rows.items()} == {
            ("topic", "T"): {IN: 5, BYTES_IN: 7},
            ("address", "127.0.0.9"): {"connections": 3},
        }


def test_no_broker_starts_without_the_quotas_of_a_damaged_file(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with BrokerProcess(store) as broker, ClientSocket(broker.address) as connection:
        for rate in (7, 5):
            assert set_quota(connection, "topic", "T", **{IN: rate}).code == 0
        broker.stop()
    file = store / "config" / "quotas.json"
    text = file.read_bytes()
    file.write_bytes(text[:-9])
    with pytest.raises(
        LocalBrokerError, match=r"quotas\.json is damaged .*restore it from quotas\.json\.bak"
    ):
        BrokerProcess(store)
    file.write_bytes(text)
    with BrokerProcess(store) as broker, ClientSocket(broker.address) as connection:
        assert quotas_of(connection)[("topic", "T")]["quotas"] == {IN: 5}


@pytest.mark.parametrize(
    ("entity", "name", "quotas"),
    [
        ("broker", "b", {IN: 1}),
        ("topic", "", {IN: 1}),
        ("topic", "a b", {IN: 1}),
        ("topic", "x" * 256, {IN: 1}),
        ("topic", "T", {IN: 0}),
        ("topic", "T", {IN: -1}),
        ("topic", "T", {IN: 10**16}),
        ("topic", "T", {"connections": 1}),
        ("group", "G", {IN: 1}),
        ("address", "localhost", {"connections": 1}),
        ("address", "127.0.0.1", {IN: 1}),
        ("user", "u", {"produceRate": 1}),
    ],
)
def test_what_is_refused(
    one_broker: ClientSocket, entity: str, name: str, quotas: dict[str, int | None]
) -> None:
    answer = set_quota(one_broker, entity, name, **quotas)
    assert (answer.code, bool(answer.remark)) == (29, True), answer.remark
    assert quotas_of(one_broker) == {}


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientSocket]:
    with (
        BrokerProcess(tmp_path_factory.mktemp("quotas") / "store", way=WAYS["fast"]) as broker,
        ClientSocket(broker.address) as opened,
    ):
        yield opened


@in_one_way
def test_connections_of_an_address(broker: BrokerProcess, connection: ClientSocket) -> None:
    assert set_quota(connection, "address", "127.0.0.1", connections=2).code == 0
    with ClientSocket(broker.address) as second:
        make_topic(second, "T2")
        with ClientSocket(broker.address) as third:
            assert third.closed_by_peer()
    deadline = time.monotonic() + 5
    while True:
        try:
            with ClientSocket(broker.address) as fourth:
                make_topic(fourth, "T4")
            break
        except OSError:
            assert time.monotonic() < deadline
    assert set_quota(connection, "address", "127.0.0.1", connections=None).code == 0


@pytest.fixture
def root(secured_broker: BrokerProcess) -> Iterator[SignedSocket]:
    """Topic T is new, ann and bob may use it, and no quota is left for the next test."""
    with SignedSocket(secured_broker.address) as root:
        make_topic(root)
        for user in ("ann", "bob"):
            grant(root, user, "Topic:T", "Pub", "Sub")
            grant(root, user, "Group:CG", "Sub")
        yield root
        clear_quotas(root)
        assert root.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0


@pytest.fixture(scope="module", params=["fast", *LONG_WAYS])
def way(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return WAYS[request.param]


@pytest.fixture(scope="module")
def secured_broker(way: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    store = tmp_path_factory.mktemp("users") / "store"
    with secured(store, f"authAuditLog={store.parent / 'audit'}", way=way) as it:
        with SignedSocket(it.address) as root:
            for user in ("ann", "bob"):
                create_user(root, user, "word1234")
        yield it


class TestUsers:
    def test_each_has_its_own(self, secured_broker: BrokerProcess, root: SignedSocket) -> None:
        assert set_quota(root, "user", "ann", **{IN: 40}).code == 0
        with ExitStack() as stack:
            ann, bob = (
                stack.enter_context(SignedSocket(secured_broker.address, user, "word1234"))
                for user in ("ann", "bob")
            )
            rates: dict[str, float] = {}
            limited = threading.Thread(target=lambda: rates.update(ann=rate_of(lambda: send(ann), limit=40)))
            limited.start()
            rates["bob"] = rate_of(lambda: send(bob), for_s=2)
            limited.join()
        assert rates["ann"] == pytest.approx(40, rel=NEAR)
        assert rates["bob"] > 200
        lines = [
            json.loads(line) for line in (secured_broker.store.parent / "audit").read_text().splitlines()
        ]
        assert [line for line in lines if line.get("name") == "ann" and line.get("quotas") == {IN: 40}]

    def test_a_default_is_for_each(self, secured_broker: BrokerProcess, root: SignedSocket) -> None:
        assert set_quota(root, "user", "*", **{OUT: 1000, IN: 30}).code == 0
        with SignedSocket(secured_broker.address, "bob", "word1234") as bob:
            assert rate_of(lambda: send(bob), limit=30, for_s=2) == pytest.approx(30, rel=NEAR)
            row = quotas_of(root)["user", "bob"]
            assert (row["byDefault"], row["quotas"]) == (True, {IN: 30, OUT: 1000})

    def test_a_name_alone_uses_no_quota_of_the_user(self, tmp_path: Path, way: tuple[str, ...]) -> None:
        """Of a code that needs no login: only who signed uses the quota."""
        codes = ",".join(str(int(code)) for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE))
        lists = f"authenticationWhitelist={codes}", f"authorizationWhitelist={codes}"
        with secured(tmp_path / "store", *lists, way=way) as broker, SignedSocket(broker.address) as root:
            make_topic(root)
            create_user(root, "ann", "word1234")
            assert set_quota(root, "user", "ann", **{IN: 10, OUT: 10}).code == 0
            with SignedSocket(broker.address, "ann", "guess") as guesser:
                assert rate_of(lambda: send(guesser), for_s=0.5) > 50
                assert rate_of(lambda: pull(guesser), for_s=0.5) > 50
            assert set(quotas_of(root)["user", "ann"]["used"].values()) == {0}

    def test_a_read_that_waits_is_refused_once_its_right_is_gone(
        self, secured_broker: BrokerProcess, root: SignedSocket
    ) -> None:
        for _ in range(4):
            assert send(root, e="0").code == 0
        assert set_quota(root, "user", "ann", **{OUT: 1}).code == 0
        with SignedSocket(secured_broker.address, "ann", "word1234") as ann:
            assert pull(ann, count=3).code == 0
            opaque = ann.send_request(
                RequestCode.PULL_MESSAGE, pull_ext("T", sysFlag="6", suspendTimeoutMillis="9000")
            )
            assert send(ann).code == 0, "the pull was read before"
            revoke_all(root, "ann")
            assert ann.answer_to(opaque).code == NO_PERMISSION

    def test_a_held_pull_uses_the_quota_of_its_user(
        self, secured_broker: BrokerProcess, root: SignedSocket
    ) -> None:
        """Also if it is answered by the complete path at its deadline or after a change of rules."""
        assert set_quota(root, "user", "ann", **{OUT: 1000}).code == 0
        ext = {"sysFlag": str(SUSPEND | SUBSCRIPTION), "suspendTimeoutMillis": "15000"}
        with SignedSocket(secured_broker.address, "ann", "word1234") as ann:
            pull(ann)
            opaque = ann.send_request(RequestCode.PULL_MESSAGE, pull_ext("T", **ext))
            pull(ann)
            create_user(root, "new", "word1234")
            assert send(root).code == 0
            assert ann.answer_to(opaque).code == 0
            deadline = time.monotonic() + 5
            while quotas_of(root)["user", "ann"]["used"][OUT] != 1:
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def test_connections(self, secured_broker: BrokerProcess, root: SignedSocket) -> None:
        assert set_quota(root, "user", "ann", connections=1).code == 0
        with ExitStack() as stack:
            first, second, other = (
                stack.enter_context(SignedSocket(secured_broker.address, user, "word1234"))
                for user in ("ann", "ann", "bob")
            )
            assert send(first).code == 0
            answer = send(second)
            assert answer.code == SYSTEM_BUSY
            assert answer.remark == (
                "the user ann is over its quota connections=1: close another connection first"
            )
            assert second.closed_by_peer(within_s=3)
            assert send(first).code == 0
            assert send(other).code == 0
            assert quotas_of(root)["user", "ann"]["used"] == {"connections": 1}
        deadline = time.monotonic() + 5
        while True:
            with SignedSocket(secured_broker.address, "ann", "word1234") as third:
                if send(third).code == 0:
                    break
            assert time.monotonic() < deadline
