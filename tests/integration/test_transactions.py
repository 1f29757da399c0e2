"""Transactions by raw frames with a running broker: all endings, checks, restarts, kill -9."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from firearrow._native.store.log.record import Record, decode
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.messages import read_messages, wait_for_messages
from tests.support.requests import pull_ext, send_ext

SOON = (
    "--set",
    "transactionTimeOut=400",
    "--set",
    "transactionCheckInterval=200",
    "--set",
    "messageDelayLevel=1s 2s",
)
LATE = "--set", "transactionTimeOut=600000"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
WINDOW = 20
HALF, OP, DISCARD = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"


class Half(NamedTuple):
    queue_offset: str
    physical_offset: str


def join(connection: ClientSocket, group: str = "PG") -> None:
    beat = {
        "clientID": f"{group}@{id(connection)}",
        "consumerDataSet": [],
        "heartbeatFingerprint": 0,
        "producerDataSet": [{"groupName": group}],
        "withoutSub": False,
    }
    assert connection.ask(RequestCode.HEART_BEAT, {}, json.dumps(beat).encode()).code == 0


def half_ext(topic: str, key: str, **more: str) -> dict[str, str]:
    pairs = {"TRAN_MSG": "true", "PGROUP": "PG", "TAGS": "t", "WAIT": "true", "UNIQ_KEY": key} | more
    return send_ext(topic, 1, f="4", i="".join(f"{name}\x01{text}\x02" for name, text in pairs.items()))


def half_of(answer: RemotingCommand) -> Half:
    assert answer.code == 0, answer.remark
    return Half(answer.ext["queueOffset"], str(int(answer.ext["msgId"][-16:], 16)))


def prepare(connection: ClientSocket, topic: str, body: bytes, **more: str) -> Half:
    answer = connection.ask(RequestCode.SEND_MESSAGE_V2, half_ext(topic, f"KEY{body.hex()}", **more), body)
    assert answer.ext["queueId"] == "1"
    assert answer.ext["transactionId"] == f"KEY{body.hex()}"
    return half_of(answer)


def end_ext(half: Half, what: int, checked: bool = False) -> dict[str, str]:
    return {
        "producerGroup": "PG",
        "tranStateTableOffset": half.queue_offset,
        "commitLogOffset": half.physical_offset,
        "commitOrRollback": str(what),
        "fromTransactionCheck": str(checked).lower(),
        "msgId": "x",
    }


def end(connection: ClientSocket, half: Half, what: int, checked: bool = False) -> RemotingCommand:
    return connection.ask(RequestCode.END_TRANSACTION, end_ext(half, what, checked))


def of_check(request: RemotingCommand) -> tuple[Half, Record]:
    assert request.code == RequestCode.CHECK_TRANSACTION_STATE
    half = Half(request.ext["tranStateTableOffset"], request.ext["commitLogOffset"])
    return half, decode(request.body)


def await_check(connection: ClientSocket) -> tuple[Half, Record]:
    """The next check that the broker sends on this connection."""
    while not connection.requests:
        command = connection.receive()
        if not command.is_response:
            connection.requests.append(command)
    return of_check(connection.requests.pop(0))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "store", *SOON) as broker:
        yield broker


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests of refused fields."""
    with BrokerProcess(tmp_path_factory.mktemp("fields") / "store", *LATE) as broker:
        yield broker


def test_a_committed_message_as_it_is_stored(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        half = prepare(client, "Tx", b"paid", KEYS="k")
        assert read_messages(client, "Tx", 1) == []
        assert end(client, half, COMMIT).code == 0
        [final] = read_messages(client, "Tx", 1)
        assert (final.body, final.queue_offset, final.sys_flag) == (b"paid", 0, 8)
        assert final.prepared_offset == int(half.physical_offset)
        kept = {"TRAN_MSG": "true", "PGROUP": "PG", "TAGS": "t", "WAIT": "true", "KEYS": "k"}
        assert kept.items() <= final.properties.items()
        assert final.properties["__transactionId__"] == final.properties["UNIQ_KEY"] == f"KEY{b'paid'.hex()}"
        assert not {"REAL_TOPIC", "REAL_QID"} & final.properties.keys()
        [prepared] = read_messages(client, HALF)
        assert (prepared.properties["REAL_TOPIC"], prepared.properties["REAL_QID"]) == ("Tx", "1")
        assert (prepared.sys_flag, prepared.born_timestamp) == (0, final.born_timestamp)
        [mark] = read_messages(client, OP)
        assert (mark.body, mark.properties) == (b"0,", {"WAIT": "true", "TAGS": "d"})


def test_a_oneway_commit_wakes_a_held_pull(broker: BrokerProcess) -> None:
    with broker.connect() as client, broker.connect() as consumer:
        half = prepare(client, "Wake", b"now")
        ext = pull_ext("Wake", queue_id=1, sysFlag="6", suspendTimeoutMillis="20000")
        waiting = consumer.send_request(RequestCode.PULL_MESSAGE, ext)
        time.sleep(0.1)
        began = time.monotonic()
        client.send(RemotingCommand.request(RequestCode.END_TRANSACTION, end_ext(half, COMMIT), oneway=True))
        assert consumer.answer_to(waiting).code == 0
        assert time.monotonic() - began < 5


def test_rolled_back_is_never_visible(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        half = prepare(client, "Tx", b"no")
        assert end(client, half, ROLLBACK).code == 0
        assert end(client, half, COMMIT).code == 0
        assert read_messages(client, "Tx", 1) == []
        assert [mark.body for mark in read_messages(client, OP)] == [b"0,"]


def test_unknown_is_checked_until_it_is_decided(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        join(client)
        first = prepare(client, "Tx", b"when asked")
        client.send_request(RequestCode.END_TRANSACTION, end_ext(first, UNKNOWN))
        half, shown = await_check(client)
        assert (shown.topic, shown.queue_id, shown.body) == ("Tx", 1, b"when asked")
        assert shown.properties["TRANSACTION_CHECK_TIMES"] == "1"
        half, shown = await_check(client)
        assert shown.properties["TRANSACTION_CHECK_TIMES"] == "2"
        assert end(client, half, COMMIT, checked=True).code == 0
        time.sleep(0.7)
        join(client)
        assert [record.body for record in read_messages(client, "Tx", 1)] == [b"when asked"]
        assert {
            of_check(request)[1].properties["TRANSACTION_CHECK_TIMES"] for request in client.requests
        } <= {"3"}


def test_any_connected_producer_of_the_group_is_checked(broker: BrokerProcess) -> None:
    with broker.connect() as other, broker.connect() as client:
        join(other, "OTHER")
        with broker.connect() as gone:
            join(gone)
            prepare(gone, "Tx", b"orphan")
        join(client)
        half, shown = await_check(client)
        assert shown.body == b"orphan"
        assert end(client, half, COMMIT, checked=True).code == 0
        assert [record.body for record in read_messages(client, "Tx", 1)] == [b"orphan"]
        join(other, "OTHER")
        assert other.requests == []


def test_discarded_and_resumed(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "store", *SOON, "--set", "transactionCheckMax=1") as broker,
        broker.connect() as client,
    ):
        with broker.connect() as silent:  # it is asked once, and leaves
            join(silent)
            prepare(client, "Tx", b"forgotten")
            await_check(silent)
        while client.ask(RequestCode.PULL_MESSAGE, pull_ext(DISCARD)).code == ResponseCode.TOPIC_NOT_EXIST:
            time.sleep(0.05)
        [given_up] = wait_for_messages(client, DISCARD, 1)
        assert given_up.body == b"forgotten"
        join(client)
        message_id = (given_up.store_host + given_up.physical_offset.to_bytes(8)).hex().upper()
        assert client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id}).code == 0
        half, _ = await_check(client)
        assert end(client, half, COMMIT, checked=True).code == 0
        assert [record.body for record in read_messages(client, "Tx", 1)] == [b"forgotten"]
        answer = client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": "nonsense"})
        assert answer.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("delay", ["DELAY", "TIMER_DELAY_SEC"])
def test_a_delay_counts_from_the_commit(broker: BrokerProcess, delay: str) -> None:
    with broker.connect() as client:
        half = prepare(client, "Tx", b"later", **{delay: "1"})
        time.sleep(1.2)
        assert end(client, half, COMMIT).code == 0
        assert read_messages(client, "Tx", 1) == []
        found = eventually(lambda: read_messages(client, "Tx", 1), 10)
        assert [record.body for record in found] == [b"later"]


@pytest.mark.parametrize(
    "broken",
    [
        {"commitOrRollback": "x"},
        {"commitOrRollback": str(1 << 40)},
        {"tranStateTableOffset": ""},
        {"commitLogOffset": str(1 << 70)},
    ],
)
def test_a_bad_field_is_named(lasting: BrokerProcess, broken: dict[str, str]) -> None:
    with lasting.connect() as client:
        half = prepare(client, "Tx", b"x")
        answer = client.ask(RequestCode.END_TRANSACTION, end_ext(half, COMMIT) | broken)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert next(iter(broken)) in str(answer.remark)
        assert end(client, half, COMMIT).code == 0


@pytest.mark.parametrize("gone", ["producerGroup", "tranStateTableOffset", "commitLogOffset", "msgId"])
def test_a_missing_field_is_named(lasting: BrokerProcess, gone: str) -> None:
    with lasting.connect() as client:
        ext = end_ext(prepare(client, "Tx", b"x"), COMMIT)
        del ext[gone]
        answer = client.ask(RequestCode.END_TRANSACTION, ext)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert gone in str(answer.remark)


def test_forbidden_by_the_option(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"rejectTransactionMessage=true").code == 0
        answer = client.ask(RequestCode.SEND_MESSAGE_V2, half_ext("Tx", "K"), b"x")
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == "the broker[127.0.0.1] sending transaction message is forbidden"


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_restart_in_the_middle(tmp_path: Path, flush: str, how: str) -> None:
    """Decisions are kept, open ones are checked, and no others."""
    options = "--set", f"flushDiskType={flush}"
    with BrokerProcess(tmp_path / "store", *LATE, *options) as broker, broker.connect() as client:
        halves = [prepare(client, "Tx", b"%d" % number) for number in range(60)]
        for number, half in enumerate(halves):
            if number % 3 < 2:
                assert end(client, half, COMMIT if number % 3 == 0 else ROLLBACK).code == 0
        broker.kill() if how == "kill" else broker.stop()
    with BrokerProcess(tmp_path / "store", *SOON, *options) as broker, broker.connect() as client:
        join(client)
        asked = {await_check(client)[1].body for _ in range(20)}
        assert asked == {b"%d" % number for number in range(2, 60, 3)}
        for half in halves:
            assert end(client, half, COMMIT).code == 0
        found = [int(record.body) for record in read_messages(client, "Tx", 1)]
        assert sorted(found) == sorted([*range(0, 60, 3), *(int(body) for body in asked)])


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", pytest.param("SYNC_FLUSH", marks=pytest.mark.long)])
def test_killed_while_many_are_decided_and_checked(tmp_path: Path, flush: str) -> None:
    """Round after round: acknowledged decisions hold, nothing is committed twice, nothing open is forgotten."""
    options = (*SOON, "--set", f"flushDiskType={flush}", "--set", "transactionCheckMax=1000")
    producer = Flaky(random.Random(5))
    for _ in range(4):
        with BrokerProcess(tmp_path / "store", *options) as broker, broker.connect() as client:
            join(client)
            producer.work(client, broker)
    with BrokerProcess(tmp_path / "store", *options) as broker, broker.connect() as client:
        join(client)
        producer.settle(client)
        producer.check([record.body for record in read_messages(client, "Tx", 1)])
        time.sleep(1)
        join(client)
        assert client.requests == []


class Flaky:
    """A producer that decides at once, late or never, with a broker that is killed meanwhile. It changes its mind:
    its first decision and its response to a check differ."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._count = 0
        self.halves: dict[bytes, Half] = {}
        self.tried: dict[bytes, int] = {}
        self.answered: dict[bytes, int] = {}

    def work(self, client: ClientSocket, broker: BrokerProcess) -> None:
        """Some hundred transactions; the broker is killed between its responses."""
        bodies = [b"%d" % number for number in range(self._count, self._count + 300)]
        self._count += len(bodies)
        asked = [
            (client.send_request(RequestCode.SEND_MESSAGE_V2, half_ext("Tx", body.decode()), body), body)
            for body in bodies
        ]
        self.halves |= {body: half_of(client.answer_to(opaque)) for opaque, body in asked}
        if self._draw.random() < 0.5:
            time.sleep(0.7)  # the checks of this round are in flight
        dies_at = self._draw.randrange(2, 17) * WINDOW // 2
        waiting: dict[int, tuple[bytes, int]] = {}
        todo = self._draw.sample(bodies, 200)
        try:
            while todo or waiting:
                while todo and len(waiting) < WINDOW:
                    body, what = todo.pop(), self._draw.choice((COMMIT, ROLLBACK))
                    self.tried[body] = what
                    ext = end_ext(self.halves[body], what)
                    waiting[client.send_request(RequestCode.END_TRANSACTION, ext)] = body, what
                if len(todo) == dies_at:
                    broker.process.kill()
                self._receive_half(client, waiting)
        except ConnectionError:
            return

    def _receive_half(self, client: ClientSocket, waiting: dict[int, tuple[bytes, int]]) -> None:
        """At least half of the window."""
        while len(waiting) > WINDOW // 2:
            command = client.receive()
            if command.is_response:
                assert command.code == 0, command.remark
                body, what = waiting.pop(command.opaque)
                self.answered[body] = what

    def settle(self, client: ClientSocket) -> None:
        """Roll back all that is checked, until there were no checks for a while."""
        self.asked: Counter[bytes] = Counter()
        client.socket.settimeout(2)
        while True:
            try:
                half, shown = await_check(client)
            except TimeoutError:
                break
            self.asked[shown.body] += 1
            client.send_request(RequestCode.END_TRANSACTION, end_ext(half, ROLLBACK, checked=True))
        client.socket.settimeout(30)

    def check(self, visible: list[bytes]) -> None:
        assert max(Counter(visible).values()) == 1
        assert 0 < len(self.answered) < len(self.tried)
        for body, what in self.answered.items():
            assert (body in visible) == (what == COMMIT), (body, what)
            assert body not in self.asked
        for body in visible:
            assert self.tried[body] == COMMIT
        assert self.halves.keys() - self.tried.keys() <= self.asked.keys()


def test_a_thousand_that_are_due_at_once_do_not_stall_others(broker: BrokerProcess) -> None:
    with broker.connect() as client, broker.connect() as other, broker.connect() as producer:
        join(producer)
        reading = threading.Thread(target=lambda: [producer.receive() for _ in range(3000)])
        reading.start()
        for number in range(3000):
            client.send_request(RequestCode.SEND_MESSAGE_V2, half_ext("Tx", f"K{number}"), b"x")
        for _ in range(3000):
            assert client.receive().code == 0
        slowest, seen = 0.0, 0
        while seen < 6000:
            began = time.monotonic()
            answer = other.ask(RequestCode.GET_MAX_OFFSET, {"topic": HALF, "queueId": "0"})
            seen = int(answer.ext["offset"])
            slowest = max(slowest, time.monotonic() - began)
        reading.join()
        assert slowest < 1
