"""CONSUMER_SEND_MSG_BACK, retry topics and dead letters, by raw frames."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.messages import read_messages, wait_for_messages
from tests.support.requests import send, send_ext

LEVELS = "--set", "messageDelayLevel=1s 1s 1s 1s 1s 1s"
GROUP = "Workers"
RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "store", *LEVELS) as broker:
        yield broker


def offset_in(message_id: str) -> str:
    return str(int(message_id[-16:], 16))


def back(connection: ClientSocket, offset: str, level: int = 0, **more: str) -> RemotingCommand:
    ext = {
        "offset": offset,
        "group": GROUP,
        "delayLevel": str(level),
        "originTopic": "Work",
        "unitMode": "false",
    }
    return connection.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext | more)


def test_a_message_is_redelivered_through_the_retry_topic(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        sent = client.ask(
            RequestCode.SEND_MESSAGE_V2, send_ext("Work", i="KEYS\x01k\x02TAGS\x01t\x02"), b"hard"
        )
        assert back(client, offset_in(sent.ext["msgId"])).code == 0
        [record] = wait_for_messages(client, RETRY, 1)
        properties = record.properties
        assert record.body == b"hard"
        assert record.reconsume_times == 1
        assert properties["RETRY_TOPIC"] == "Work"
        assert properties["ORIGIN_MESSAGE_ID"] == sent.ext["msgId"]
        assert (properties["DELAY"], properties["WAIT"], properties["KEYS"]) == ("3", "false", "k")
        assert back(client, str(record.physical_offset)).code == 0
        _, again = wait_for_messages(client, RETRY, 2)
        assert again.reconsume_times == 2
        assert again.properties["ORIGIN_MESSAGE_ID"] == sent.ext["msgId"]
        assert again.properties["DELAY"] == "4"


def test_a_negative_level_goes_to_the_dead_letters(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        sent = send(client, "Work", b"hopeless")
        assert back(client, offset_in(sent.ext["msgId"]), level=-1).code == 0
        [record] = read_messages(client, DEAD)
        assert (record.body, record.reconsume_times, record.properties["DELAY"]) == (b"hopeless", 1, "0")
        assert record.properties["RETRY_TOPIC"] == "Work"


def test_too_many_retries_go_to_the_dead_letters(broker: BrokerProcess) -> None:
    """`maxReconsumeTimes` of the request, for a client version that means it."""
    with broker.connect() as client:
        sent = send(client, "Work", b"x")
        offset = offset_in(sent.ext["msgId"])
        assert back(client, offset, level=1, maxReconsumeTimes="1").code == 0
        [record] = wait_for_messages(client, RETRY, 1)
        assert back(client, str(record.physical_offset), level=1, maxReconsumeTimes="1").code == 0
        [dead] = read_messages(client, DEAD)
        assert dead.reconsume_times == 2


def test_refusals(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        sent = send(client, "Work", b"x")
        offset = offset_in(sent.ext["msgId"])
        lost = back(client, str(10**12))
        assert (lost.code, lost.remark) == (1, f"look message by offset failed, {10**12}")
        assert back(client, str(int(offset) + 1)).code == 1
        assert back(client, "-5").code == 1
        assert back(client, offset, group="no/such").code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert read_messages(client, RETRY) == []


def test_without_retry_queues_a_message_is_dropped(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        client.ask(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            body=b'{"groupName":"Workers","retryQueueNums":0}',
        )
        sent = send(client, "Work", b"x")
        assert back(client, offset_in(sent.ext["msgId"])).code == 0
        stats = client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "SCHEDULE_TOPIC_XXXX", "queueId": "2"})
        assert stats.ext["offset"] == "0"


def test_the_retry_topic_of_a_closed_group_is_refused(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        sent = send(client, "Work", b"x")
        ext = {
            "topic": RETRY,
            "defaultTopic": "TBW102",
            "readQueueNums": "1",
            "writeQueueNums": "1",
            "perm": "4",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0
        answer = back(client, offset_in(sent.ext["msgId"]))
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == f"the topic[{RETRY}] sending message is forbidden"


def test_a_client_that_sends_to_the_retry_topic_itself(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        unknown = client.ask(RequestCode.SEND_MESSAGE_V2, send_ext("%RETRY%no.such"), b"x")
        assert unknown.code == ResponseCode.INVALID_PARAMETER
        ext = send_ext(RETRY, i="DELAY\x011\x02RETRY_TOPIC\x01Work\x02", j="1", l="16")
        assert client.ask(RequestCode.SEND_MESSAGE_V2, ext, b"again").code == 0
        [record] = wait_for_messages(client, RETRY, 1)
        assert (record.body, record.reconsume_times) == (b"again", 1)
        ext = send_ext(RETRY, i="DELAY\x011\x02RETRY_TOPIC\x01Work\x02", j="17", l="16")
        assert client.ask(RequestCode.SEND_MESSAGE_V2, ext, b"over").code == 0
        [dead] = read_messages(client, DEAD)
        assert (dead.body, dead.properties["DELAY"]) == (b"over", "-1")


def test_retries_of_a_group_that_consumes_in_order_are_dead_letters(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        body = b'{"consumerGroup":"Workers","clientId":"c","mqSet":[{"topic":"Work","brokerName":"%s","queueId":0}]}'
        assert client.ask(RequestCode.LOCK_BATCH_MQ, body=body % b"b").code == 0
        ext = send_ext(RETRY, i="DELAY\x011\x02", j="1", l="16")
        assert client.ask(RequestCode.SEND_MESSAGE_V2, ext, b"ordered").code == 0
        assert [record.body for record in read_messages(client, DEAD)] == [b"ordered"]
