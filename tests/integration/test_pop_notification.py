"""What could be popped, by raw frames: notifications, held requests, peeks."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from tests.integration.pops import GROUP, ack, bodies, pop, pop_ext, quick_broker, records, until_popped
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import send, topic_ext

_numbers = itertools.count(1)
ANSWERED = "not set any response code"
YES, NO = {"hasMsg": "true", "pollingFull": "false"}, {"hasMsg": "false", "pollingFull": "false"}
FULL = {"hasMsg": "false", "pollingFull": "true"}
ASKED = RequestCode.NOTIFICATION, RequestCode.POLLING_INFO, RequestCode.PEEK_MESSAGE


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests that need no other: each uses a separate topic."""
    with quick_broker(tmp_path_factory.mktemp("pop") / "store") as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"T{next(_numbers)}"


def look_ext(topic: str, **more: str) -> dict[str, str]:
    """Fields for each of the three requests."""
    ext = {
        "consumerGroup": GROUP,
        "topic": topic,
        "queueId": "-1",
        "pollTime": "0",
        "maxMsgNums": "32",
        "bornTime": str(time.time_ns() // 1_000_000),
    }
    return ext | more


def notification(connection: ClientSocket, topic: str, **more: str) -> RemotingCommand:
    return connection.ask(RequestCode.NOTIFICATION, look_ext(topic, **more))


def waiting(connection: ClientSocket, topic: str, **more: str) -> int:
    """Not answered yet; the broker has it."""
    opaque = connection.send_request(RequestCode.NOTIFICATION, look_ext(topic, pollTime="10000", **more))
    connection.send_request(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
    assert connection.receive().opaque == opaque + 1
    return opaque


def peek(connection: ClientSocket, topic: str, **more: str) -> RemotingCommand:
    return connection.ask(RequestCode.PEEK_MESSAGE, look_ext(topic, **more))


def make(connection: ClientSocket, topic: str) -> None:
    assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic)).code == 0


# ---- notifications ----


def test_is_there_a_message(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        make(client, topic)
        empty = notification(client, topic)
        assert (empty.code, empty.remark, empty.ext) == (0, ANSWERED, NO)
        send(client, topic, b"x", queue_id=2)
        assert notification(client, topic).ext == YES
        assert notification(client, topic, queueId="2").ext == YES
        assert notification(client, topic, queueId="1").ext == NO
        assert bodies(pop(client, topic)) == [b"x"]
        assert notification(client, topic).ext == NO
        assert notification(client, topic, consumerGroup="another").ext == YES


def test_a_notification_waits_for_an_arrival_and_pops_nothing(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client, broker.connect() as other:
        make(client, topic)
        opaque = waiting(client, topic)
        began = time.monotonic()
        send(other, topic, b"news", queue_id=1)
        assert client.answer_to(opaque).ext == YES
        assert time.monotonic() - began < 2
        assert notification(client, topic).ext == YES
        assert bodies(pop(client, topic)) == [b"news"]


def test_one_message_answers_one_notification_and_several_answer_all(
    broker: BrokerProcess, topic: str
) -> None:
    with broker.connect() as client, broker.connect() as other:
        make(client, topic)
        opaques = [waiting(client, topic, queueId="0") for _ in range(3)]
        send(other, topic, b"first")
        assert client.answer_to(opaques[0]).ext == YES
        client.send_request(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
        assert client.receive().ext == {"offset": "1"}, "a second notification was answered for one message"
        send(other, topic, b"second")
        assert [client.answer_to(opaque).ext for opaque in opaques[1:]] == [YES, YES]


def test_a_notification_and_a_pop_are_woken_by_the_same_message(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client, broker.connect() as popper, broker.connect() as other:
        make(client, topic)
        opaque = waiting(client, topic)
        popping = popper.send_request(RequestCode.POP_MESSAGE, pop_ext(topic, pollTime="10000"))
        assert until_polling(other, topic, 1).ext["pollingNum"] == "1"
        send(other, topic, b"x")
        assert bodies(popper.answer_to(popping)) == [b"x"]
        send(other, topic, b"y")
        assert client.answer_to(opaque).ext == YES


def test_a_notification_ends_at_its_deadline(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        make(client, topic)
        began = time.monotonic()
        assert notification(client, topic, pollTime="500").ext == NO
        assert 0.4 < time.monotonic() - began < 3


def test_held_notifications_are_bounded(tmp_path: Path, topic: str) -> None:
    with (
        BrokerProcess(tmp_path / "store", "--set", "maxPopPollingSize=2") as broker,
        broker.connect() as client,
    ):
        make(client, topic)
        waiting(client, topic)
        waiting(client, topic, queueId="1")
        assert notification(client, topic, pollTime="10000").ext == FULL
        client.send_request(RequestCode.POP_MESSAGE, pop_ext(topic, pollTime="10000"))
        assert until_polling(client, topic, 1).ext["pollingNum"] == "1", "pops are counted apart"


def test_disconnected_clients_are_not_held(tmp_path: Path, topic: str) -> None:
    with (
        BrokerProcess(tmp_path / "store", "--set", "maxPopPollingSize=2") as broker,
        broker.connect() as client,
    ):
        make(client, topic)
        with broker.connect() as gone:
            waiting(gone, topic)
            waiting(gone, topic)
            assert notification(client, topic, pollTime="10000").ext == FULL
        eventually(lambda: notification(client, topic, pollTime="300").ext != FULL, 10)


def test_tags_of_a_notification(broker: BrokerProcess, topic: str) -> None:
    wanted = {"exp": "red || green", "expType": "TAG"}
    with broker.connect() as client, broker.connect() as other:
        make(client, topic)
        send(other, topic, b"1", tag="blue")
        assert notification(client, topic, **wanted).ext == NO
        assert notification(client, topic).ext == YES
        opaque = waiting(client, topic, **wanted)
        send(other, topic, b"2", tag="yellow")
        send(other, topic, b"3", tag="green")
        assert client.answer_to(opaque).ext == YES
        assert notification(client, topic, exp="*", expType="TAG").ext == YES
        for expression, kind in (("||", "TAG"), ("a >", "SQL92"), ("a", "PROLOG")):
            refused = notification(client, topic, exp=expression, expType=kind)
            assert refused.code in (ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.SYSTEM_ERROR)


def test_a_queue_popped_in_order_notifies_when_it_is_unlocked(broker: BrokerProcess, topic: str) -> None:
    ordered = {"order": "true", "queueId": "0"}
    with broker.connect() as client, broker.connect() as other:
        for number in range(2):
            send(client, topic, b"%d" % number)
        first = pop(other, topic, attemptId="a", maxMsgNums="1", **ordered)
        assert bodies(first) == [b"0"]
        assert notification(client, topic, **ordered).ext == NO
        assert notification(client, topic, attemptId="a", **ordered).ext == YES
        opaque = waiting(client, topic, **ordered)
        ack(other, first, records(first)[0])
        assert client.answer_to(opaque).ext == YES


def test_a_retried_message_is_notified(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client, broker.connect() as other:
        send(other, topic, b"again")
        assert bodies(pop(other, topic, invisibleTime="1000")) == [b"again"]
        opaque = waiting(client, topic)
        assert client.answer_to(opaque).ext == YES
        assert bodies(peek(other, topic)) == [b"again"]
        [record] = records(until_popped(other, topic))
        assert (record.body, record.reconsume_times) == (b"again", 1)


# ---- held requests ----


def until_polling(connection: ClientSocket, topic: str, count: int, within_s: float = 10) -> RemotingCommand:
    def answer() -> RemotingCommand | None:
        asked = connection.ask(RequestCode.POLLING_INFO, look_ext(topic))
        return asked if asked.ext["pollingNum"] == str(count) else None

    found = eventually(answer, within_s, f"{count} pollings")
    assert found is not None
    return found


def test_polling_info(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        make(client, topic)
        nobody = client.ask(RequestCode.POLLING_INFO, look_ext(topic))
        assert (nobody.code, nobody.remark, nobody.ext) == (0, ANSWERED, {"pollingNum": "0"})
        with broker.connect() as other:
            for _ in range(3):
                other.send_request(RequestCode.POP_MESSAGE, pop_ext(topic, pollTime="10000"))
            assert until_polling(client, topic, 3).ext == {"pollingNum": "3"}
            for more in ({"queueId": "1"}, {"consumerGroup": "another"}):
                assert client.ask(RequestCode.POLLING_INFO, look_ext(topic) | more).ext == {"pollingNum": "0"}
        assert until_polling(client, topic, 0).ext == {"pollingNum": "0"}


# ---- peeks ----


def test_a_peek_pops_nothing(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        for number in range(10):
            send(client, topic, b"%d" % number, queue_id=1)
        for _ in range(2):
            answer = peek(client, topic, queueId="1", maxMsgNums="4")
            assert bodies(answer) == [b"0", b"1", b"2", b"3"]
            assert (answer.code, answer.remark) == (0, "FOUND")
            assert answer.ext == {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "10"}
        assert bodies(pop(client, topic, queueId="1", maxMsgNums="7")) == [b"%d" % n for n in range(7)]
        assert bodies(peek(client, topic)) == [b"7", b"8", b"9"]
        assert bodies(peek(client, topic, consumerGroup="another")) == [b"%d" % n for n in range(10)]
        nothing = peek(client, topic, queueId="0")
        assert (nothing.code, nothing.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")
        assert nothing.ext["restNum"] == "0"
        assert peek(client, topic, maxMsgNums="0").ext["restNum"] == "3"


def test_a_peek_is_bounded(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        for number in range(60):
            send(client, topic, b"%d" % number, queue_id=number % 4)
        answer = peek(client, topic, maxMsgNums=str((1 << 31) - 1))
        assert (len(bodies(answer)), answer.ext["restNum"]) == (32, "60")
        assert peek(client, topic, maxMsgNums="-1").code == ResponseCode.INVALID_PARAMETER
        assert peek(client, topic, maxMsgNums=str(1 << 31)).code == ResponseCode.SYSTEM_ERROR


# ---- refusals ----


@pytest.mark.parametrize("code", ASKED)
def test_refusals(broker: BrokerProcess, topic: str, code: int) -> None:
    with broker.connect() as client:
        make(client, topic)
        for more, answered in (
            ({"topic": "Unknown"}, ResponseCode.TOPIC_NOT_EXIST),
            ({"queueId": "4"}, ResponseCode.INVALID_PARAMETER),
            ({"queueId": str(1 << 40)}, ResponseCode.SYSTEM_ERROR),
            ({"consumerGroup": "no/such"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ):
            answer = client.ask(code, look_ext(topic) | more)
            assert answer.code == answered, (more, answer.remark)
        missing = look_ext(topic)
        del missing["queueId"]
        answer = client.ask(code, missing)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "queueId" in str(answer.remark)
        closed = topic_ext(topic) | {"perm": "2"}
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, closed).code == 0
        answer = client.ask(code, look_ext(topic))
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            f"the topic[{topic}] peeking message is forbidden",
        )


@pytest.mark.parametrize("code", ASKED)
def test_a_group_that_may_not_consume(tmp_path: Path, topic: str, code: int) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as client:
        make(client, topic)
        body = b'{"groupName":"CG","consumeEnable":false}'
        assert client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == 0
        answer = client.ask(code, look_ext(topic))
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            "subscription group no permission, CG",
        )
