"""SQL92 filters over the wire: checked when a consumer starts, evaluated for every message, and for held pulls."""

import json
import time
from collections.abc import Iterator

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import SUBSCRIPTION, SUSPEND, pull, pull_ext, records, send_ext

FOUND, ERROR, NOT_FOUND, RETRY, PARSE_FAILED, NO_FILTER = 0, 1, 19, 20, 23, 27
ON = "--set", "enablePropertyFilter=true"
WHERE = 'Encountered " "BETWEEN" "BETWEEN "" at line 1, column 6.'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("filters") / "store", *ON) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[ClientSocket]:
    with broker.connect() as connection:
        yield connection


def send(connection: ClientSocket, topic: str, body: bytes, **properties: str) -> None:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    answer = connection.ask(RequestCode.SEND_MESSAGE_V2, send_ext(topic, i=text), body)
    assert answer.code == 0, answer.remark


def ask(
    connection: ClientSocket, topic: str, expression: str, offset: int = 0, **more: str
) -> RemotingCommand:
    fields = {"expressionType": "SQL92", "subscription": expression, "maxMsgNums": "1000"} | more
    return pull(connection, topic, offset, **fields)


def bodies(answer: RemotingCommand) -> list[bytes]:
    assert answer.code == FOUND, (answer.code, answer.remark)
    return [record.body for record in records(answer.body)]


def subscription(topic: str, expression: str, **more: object) -> dict[str, object]:
    return {
        "topic": topic,
        "subString": expression,
        "subVersion": 7,
        "expressionType": "SQL92",
        "classFilterMode": False,
        "tagsSet": [],
        "codeSet": [],
    } | more


def subscribe(connection: ClientSocket, group: str, *subscriptions: dict[str, object]) -> None:
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
    }
    body = {"clientID": group, "consumerDataSet": [consumer], "producerDataSet": []}
    assert connection.ask(RequestCode.HEART_BEAT, {}, json.dumps(body).encode()).code == 0


def check(connection: ClientSocket, expression: str, **more: object) -> RemotingCommand:
    body = {"clientId": "c", "group": "G", "subscriptionData": subscription("T", expression, **more)}
    return connection.ask(RequestCode.CHECK_CLIENT_CONFIG, {}, json.dumps(body).encode())


def test_an_invalid_expression_is_reported_when_the_consumer_starts(connection: ClientSocket) -> None:
    assert check(connection, "a > 1").code == 0
    assert check(connection, "", expressionType="TAG").code == 0
    wrong = check(connection, "a IS BETWEEN")
    assert wrong.code == PARSE_FAILED
    assert wrong.remark is not None
    assert WHERE in wrong.remark
    assert check(connection, "a > 1", expressionType="NONSENSE").code == PARSE_FAILED
    assert check(connection, "(" * 60_000).code == PARSE_FAILED


def test_a_pull_gets_what_its_expression_matches(connection: ClientSocket) -> None:
    for n in range(10):
        send(connection, "Sql", b"%d" % n, a=str(n), TAGS="even" if n % 2 == 0 else "odd")
    send(connection, "Sql", b"none")
    assert bodies(ask(connection, "Sql", "a BETWEEN 2 AND 6 AND TAGS = 'even'")) == [b"2", b"4", b"6"]
    assert bodies(ask(connection, "Sql", "a IS NULL OR a >= 9")) == [b"9", b"none"]
    assert bodies(ask(connection, "Sql", "UNIQ_KEY IS NOT NULL", maxMsgNums="2")) == [b"0", b"1"]
    nothing = ask(connection, "Sql", "a > 100")
    assert (nothing.code, nothing.remark) == (RETRY, "NO_MATCHED_MESSAGE")
    assert nothing.ext["nextBeginOffset"] == "11"
    assert ask(connection, "Sql", "a > 1", 11).code == NOT_FOUND


@pytest.mark.parametrize("expression", ["a IS BETWEEN", "", "a = 0.0", "*"])
def test_a_pull_with_an_invalid_expression(connection: ClientSocket, expression: str) -> None:
    send(connection, "Wrong", b"x")
    answer = ask(connection, "Wrong", expression)
    assert (answer.code, answer.remark) == (PARSE_FAILED, "parse the consumer's subscription failed")


def test_a_pull_by_the_subscription_of_the_heartbeat(connection: ClientSocket) -> None:
    for n in range(4):
        send(connection, "Beat", b"%d" % n, a=str(n))
        send(connection, "BeatClass", b"%d" % n, a=str(n))
    subscribe(
        connection,
        "BeatGroup",
        subscription("Beat", "a IN ('1', '3')"),
        subscription("BeatWrong", "a ="),
        subscription("BeatClass", "a = 1", classFilterMode=True),
    )
    by_group = {"consumerGroup": "BeatGroup", "sysFlag": "0", "subscription": "", "subVersion": "7"}
    assert bodies(ask(connection, "Beat", "", **by_group)) == [b"1", b"3"]
    assert len(bodies(ask(connection, "BeatClass", "", **by_group))) == 4
    send(connection, "BeatWrong", b"x")
    answer = ask(connection, "BeatWrong", "", **by_group)
    assert answer.code == NO_FILTER
    assert answer.remark == "The broker's consumer filter data is not exist!Your expression may be wrong!"


def hold(connection: ClientSocket, topic: str, expression: str, offset: int, wait_ms: int = 15_000) -> int:
    """Send it, and make sure that the broker has read it."""
    ext = pull_ext(
        topic,
        offset,
        sysFlag=str(SUBSCRIPTION | SUSPEND),
        suspendTimeoutMillis=str(wait_ms),
        expressionType="SQL92",
        subscription=expression,
    )
    opaque = connection.send_request(RequestCode.PULL_MESSAGE, ext)
    connection.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
    return opaque


def test_only_a_matching_message_wakes_a_held_pull(broker: BrokerProcess, connection: ClientSocket) -> None:
    with broker.connect() as producer:
        send(producer, "Wake", b"0", a="0")
        opaque = hold(connection, "Wake", "a > 5", 1)
        for n in (1, 2, 3, 9):
            send(producer, "Wake", b"%d" % n, a=str(n))
    answer = connection.answer_to(opaque)
    assert bodies(answer) == [b"9"]
    assert answer.ext["nextBeginOffset"] == "5"


def test_a_held_pull_advances_at_its_deadline(broker: BrokerProcess, connection: ClientSocket) -> None:
    with broker.connect() as producer:
        send(producer, "Late", b"0", a="0")
        begun = time.monotonic()
        opaque = hold(connection, "Late", "a > 5", 1, wait_ms=500)
        send(producer, "Late", b"1", a="1")
    answer = connection.answer_to(opaque)
    assert time.monotonic() - begun > 0.4
    assert (answer.code, answer.ext["nextBeginOffset"]) == (RETRY, "2")


def test_a_held_pull_advances_when_many_do_not_match(broker: BrokerProcess, connection: ClientSocket) -> None:
    many = 801
    with broker.connect() as producer:
        send(producer, "Many", b"0", a="0")
        opaque = hold(connection, "Many", "a > 5", 1, wait_ms=60_000)
        for _ in range(many):
            send(producer, "Many", b"1", a="1")
    answer = connection.answer_to(opaque)
    assert answer.code == RETRY
    assert int(answer.ext["nextBeginOffset"]) > 700


def test_without_the_option_every_expression_is_refused(
    broker: BrokerProcess, connection: ClientSocket
) -> None:
    send(connection, "Off", b"x", a="5")
    subscribe(connection, "OffGroup", subscription("Off", "a > 1"))
    said = "The broker does not support consumer to filter message by SQL92"
    assert connection.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"enablePropertyFilter=false").code == 0
    try:
        for answer in (
            check(connection, "a IS BETWEEN"),
            ask(connection, "Off", "a > 1"),
            ask(connection, "Off", "a IS BETWEEN"),
            ask(connection, "Off", "", consumerGroup="OffGroup", sysFlag="0"),
        ):
            assert (answer.code, answer.remark) == (ERROR, said)
    finally:
        assert connection.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"enablePropertyFilter=true").code == 0
    assert bodies(ask(connection, "Off", "a > 1")) == [b"x"]


def test_retries_are_filtered_by_the_group_s_filter_of_their_topic(
    broker: BrokerProcess, connection: ClientSocket
) -> None:
    subscribe(
        connection,
        "Again",
        subscription("First", "a > 5"),
        subscription("Tagged", "*", expressionType="TAG"),
        subscription("%RETRY%Again", "a < 100"),
    )
    for topic, number in (("First", 3), ("First", 7), ("Tagged", 4), ("Unknown", 1), ("First", 200)):
        send(
            connection, "%RETRY%Again", b"%s %d" % (topic.encode(), number), RETRY_TOPIC=topic, a=str(number)
        )
    by_group = {"consumerGroup": "Again", "sysFlag": "0"}
    low = [b"First 3", b"First 7", b"Tagged 4", b"Unknown 1"]
    assert bodies(ask(connection, "%RETRY%Again", "", **by_group)) == low
    assert connection.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"filterSupportRetry=true").code == 0
    high = [b"First 7", b"Tagged 4", b"Unknown 1", b"First 200"]
    assert bodies(ask(connection, "%RETRY%Again", "", **by_group)) == high
