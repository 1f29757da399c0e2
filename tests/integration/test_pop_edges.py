"""Edge cases of POP: filters over long ranges, retry topics of both kinds, orders, limits."""

import base64
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
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
from tests.support.requests import send, send_ext
from tests.support.startup import QUICK_REVIVE

FAR_MS = str(1 << 60)
_numbers = itertools.count(1)
ORDERED = {"order": "true", "queueId": "0"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests that need no other: each pops from a separate topic."""
    store = tmp_path_factory.mktemp("pop") / "store"
    with quick_broker(store, "--set", "enablePropertyFilter=true") as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"T{next(_numbers)}"


def send_many(connection: ClientSocket, topic: str, count: int, tag: str = "") -> None:
    opaques = [
        connection.send_request(RequestCode.SEND_MESSAGE_V2, send_ext(topic, tag=tag), b"%d" % number)
        for number in range(count)
    ]
    for opaque in opaques:
        assert connection.answer_to(opaque).code == 0


def hide(connection: ClientSocket, ext: dict[str, str], invisible_ms: int, **more: str) -> RemotingCommand:
    wanted = {"invisibleTime": str(invisible_ms)} | more
    return connection.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext | wanted)


# ---- filters ----


@pytest.mark.parametrize(("exp", "kind"), [("rare", "TAG"), ("TAGS = 'rare'", "SQL92")])
def test_a_pop_continues_past_messages_that_do_not_match(
    broker: BrokerProcess, topic: str, exp: str, kind: str
) -> None:
    """More than one read covers; the pop may wait, but need not."""
    with broker.connect() as client:
        send_many(client, topic, 3000, "common")
        send(client, topic, b"needle", tag="rare")
        began = time.monotonic()
        answer = pop(client, topic, queueId="0", exp=exp, expType=kind, pollTime="20000")
        assert bodies(answer) == [b"needle"]
        assert time.monotonic() - began < 5
        assert answer.ext["msgOffsetInfo"] == "0 0 3000"


def test_an_invalid_expression_is_refused_and_pops_nothing(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        send(client, topic, b"x")
        for exp, kind in (("a >", "SQL92"), ("a", "PROLOG"), ("(" * 5000 + "a" + ")" * 5000, "SQL92")):
            refused = pop(client, topic, exp=exp, expType=kind)
            assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert bodies(pop(client, topic)) == [b"x"]


def test_a_retried_message_is_filtered_as_the_others(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        send(client, topic, b"1", tag="red")
        send(client, topic, b"2", tag="blue")
        assert len(bodies(pop(client, topic, invisibleTime="1000"))) == 2
        assert bodies(until_popped(client, topic, exp="blue")) == [b"2"]
        assert pop(client, topic).code == ResponseCode.POLLING_TIMEOUT, "red was passed over"


# ---- retry topics ----


def test_retry_topics_of_the_second_kind(tmp_path: Path) -> None:
    """The first kind is still read, for messages from before the switch."""
    first, second = f"%RETRY%{GROUP}_T", f"%RETRY%{GROUP}+T"
    with (
        BrokerProcess(tmp_path / "store", *QUICK, environment=QUICK_REVIVE) as broker,
        broker.connect() as client,
    ):
        send(client, "T", b"early")
        assert bodies(pop(client, "T", invisibleTime="1000")) == [b"early"]
        ext = {"topic": first, "queueId": "0"}
        eventually(lambda: client.ask(RequestCode.GET_MAX_OFFSET, ext).ext["offset"] != "0")
        client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"enableRetryTopicV2=true\n")
        send(client, "T", b"late")
        found: list[tuple[bytes, str]] = []
        while len(found) < 2 or b"late" not in [body for body, mark in found if mark == "2"]:
            answer = until_popped(client, "T", invisibleTime="1000")
            for record in records(answer):
                mark = record.properties.get("POP_CK", "0 0 0 0 0").split()[4]
                found.append((record.body, mark))
                if mark == "0":
                    continue
                retried = {"topic": first if mark == "1" else second}
                assert client.ask(RequestCode.ACK_MESSAGE, ack_ext(answer, record) | retried).code == 0
        assert sorted(found) == [(b"early", "1"), (b"late", "0"), (b"late", "2")]
        assert [record.body for record in read_messages(client, second)] == [b"late"]


def test_the_retry_topic_itself(tmp_path: Path) -> None:
    settings = *QUICK, "--set", "popResponseReturnActualRetryTopic=true"
    with (
        BrokerProcess(tmp_path / "store", *settings, environment=QUICK_REVIVE) as broker,
        broker.connect() as client,
    ):
        send(client, "T", b"x")
        pop(client, "T", invisibleTime="1000")
        answer = until_popped(client, "T")
        [record] = records(answer)
        assert (record.topic, record.reconsume_times) == (f"%RETRY%{GROUP}_T", 1)
        assert "POP_CK" not in record.properties


def test_a_held_pop_is_woken_by_a_retried_message(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        send(client, topic, b"x")
        pop(client, topic, invisibleTime="1000")
        answer = pop(client, topic, pollTime="15000")
        assert (bodies(answer), answer.ext["startOffsetInfo"]) == ([b"x"], "1 0 0")


def test_a_suspended_message_does_not_count(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        send(client, topic, b"x")
        answer = pop(client, topic)
        hidden = hide(client, ack_ext(answer, records(answer)[0]), 1000, suspend="true")
        assert hidden.code == 0
        [record] = records(until_popped(client, topic))
        assert record.reconsume_times == 0


def test_hiding_gives_a_new_receipt(broker: BrokerProcess, topic: str) -> None:
    """Acknowledged by the new one it is done; the old one is invalid."""
    with broker.connect() as client:
        for number in range(2):
            send(client, topic, b"%d" % number)
        answer = pop(client, topic, queueId="0")
        for record in records(answer):
            ext = ack_ext(answer, record)
            changed = hide(client, ext, 1500).ext
            words = ext["extraInfo"].split()
            new = [
                str(record.queue_offset),
                changed["popTime"],
                changed["invisibleTime"],
                changed["reviveQid"],
            ]
            receipt = " ".join(new + words[4:]) if record.body == b"0" else ext["extraInfo"]
            assert client.ask(RequestCode.ACK_MESSAGE, ext | {"extraInfo": receipt}).code == 0
        assert bodies(until_popped(client, topic)) == [b"1"]


# ---- in order ----


def test_hiding_in_order(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        for number in range(2):
            send(client, topic, b"%d" % number)
        answer = pop(client, topic, attemptId="a", invisibleTime="500", maxMsgNums="1", **ORDERED)
        [record] = records(answer)
        ext = ack_ext(answer, record)
        began = time.monotonic()
        changed = hide(client, ext, 2500)
        assert changed.code == 0
        assert changed.ext["popTime"] == answer.ext["popTime"]
        assert 2500 <= int(changed.ext["invisibleTime"]) < 5000
        again = pop(client, topic, attemptId="b", pollTime="15000", maxMsgNums="1", **ORDERED)
        assert bodies(again) == [b"0"]
        assert time.monotonic() - began >= 2.4, "hidden for longer"
        assert ack(client, again, records(again)[0]).code == 0
        late = hide(client, ext, 1000)
        assert (late.code, late.ext) == (0, {"invisibleTime": "0", "popTime": "0", "reviveQid": "0"})
        assert bodies(pop(client, topic, attemptId="c", **ORDERED)) == [b"1"]


def test_batches_in_order(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        for number in range(4):
            send(client, topic, b"%d" % number)
        answer = pop(client, topic, attemptId="a", maxMsgNums="3", **ORDERED)
        assert bodies(answer) == [b"0", b"1", b"2"]
        for bits, left in ((0b101, b""), (0b010, b"3")):
            body = (
                f'{{"brokerName":"b","acks":[{{"c":"{GROUP}","t":"{topic}","r":"0","so":0,"q":0,"rq":999,'
                f'"pt":{answer.ext["popTime"]},"it":60000,"b":"{base64.b64encode(bytes([bits])).decode()}"}}]}}'
            )
            assert client.ask(RequestCode.BATCH_ACK_MESSAGE, body=body.encode()).code == 0
            assert b"".join(bodies(pop(client, topic, attemptId="b", **ORDERED))) == left


def test_acknowledging_in_order_what_was_not_popped(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        for number in range(4):
            send(client, topic, b"%d" % number)
        answer = pop(client, topic, attemptId="a", maxMsgNums="2", **ORDERED)
        ext = ack_ext(answer, records(answer)[0])
        assert client.ask(RequestCode.ACK_MESSAGE, ext | {"offset": "3"}).code == ResponseCode.MESSAGE_ILLEGAL
        old = f"0 {int(answer.ext['popTime']) - 1} 60000 999 0 b 0 0"
        assert client.ask(RequestCode.ACK_MESSAGE, ext | {"extraInfo": old}).code == 0
        assert pop(client, topic, attemptId="b", **ORDERED).code == ResponseCode.POLLING_TIMEOUT


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_orders_after_a_restart(tmp_path: Path, end: str) -> None:
    """Acknowledged messages are not redelivered; others are when they are visible, in order, and the held pop
    is answered then."""
    with (
        BrokerProcess(tmp_path / "store", *QUICK, environment=QUICK_REVIVE) as broker,
        broker.connect() as client,
    ):
        for number in range(4):
            send(client, "T", b"%d" % number)
        first = pop(client, "T", attemptId="a", maxMsgNums="2", **ORDERED)
        for record in records(first):
            assert ack(client, first, record).code == 0
        second = pop(client, "T", attemptId="b", maxMsgNums="2", invisibleTime="2500", **ORDERED)
        assert bodies(second) == [b"2", b"3"]
        assert broker.stop() == 0 if end == "stop" else broker.kill() is None
    with (
        BrokerProcess(tmp_path / "store", *QUICK, environment=QUICK_REVIVE) as broker,
        broker.connect() as client,
    ):
        assert ack(client, second, records(second)[1]).code == 0, "the one before it is not acknowledged"
        asked_ms = time.time_ns() // 1_000_000
        again = pop(client, "T", attemptId="c", bornTime=str(asked_ms), pollTime="20000", **ORDERED)
        assert bodies(again) == [b"2", b"3"]
        told_ms = int(again.ext["popTime"])
        assert told_ms < asked_ms + 19_000, "it was found at the end of the poll"
        assert told_ms >= int(second.ext["popTime"]) + 2500 or end == "kill"


# ---- limits ----


def test_times_of_clients_whose_clock_is_wrong(broker: BrokerProcess, topic: str) -> None:
    """A request from the future waits no longer."""
    with broker.connect() as client:
        send(client, topic, b"x")
        pop(client, topic)
        began = time.monotonic()
        answer = pop(client, topic, bornTime=FAR_MS, pollTime="500")
        assert answer.code == ResponseCode.POLLING_TIMEOUT
        assert time.monotonic() - began < 5
        ext = pop_ext(topic, bornTime=FAR_MS, pollTime="500")
        assert client.ask(RequestCode.NOTIFICATION, ext).ext["hasMsg"] == "false"
        assert time.monotonic() - began < 5


RECEIPTS = (
    "0 1 1000 0 0",
    "0 1 1000 -1 0 b 0 0",
    "-1 1 1000 0 0 b 0 0",
    "0 99999999999999999999 1000 0 0 b 0 0",
    "0 1 1000 99999999999 0 b 0 0",
    "0 999999999999999999 999999999999999999 0 0 b 0 0",
    "0 1 1000 0 0 " + "b" * 5000,
    "\u0661 1 1000 0 0 b 0 0",
    "",
)


def test_invalid_receipts(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        send(client, topic, b"x")
        answer = pop(client, topic, invisibleTime="3000")
        for receipt in RECEIPTS:
            ext = ack_ext(answer, records(answer)[0]) | {"extraInfo": receipt}
            for refused in (client.ask(RequestCode.ACK_MESSAGE, ext), hide(client, ext, 1000)):
                assert refused.code != 0, receipt
                assert refused.remark
        assert bodies(until_popped(client, topic)) == [b"x"]


def test_hiding_for_too_long(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as client:
        send(client, topic, b"x")
        answer = pop(client, topic)
        ext = ack_ext(answer, records(answer)[0])
        for invisible_ms in (-1, 3 * 86_400_000 + 1, 1 << 62):
            assert hide(client, ext, invisible_ms).code == ResponseCode.INVALID_PARAMETER


def test_huge_batches(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        send(client, "T", b"x")
        entry = b'{"c":"CG","t":"T","r":"0","so":%d,"q":0,"rq":0,"pt":1,"it":1,"b":"%s"}'
        for start, bits, code in (
            ((1 << 63) - 1, b"AQ==", 0),
            (1 << 63, b"AQ==", ResponseCode.INVALID_PARAMETER),
            (0, base64.b64encode(b"\xff" * 100), ResponseCode.INVALID_PARAMETER),
        ):
            body = b'{"acks":[' + entry % (start, bits) + b"]}"
            assert client.ask(RequestCode.BATCH_ACK_MESSAGE, body=body).code == code
        many = b'{"acks":[' + b",".join([entry % (5, b"AQ==")] * 1025) + b"]}"
        refused = client.ask(RequestCode.BATCH_ACK_MESSAGE, body=many)
        assert refused.code == ResponseCode.INVALID_PARAMETER
        deep = b'{"acks":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        assert client.ask(RequestCode.BATCH_ACK_MESSAGE, body=deep).code != 0
        assert bodies(pop(client, "T")) == [b"x"]
