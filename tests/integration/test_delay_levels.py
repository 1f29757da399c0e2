"""Delay levels: the order of a level, times, restart, kill, and what the stored messages look like."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.messages import read_messages, wait_for_messages
from tests.support.requests import send_ext

LEVELS = "--set", "messageDelayLevel=1s 2s 3s 1h"


def delayed(
    connection: ClientSocket, topic: str, body: bytes, level: int, queue_id: int = 0, **more: str
) -> tuple[str, int]:
    """Send it; the response's offset id and queue offset, which are those of the schedule topic."""
    properties = f"DELAY\x01{level}\x02TAGS\x01t\x02WAIT\x01true\x02"
    answer = connection.ask(
        RequestCode.SEND_MESSAGE_V2, send_ext(topic, queue_id, i=properties, **more), body
    )
    assert answer.code == 0, answer.remark
    assert answer.ext["queueId"] == str(queue_id)
    return answer.ext["msgId"], int(answer.ext["queueOffset"])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "store", *LEVELS) as broker:
        yield broker


def test_a_delayed_message_is_delivered_when_it_is_due(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        began = time.time()
        delayed(client, "Later", b"one second", 1, queue_id=2)
        assert read_messages(client, "Later", 2) == []
        while not (found := read_messages(client, "Later", 2)):
            time.sleep(0.01)
        assert 0.95 <= time.time() - began < 2.5
        [record] = found
        assert record.body == b"one second"
        properties = record.properties
        assert (properties["DELAY"], properties["REAL_TOPIC"], properties["REAL_QID"]) == ("1", "Later", "2")
        assert (properties["TAGS"], properties["WAIT"]) == ("t", "true")
        [scheduled] = read_messages(client, "SCHEDULE_TOPIC_XXXX")
        assert scheduled.properties == properties
        assert scheduled.born_timestamp == record.born_timestamp
        assert record.store_timestamp >= scheduled.store_timestamp + 1000


def test_a_level_keeps_its_order_and_levels_do_not_wait_for_each_other(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        for number in range(200):
            delayed(client, "Order", b"%d" % number, 1 + number % 2)
        found = [int(record.body) for record in wait_for_messages(client, "Order", 200)]
        for level in (0, 1):
            of_level = [number for number in found if number % 2 == level]
            assert of_level == sorted(of_level)
            assert len(of_level) == 100


def test_levels_above_the_highest_are_the_highest(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        delayed(client, "High", b"x", 99)
        [record] = read_messages(client, "SCHEDULE_TOPIC_XXXX", 3)
        assert record.properties["DELAY"] == "4"


@pytest.mark.parametrize("level", ["0", "-3"])
def test_invalid_levels(broker: BrokerProcess, level: str) -> None:
    with broker.connect() as client:
        ext = send_ext("Now", i=f"DELAY\x01{level}\x02")
        assert client.ask(RequestCode.SEND_MESSAGE_V2, ext, b"now").code == 0
        assert [record.body for record in read_messages(client, "Now")] == [b"now"]


@pytest.mark.parametrize("level", ["soon", "1.5", "9" * 40])
def test_a_level_that_is_not_a_number_is_refused(broker: BrokerProcess, level: str) -> None:
    with broker.connect() as client:
        ext = send_ext("Now", i=f"DELAY\x01{level}\x02")
        answer = client.ask(RequestCode.SEND_MESSAGE_V2, ext, b"now")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "DELAY" in str(answer.remark)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_deliveries_continue_after_a_restart(tmp_path: Path, end: str) -> None:
    """Stopped in the middle of 3,000 messages that are due together: none lost, none twice, order kept."""
    count = 3000
    with BrokerProcess(tmp_path / "store", *LEVELS) as broker, broker.connect() as client:
        opaques = [
            client.send_request(
                RequestCode.SEND_MESSAGE_V2, send_ext("Flood", i="DELAY\x011\x02"), b"%d" % number
            )
            for number in range(count)
        ]
        assert {client.answer_to(opaque).code for opaque in opaques} == {0}
        while len(read_messages(client, "Flood")) <= 300:
            time.sleep(0.001)
        broker.kill() if end == "kill" else broker.stop()
    with BrokerProcess(tmp_path / "store", *LEVELS) as broker, broker.connect() as client:
        wait_for_messages(client, "Flood", count)
        time.sleep(0.3)
        assert [int(record.body) for record in read_messages(client, "Flood")] == list(range(count))


def test_a_thousand_due_at_once_do_not_stall_others(broker: BrokerProcess) -> None:
    with broker.connect() as client, broker.connect() as other:
        for _ in range(2000):
            client.send_request(RequestCode.SEND_MESSAGE_V2, send_ext("Burst", i="DELAY\x011\x02"), b"x")
        for _ in range(2000):
            client.receive()
        slowest = 0.0
        while len(read_messages(client, "Burst")) < 2000:
            began = time.monotonic()
            other.ask(RequestCode.GET_MAX_OFFSET, {"topic": "Burst", "queueId": "0"})
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 1
