"""POP by raw frames: popping, acknowledging, hiding, reviving, long polling, and a kill in between."""

import base64
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from tests.integration.pops import (
    GROUP,
    QUICK,
    ack,
    ack_ext,
    bodies,
    pop,
    pop_ext,
    quick_broker,
    records,
    until_popped,
)
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.messages import read_messages
from tests.support.requests import send, send_ext, topic_ext
from tests.support.startup import QUICK_REVIVE

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests that need no other: each pops from a separate topic."""
    with quick_broker(tmp_path_factory.mktemp("pop") / "store") as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"T{next(_numbers)}"


def test_each_message_is_popped_once(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "store", *QUICK, environment=QUICK_REVIVE) as broker,
        broker.connect() as client,
    ):
        for number in range(50):
            send(client, "T", b"%d" % number, queue_id=number % 4)
        first, second, third = (pop(client, "T") for _ in range(3))
        assert sorted(map(int, bodies(first) + bodies(second))) == list(range(50))
        assert (len(bodies(first)), first.ext["restNum"]) == (32, "18")
        assert (third.code, third.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
        assert first.ext["popTime"].isdecimal()
        assert [first.ext["reviveQid"], second.ext["reviveQid"]] == ["0", "1"]
        infos = [one.split() for one in first.ext["msgOffsetInfo"].split(";")]
        assert sum(len(info[2].split(",")) for info in infos) == 32


def test_one_queue_and_tags(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        for number in range(10):
            send(client, topic, b"%d" % number, queue_id=1, tag="even" if number % 2 == 0 else "odd")
        assert bodies(pop(client, topic, queueId="0")) == []
        answer = pop(client, topic, queueId="1", exp="even", maxMsgNums="3")
        assert bodies(answer) == [b"0", b"2", b"4"]
        assert answer.ext["msgOffsetInfo"] == "0 1 0,2,4"
        assert answer.ext["startOffsetInfo"] == "0 1 0"
        assert bodies(pop(client, topic, queueId="1", exp="odd")) == [b"5", b"7", b"9"]


def test_a_new_group_starts_at_the_end_if_requested(tmp_path: Path) -> None:
    """The queue's start is in memory, which counts as its beginning, unless the broker is configured otherwise."""
    with (
        BrokerProcess(tmp_path / "store", *QUICK, environment=QUICK_REVIVE) as broker,
        broker.connect() as client,
    ):
        for number in range(5):
            send(client, "T", b"%d" % number)
        assert bodies(pop(client, "T", queueId="0", initMode="1")) == [b"0", b"1", b"2", b"3", b"4"]
        client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"initPopOffsetByCheckMsgInMem=false\n")
        assert bodies(pop(client, "T", queueId="0", initMode="1", consumerGroup="late")) == [b"4"]


def test_unacknowledged_messages_are_redelivered(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        for number in range(4):
            send(client, topic, b"%d" % number)
        answer = pop(client, topic, invisibleTime="1500")
        for record in records(answer)[:3]:
            assert ack(client, answer, record).code == 0
        again = until_popped(client, topic)
        [record] = records(again)
        assert (record.body, record.topic, record.reconsume_times) == (b"3", topic, 1)
        assert record.properties["1ST_POP_TIME"] == answer.ext["popTime"]
        assert record.properties["POP_CK"].split()[4] == "1"
        assert again.ext["startOffsetInfo"] == "1 0 0"
        [stored] = read_messages(client, f"%RETRY%{GROUP}_{topic}")
        assert (stored.body, stored.topic) == (b"3", f"%RETRY%{GROUP}_{topic}")
        assert ack(client, again, record).code == 0
        time.sleep(1)  # the check point settles within this time
        assert pop(client, topic).code == ResponseCode.POLLING_TIMEOUT


def test_batches_of_acknowledgements(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        for number in range(10):
            send(client, topic, b"%d" % number)
        answer = pop(client, topic, queueId="0", invisibleTime="1000")
        ext = answer.ext
        bits = sum(1 << n for n in range(10) if n != 6).to_bytes(2, "little")
        acks = {
            "c": GROUP,
            "t": topic,
            "r": "0",
            "so": 0,
            "q": 0,
            "rq": int(ext["reviveQid"]),
            "pt": int(ext["popTime"]),
            "it": 1000,
            "b": base64.b64encode(bits).decode(),
        }
        body = json.dumps({"brokerName": "b", "acks": [acks]})
        assert client.ask(RequestCode.BATCH_ACK_MESSAGE, body=body.encode()).code == 0
        assert bodies(until_popped(client, topic)) == [b"6"]


def test_a_message_is_hidden_for_longer(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        send(client, topic, b"slow")
        answer = pop(client, topic, invisibleTime="1000")
        [record] = records(answer)
        ext = ack_ext(answer, record)
        changed = client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext | {"invisibleTime": "3000"})
        assert (changed.code, changed.ext["invisibleTime"]) == (0, "3000")
        hidden_at = time.monotonic()
        assert bodies(until_popped(client, topic)) == [b"slow"]
        assert time.monotonic() - hidden_at > 2.5


def test_a_pop_waits_for_an_arrival(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client, broker.connect() as other:
        send(other, topic, b"first")
        assert bodies(pop(client, topic)) == [b"first"]
        waiting = client.send_request(RequestCode.POP_MESSAGE, pop_ext(topic, pollTime="10000"))
        time.sleep(0.2)
        began = time.monotonic()
        send(other, topic, b"second", queue_id=2)
        answer = client.answer_to(waiting)
        assert bodies(answer) == [b"second"]
        assert time.monotonic() - began < 1


def test_arrivals_wake_as_many_pops_as_needed(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client, broker.connect() as other:
        send(other, topic, b"first")
        pop(client, topic)
        waiting = [
            client.send_request(RequestCode.POP_MESSAGE, pop_ext(topic, pollTime="1500", maxMsgNums="1"))
            for _ in range(5)
        ]
        time.sleep(0.2)
        sent = [other.send_request(*_plain(topic, number)) for number in range(3)]
        for opaque in sent:
            assert other.answer_to(opaque).code == 0
        answers = [client.receive() for _ in waiting]
        assert sorted(answer.code for answer in answers) == [0, 0, 0, 210, 210]


def _plain(topic: str, number: int) -> tuple[int, dict[str, str], bytes]:
    return RequestCode.SEND_MESSAGE_V2, send_ext(topic), b"%d" % number


def test_a_pop_ends_at_its_deadline(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        send(client, topic, b"x")
        pop(client, topic)
        began = time.monotonic()
        answer = pop(client, topic, pollTime="700")
        assert answer.code == ResponseCode.POLLING_TIMEOUT
        assert 0.6 < time.monotonic() - began < 2


def test_held_pops_are_bounded(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store", "--set", "popPollingSize=1") as broker, broker.connect() as client:
        send(client, "T", b"x")
        pop(client, "T")
        waiting = [
            client.send_request(RequestCode.POP_MESSAGE, pop_ext("T", pollTime="1000")) for _ in range(4)
        ]
        codes = sorted(client.receive().code for _ in waiting)
        assert codes == [209, 209, 210, 210]


def test_in_order(broker: BrokerProcess, topic: str) -> None:
    """A queue returns nothing more until all it returned is acknowledged, except to the same attempt."""
    with broker.connect() as client:
        for number in range(6):
            send(client, topic, b"%d" % number)
        ordered = {"order": "true", "queueId": "0", "maxMsgNums": "2", "invisibleTime": "1500"}
        first = pop(client, topic, attemptId="a", **ordered)
        assert bodies(first) == [b"0", b"1"]
        assert (first.ext["reviveQid"], first.ext["orderCountInfo"]) == ("999", "0 0 0")
        assert pop(client, topic, attemptId="b", **ordered).code == ResponseCode.POLLING_TIMEOUT
        assert bodies(pop(client, topic, attemptId="a", **ordered)) == [b"0", b"1"]
        again = until_popped(client, topic, attemptId="c", **ordered)
        assert bodies(again) == [b"0", b"1"]
        assert "0 qo0%0 1" in again.ext["orderCountInfo"]
        for record in records(again):
            assert ack(client, again, record).code == 0
        assert bodies(pop(client, topic, attemptId="d", **ordered)) == [b"2", b"3"]


def test_an_acknowledgement_in_order_wakes_a_held_pop(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client, broker.connect() as other:
        for number in range(2):
            send(client, topic, b"%d" % number)
        ordered = {"order": "true", "queueId": "0", "maxMsgNums": "1"}
        first = pop(client, topic, attemptId="a", **ordered)
        waiting = other.send_request(
            RequestCode.POP_MESSAGE, pop_ext(topic, attemptId="b", pollTime="8000", **ordered)
        )
        time.sleep(0.2)
        began = time.monotonic()
        ack(client, first, records(first)[0])
        assert bodies(other.answer_to(waiting)) == [b"1"]
        assert time.monotonic() - began < 1


def test_priority_is_popped_first(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as client:
        ext = {
            "topic": "P",
            "defaultTopic": "TBW102",
            "readQueueNums": "4",
            "writeQueueNums": "4",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
            "attributes": "+message.type=PRIORITY",
        }
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0
        for priority in (0, 1, 2, 3, 9):
            sent = client.ask(
                RequestCode.SEND_MESSAGE_V2,
                send_ext("P", i=f"_SYS_MSG_PRIORITY_\x01{priority}\x02"),
                b"%d" % priority,
            )
            assert sent.ext["queueId"] == str(min(priority, 3))
        got = [bodies(pop(client, "P", maxMsgNums="1"))[0] for _ in range(5)]
        assert got == [b"3", b"9", b"2", b"1", b"0"]


def priority_topic(client: ClientSocket, queues: int) -> None:
    ext = topic_ext("P", queues) | {"attributes": "+message.type=PRIORITY"}
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0


def send_priorities(client: ClientSocket, priorities: range) -> None:
    for priority in priorities:
        properties = f"_SYS_MSG_PRIORITY_\x01{priority}\x02"
        sent = client.ask(RequestCode.SEND_MESSAGE_V2, send_ext("P", i=properties), b"%d" % priority)
        assert sent.ext["queueId"] == str(priority)


@pytest.mark.parametrize("ascending", [True, pytest.param(False, marks=pytest.mark.long)])
def test_retries_keep_their_priority_in_separate_queues(tmp_path: Path, ascending: bool) -> None:
    """Apache's PopPriorityIT: useSeparateRetryQueue, before and after the topic gets more queues."""
    settings = (
        *("--set", "useSeparateRetryQueue=true", "--set", "popFromRetryProbabilityForPriority=100"),
        *("--set", f"priorityOrderAsc={str(ascending).lower()}"),
    )
    with quick_broker(tmp_path / "store", *settings) as broker, broker.connect() as client:
        priority_topic(client, 4)
        send_priorities(client, range(4))
        order = [3, 2, 1, 0] if ascending else [0, 1, 2, 3]
        first = pop(client, "P", invisibleTime="500")
        assert [record.queue_id for record in records(first)] == order
        eventually(lambda: revived(client, 4) == 4)
        again = pop(client, "P", invisibleTime="500")
        found = [(record.queue_id, record.queue_offset, record.reconsume_times) for record in records(again)]
        assert found == [(queue_id, 0, 1) for queue_id in order], "each in its own queue"
        priority_topic(client, 8)
        send_priorities(client, range(4, 8))
        eventually(lambda: revived(client, 4) == 8)
        third = pop(client, "P", invisibleTime="500")
        more = [7, 6, 5, 4] if ascending else [4, 5, 6, 7]
        assert [record.queue_id for record in records(third)] == [*order, *more]
        eventually(lambda: revived(client, 8) == 16, what="the retry topic has as many queues now")
        last = pop(client, "P")
        assert [record.queue_id for record in records(last)] == (
            [*more, *order] if ascending else [*order, *more]
        )
        assert all(ack(client, last, record).code == 0 for record in records(last))


def revived(client: ClientSocket, queues: int) -> int:
    """Messages that the retry topic has got so far."""
    ext = {"topic": f"%RETRY%{GROUP}_P"}
    ends = [client.ask(RequestCode.GET_MAX_OFFSET, ext | {"queueId": str(n)}) for n in range(queues)]
    return sum(int(end.ext["offset"]) for end in ends)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"maxMsgNums": "33"}, ResponseCode.INVALID_PARAMETER),
        ({"maxMsgNums": "0"}, ResponseCode.INVALID_PARAMETER),
        ({"maxMsgNums": "-1"}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "99"}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": "0"}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": str(1 << 60)}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "Unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"consumerGroup": "no/such"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"bornTime": "1000"}, ResponseCode.POLLING_TIMEOUT),
        ({"exp": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"pollTime": "soon"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_refused_pops(broker: BrokerProcess, topic: str, more: dict[str, str], code: int) -> None:
    with broker.connect() as client:
        send(client, topic, b"x")
        assert client.ask(RequestCode.POP_MESSAGE, pop_ext(topic) | more).code == code
        assert bodies(pop(client, topic)) == [b"x"]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"extraInfo": "garbage"}, 1),
        ({"extraInfo": "0 x 1000 0 0 b 0 0"}, 1),
        ({"extraInfo": "0 1 1000 77 0 b 0 0"}, ResponseCode.INVALID_PARAMETER),
        ({"offset": "-1"}, ResponseCode.NO_MESSAGE),
        ({"offset": "100"}, ResponseCode.NO_MESSAGE),
        ({"queueId": "9"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"topic": "Unknown"}, ResponseCode.TOPIC_NOT_EXIST),
    ],
)
def test_refused_acknowledgements(broker: BrokerProcess, topic: str, more: dict[str, str], code: int) -> None:
    with broker.connect() as client:
        send(client, topic, b"x")
        answer = pop(client, topic)
        ext = ack_ext(answer, records(answer)[0]) | more
        assert client.ask(RequestCode.ACK_MESSAGE, ext).code == code
        hidden = client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext | {"invisibleTime": "1000"})
        assert hidden.code == code


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", ResponseCode.NO_MESSAGE),
        (b"{}", ResponseCode.NO_MESSAGE),
        (b"[", 1),
        (b'{"acks":[1]}', ResponseCode.INVALID_PARAMETER),
        (
            b'{"acks":[{"c":"CG","t":"T","r":"0","so":0,"q":0,"rq":0,"pt":1,"it":1}]}',
            ResponseCode.INVALID_PARAMETER,
        ),
        (
            b'{"acks":[{"c":"CG","t":"T","r":"7","so":0,"q":0,"rq":0,"pt":1,"it":1,"b":"AQ=="}]}',
            ResponseCode.INVALID_PARAMETER,
        ),
        (
            b'{"acks":[{"c":"CG","t":"T","r":"0","so":0,"q":0,"rq":0,"pt":1,"it":1,"b":"%%%"}]}',
            ResponseCode.INVALID_PARAMETER,
        ),
        (
            b'{"acks":[{"c":"CG","t":"T","r":"0","so":0,"q":0,"rq":0,"pt":1,"it":1,"b":"'
            + b"/" * 4000
            + b'"}]}',
            ResponseCode.INVALID_PARAMETER,
        ),
    ],
)
def test_refused_batches(broker: BrokerProcess, body: bytes, code: int) -> None:
    with broker.connect() as client:
        send(client, "T", b"x")
        assert client.ask(RequestCode.BATCH_ACK_MESSAGE, body=body).code == code


def test_a_kill_between_pop_and_revive(tmp_path: Path) -> None:
    """Acknowledged ones stay so, others are redelivered once, and what was not popped can be popped."""
    with (
        BrokerProcess(tmp_path / "store", *QUICK, environment=QUICK_REVIVE) as broker,
        broker.connect() as client,
    ):
        for number in range(60):
            send(client, "T", b"%d" % number)
        answer = pop(client, "T", queueId="0", invisibleTime="2000")
        for record in records(answer):
            if int(record.body) % 3:
                assert ack(client, answer, record).code == 0
        broker.kill()
    with (
        BrokerProcess(tmp_path / "store", *QUICK, environment=QUICK_REVIVE) as broker,
        broker.connect() as client,
    ):
        found: list[int] = []
        deadline = time.monotonic() + 15
        while len(found) < 28 + 11 and time.monotonic() < deadline:
            answer = pop(client, "T", invisibleTime="60000")
            found += [int(body) for body in bodies(answer)]
            for record in records(answer):
                assert ack(client, answer, record).code == 0
            time.sleep(0.05)
        time.sleep(1)
        found += [int(body) for body in bodies(pop(client, "T"))]
        assert sorted(found) == sorted([*range(0, 32, 3), *range(32, 60)])
