"""The wall clock is set, by a day forward or back, under a running broker: nothing is lost or stuck."""

import time
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from tests.faults.acknowledged_messages import AcknowledgedMessages
from tests.faults.shim import Shim
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import pull, pull_ext, read_queue, send_ext, topic_ext

DAY_S = 86_400
SMALL_INDEX = (
    "--set",
    "maxHashSlotNum=10",
    "--set",
    "maxIndexNum=20",
    "--set",
    "flushIntervalConsumeQueue=20",
)
HOUR_S = 3600


def send_with(connection: ClientSocket, topic: str, body: bytes, **properties: str) -> None:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    answer = connection.ask(RequestCode.SEND_MESSAGE_V2, send_ext(topic, i=text), body)
    assert answer.code == 0, answer.remark


def count(connection: ClientSocket, topic: str) -> int:
    return len(read_queue(connection, topic, 0))


@pytest.mark.parametrize("by_s", [-DAY_S])
def test_messages_keys_and_a_kill(tmp_path: Path, by_s: int) -> None:
    """Neither new index files, named after the time, nor the checkpoint wait until the clock is right again."""
    acknowledged, shim = AcknowledgedMessages(), Shim(tmp_path)
    with (
        BrokerProcess(tmp_path / "store", *SMALL_INDEX, environment=shim.environment) as broker,
        broker.connect() as connection,
    ):
        for set_to in (0, by_s, 0, by_s):
            shim.set_clock(set_to)
            begun = time.monotonic()
            for number in range(40):
                send_with(connection, "K", b"%d" % number, KEYS=f"{set_to}-{number}")
                assert acknowledged.send(connection, "T") == 0
            assert time.monotonic() - begun < 5, "an index file is waited for"
        for number in (0, 39):
            ext = {
                "topic": "K",
                "key": f"{by_s}-{number}",
                "maxNum": "64",
                "beginTimestamp": "0",
                "endTimestamp": str(1 << 62),
            }
            assert connection.ask(RequestCode.QUERY_MESSAGE, ext).code == 0
        broker.kill()
    with BrokerProcess(tmp_path / "store", *SMALL_INDEX) as broker, broker.connect() as connection:
        acknowledged.check(connection)
        assert count(connection, "K") == 160


@pytest.mark.parametrize("by_s", [DAY_S, -DAY_S])
def test_held_requests_are_answered_in_time(tmp_path: Path, by_s: int) -> None:
    """Held pulls and pops use monotonic time; clients and locks do not expire by the wall clock."""
    shim = Shim(tmp_path)
    with (
        BrokerProcess(tmp_path / "store", environment=shim.environment) as broker,
        broker.connect() as pulling,
        broker.connect() as popping,
    ):
        assert popping.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("T", 1)).code == 0
        lock = b'{"clientId":"me","consumerGroup":"CG","mqSet":[{"brokerName":"b","queueId":0,"topic":"T"}]}'
        assert b'"queueId":0' in popping.ask(RequestCode.LOCK_BATCH_MQ, body=lock).body
        assert pull(pulling, "T").code == ResponseCode.PULL_NOT_FOUND
        begun = time.monotonic()
        held_pull = pulling.send_request(
            RequestCode.PULL_MESSAGE, pull_ext("T", sysFlag="6", suspendTimeoutMillis="1500")
        )
        held_pop = popping.send_request(RequestCode.POP_MESSAGE, pop_fields("T", 1500))
        with broker.connect() as another:  # both are held when this is answered
            assert another.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}).code == 0
            shim.set_clock(by_s)
            assert pulling.answer_to(held_pull).code == ResponseCode.PULL_NOT_FOUND
            assert popping.answer_to(held_pop).code != 0
            assert 1 < time.monotonic() - begun < 10
            other = lock.replace(b"me", b"other")
            assert b'"queueId":0' not in another.ask(RequestCode.LOCK_BATCH_MQ, body=other).body


def pop_fields(topic: str, poll_ms: int) -> dict[str, str]:
    return {
        "consumerGroup": "PG",
        "topic": topic,
        "queueId": "-1",
        "maxMsgNums": "8",
        "invisibleTime": "10000",
        "pollTime": str(poll_ms),
        "bornTime": str(time.time_ns() // 1_000_000),
        "initMode": "0",
        "exp": "*",
        "expType": "TAG",
        "order": "false",
    }


def test_delayed_messages_are_delivered_though_the_clock_was_set(tmp_path: Path) -> None:
    """Forward: it is due at once. Back: a level waits no longer than its delay, a timer until its time."""
    shim = Shim(tmp_path)
    with (
        BrokerProcess(tmp_path / "store", environment=shim.environment) as broker,
        broker.connect() as connection,
    ):
        send_with(connection, "Delayed", b"an hour", DELAY="17")
        send_with(connection, "Timed", b"half an hour", TIMER_DELAY_SEC="1800")
        shim.set_clock(HOUR_S + 60)
        eventually(lambda: count(connection, "Delayed") == 1)
        eventually(lambda: count(connection, "Timed") == 1)
        send_with(connection, "Delayed", b"a second", DELAY="1")
        send_with(connection, "Timed", b"three seconds", TIMER_DELAY_SEC="3")
        shim.set_clock(-HOUR_S)
        eventually(lambda: count(connection, "Delayed") == 2)
        shim.set_clock(HOUR_S + 70)
        eventually(lambda: count(connection, "Timed") == 2)
        assert broker.stop() == 0
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        assert (count(connection, "Delayed"), count(connection, "Timed")) == (2, 2)
