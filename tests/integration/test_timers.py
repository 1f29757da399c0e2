"""Timer messages with a real broker: times, refusals, recalls, restarts during delivery, thousands at once."""

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.messages import read_messages, wait_for_messages
from tests.support.requests import send_ext

QUICK = "--set", "timerPrecisionMs=100", "--set", "recallMessageEnable=true"


def timed(connection: ClientSocket, topic: str, body: bytes, **properties: str) -> RemotingCommand:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return connection.ask(RequestCode.SEND_MESSAGE_V2, send_ext(topic, i=text), body)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "store", *QUICK) as broker:
        yield broker


def test_a_message_is_delivered_when_it_is_due(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        began = time.time()
        answer = timed(client, "Later", b"1", TIMER_DELAY_MS="700", TAGS="t")
        assert answer.code == 0
        assert answer.ext["queueId"] == "0"
        assert read_messages(client, "Later") == []
        [record] = wait_for_messages(client, "Later", 1)
        assert 0.69 <= time.time() - began < 3
        properties = record.properties
        assert (properties["TAGS"], properties["REAL_TOPIC"], properties["REAL_QID"]) == ("t", "Later", "0")
        [waiting] = read_messages(client, "rmq_sys_wheel_timer")
        assert answer.ext["msgId"].endswith(f"{waiting.physical_offset:016X}")


@pytest.mark.parametrize(
    ("properties", "code", "remark"),
    [
        ({"TIMER_DELAY_SEC": "x"}, 13, "timer message illegal, the delay time should not be bigger than"),
        ({"TIMER_DELAY_SEC": "259201"}, 13, "the max delay 259200000ms; or if set del msg"),
        ({"TIMER_DELIVER_MS": "9" * 30}, 13, "timer message illegal"),
        ({"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "k"}, 13, "bigger than the current time"),
    ],
)
def test_invalid_timers_are_refused(
    broker: BrokerProcess, properties: dict[str, str], code: int, remark: str
) -> None:
    with broker.connect() as client:
        answer = timed(client, "Never", b"x", **properties)
        assert answer.code == code
        assert remark in str(answer.remark)
        assert read_messages(client, "rmq_sys_wheel_timer") == []


def test_without_the_wheel_timers_are_refused(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "store", "--set", "timerWheelEnable=false") as broker,
        broker.connect() as client,
    ):
        answer = timed(client, "Never", b"x", TIMER_DELAY_SEC="1")
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false",
        )
        assert client.ask(RequestCode.GET_TIMER_CHECK_POINT).code == ResponseCode.SYSTEM_ERROR
        assert client.ask(RequestCode.GET_TIMER_METRICS).code == ResponseCode.SYSTEM_ERROR
        assert not (tmp_path / "store" / "timerwheel").exists()
        table = orjson.loads(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
        assert table["timerCongestNum"] == "0"


def test_a_start_without_the_wheel_reports_what_waits(tmp_path: Path) -> None:
    """They are not delivered before the wheel is back, and then at once."""
    with BrokerProcess(tmp_path / "store", *QUICK) as broker, broker.connect() as client:
        for number in range(3):
            assert timed(client, "Stuck", b"%d" % number, TIMER_DELAY_MS="1500").code == 0
        assert broker.stop() == 0
    off = (*QUICK, "--set", "timerWheelEnable=false")
    with BrokerProcess(tmp_path / "store", *off) as broker, broker.connect() as client:
        table = orjson.loads(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
        assert table["timerCongestNum"] == "3"
        time.sleep(2)
        assert read_messages(client, "Stuck") == []
        assert broker.stop() == 0
        assert "timerWheelEnable=false, but 3 messages wait in the timer" in broker.log.read_text()
    with BrokerProcess(tmp_path / "store", *QUICK) as broker, broker.connect() as client:
        assert len(wait_for_messages(client, "Stuck", 3)) == 3
        time.sleep(0.5)
        assert broker.stop() == 0
    with BrokerProcess(tmp_path / "store", *off) as broker:
        assert broker.stop() == 0
        assert broker.log.read_text().count("wait in the timer") == 1, "that of the second start"


def recall(connection: ClientSocket, topic: str, handle: str) -> RemotingCommand:
    ext = {"producerGroup": "PG", "topic": topic, "recallHandle": handle}
    return connection.ask(RequestCode.RECALL_MESSAGE, ext)


def test_a_recalled_message_is_not_delivered(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        answers = [timed(client, "Back", b"%d" % number, TIMER_DELAY_MS="1500") for number in range(3)]
        answer = recall(client, "Back", answers[1].ext["recallHandle"])
        assert answer.code == 0
        assert answer.ext["msgId"] == answers[1].ext["transactionId"]
        timed(client, "Back", b"end", TIMER_DELAY_MS="2000")
        assert [record.body for record in wait_for_messages(client, "Back", 3)] == [b"0", b"2", b"end"]


def test_the_key_of_recalls_changes_while_the_broker_runs(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        answers = [timed(client, "Back", b"%d" % number, TIMER_DELAY_MS="1500") for number in range(2)]
        change = b"appendTopicForTimerDeleteKey=true"
        assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=change).code == 0
        assert recall(client, "Back", answers[0].ext["recallHandle"]).code == 0
        timed(client, "Back", b"end", TIMER_DELAY_MS="2000")
        assert [record.body for record in wait_for_messages(client, "Back", 2)] == [b"1", b"end"]
        keys = [
            record.properties.get("TIMER_DEL_UNIQKEY")
            for record in read_messages(client, "rmq_sys_wheel_timer")
        ]
        assert f"Back+{answers[0].ext['transactionId']}" in keys


def test_recalls_are_checked(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        handle = timed(client, "Back", b"x", TIMER_DELAY_MS="300").ext["recallHandle"]
        assert recall(client, "None", handle).code == ResponseCode.TOPIC_NOT_EXIST
        for text in ("", "!", "djI=", "dg", "djEgQmFjaw==", handle[8:]):
            answer = recall(client, "Back", text)
            assert answer.code in (ResponseCode.ILLEGAL_OPERATION, ResponseCode.SYSTEM_ERROR), text
        assert recall(client, "TBW102", handle).remark == "recall failed, topic not match"
        wait_for_messages(client, "Back", 1)
        late = recall(client, "Back", handle)
        assert (late.code, late.remark) == (604, "recall failed, timestamp invalid")


def test_recalls_are_forbidden_unless_enabled(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as client:
        handle = timed(client, "Back", b"x", TIMER_DELAY_SEC="30").ext["recallHandle"]
        answer = recall(client, "Back", handle)
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            "recall failed, operation is forbidden",
        )


def test_tools_see_the_timer_s_progress(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        for _ in range(3):
            timed(client, "Seen", b"x", TIMER_DELAY_SEC="60")
        table = orjson.loads(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
        assert (table["timerCongestNum"], table["timerOffsetBehind"], table["timerReadBehind"]) == (
            "3",
            "0",
            "0",
        )
        assert {"timerEnqueueTps", "timerDequeueTps"} <= table.keys()
        point = client.ask(RequestCode.GET_TIMER_CHECK_POINT).body
        assert len(point) == 56
        assert struct.unpack_from(">qq", point, 16) == (3, 3)
        metrics = orjson.loads(client.ask(RequestCode.GET_TIMER_METRICS).body)
        assert metrics["timingCount"]["Seen"]["count"] == 3


def flood(connection: ClientSocket, topic: str, count: int, deliver_ms: int) -> None:
    properties = f"TIMER_DELIVER_MS\x01{deliver_ms}\x02"
    for start in range(0, count, 500):
        opaques = [
            connection.send_request(
                RequestCode.SEND_MESSAGE_V2, send_ext(topic, i=properties), b"%d" % number
            )
            for number in range(start, min(start + 500, count))
        ]
        assert {connection.answer_to(opaque).code for opaque in opaques} == {0}


@pytest.mark.parametrize(
    ("end", "flush"),
    [
        ("kill", "ASYNC_FLUSH"),
        ("stop", "SYNC_FLUSH"),
        pytest.param("kill", "SYNC_FLUSH", marks=pytest.mark.long),
        pytest.param("stop", "ASYNC_FLUSH", marks=pytest.mark.long),
    ],
)
def test_a_due_slot_continues_after_a_restart(tmp_path: Path, end: str, flush: str) -> None:
    """Ended during the delivery of 3,000 messages of one slot: none lost, none twice, the order kept."""
    count, options = 3000, (*QUICK, "--set", f"flushDiskType={flush}")
    with BrokerProcess(tmp_path / "store", *options) as broker, broker.connect() as client:
        flood(client, "Flood", count, int(time.time() * 1000) + 3000)
        while len(read_messages(client, "Flood")) <= 300:
            time.sleep(0.001)
        broker.kill() if end == "kill" else broker.stop()
    with BrokerProcess(tmp_path / "store", *options) as broker, broker.connect() as client:
        wait_for_messages(client, "Flood", count)
        time.sleep(0.3)
        assert [int(record.body) for record in read_messages(client, "Flood")] == list(range(count))


def test_kills_during_sends_and_deliveries(tmp_path: Path) -> None:
    """Killed five times under load: acknowledged messages are delivered once."""
    answered: list[int] = []
    number = 0
    for _ in range(5):
        with BrokerProcess(tmp_path / "store", *QUICK) as broker, broker.connect() as client:
            for _ in range(300):
                delay = str(number * 37 % 900)
                if timed(client, "Load", b"%d" % number, TIMER_DELAY_MS=delay).code == 0:
                    answered.append(number)
                number += 1
            broker.kill()
    with BrokerProcess(tmp_path / "store", *QUICK) as broker, broker.connect() as client:
        wait_for_messages(client, "Load", len(answered))
        time.sleep(1)
        assert sorted(int(record.body) for record in read_messages(client, "Load")) == answered


def test_thousands_due_at_once_do_not_stall_others(broker: BrokerProcess) -> None:
    with broker.connect() as client, broker.connect() as other:
        flood(client, "Burst", 5000, int(time.time() * 1000) + 3000)
        slowest = 0.0
        max_offset = {"topic": "Burst", "queueId": "0"}
        while True:
            began = time.monotonic()
            answer = other.ask(RequestCode.GET_MAX_OFFSET, max_offset)
            slowest = max(slowest, time.monotonic() - began)
            if answer.ext["offset"] == "5000":
                break
        assert slowest < 0.25
