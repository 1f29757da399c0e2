"""Multi-dispatch to LMQs, by raw frames: sent once, read from each queue that the message names."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.store.log.record import Record
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.messages import read_messages, wait_for_messages
from tests.support.requests import SUBSCRIPTION, SUSPEND, pull, pull_ext, send, send_ext, topic_ext
from tests.support.stores import item

ON = "--set", "enableLmq=true", "--set", "enableMultiDispatch=true", "--set", "messageDelayLevel=1s"


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "store", *ON, "--set", f"flushDiskType={request.param}") as broker:
        yield broker


def send_to_lmqs(
    connection: ClientSocket, body: bytes, names: str, topic: str = "Chats", queue_id: int = 0, more: str = ""
) -> RemotingCommand:
    properties = f"INNER_MULTI_DISPATCH\x01{names}\x02WAIT\x01true\x02KEYS\x01k\x02{more}"
    return connection.ask(RequestCode.SEND_MESSAGE_V2, send_ext(topic, queue_id, i=properties), body)


def bodies(found: list[Record]) -> list[bytes]:
    return [record.body for record in found]


def test_a_message_is_in_every_queue_that_it_names(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        for n, names in enumerate(("%LMQ%one,%LMQ%two", "%LMQ%two", "%LMQ%one,%LMQ%two", "%LMQ%two")):
            assert send_to_lmqs(client, b"%d" % n, names, queue_id=n).code == 0
        assert bodies(read_messages(client, "%LMQ%two")) == [b"0", b"1", b"2", b"3"]
        one = read_messages(client, "%LMQ%one")
        assert bodies(one) == [b"0", b"2"]
        assert [(record.topic, record.queue_id, record.queue_offset) for record in one] == [
            ("Chats", 0, 0),
            ("Chats", 2, 0),
        ]
        assert one[1].properties["INNER_MULTI_DISPATCH"] == "%LMQ%one,%LMQ%two"
        assert one[1].properties["INNER_MULTI_QUEUE_OFFSET"] == "1,2"
        assert "WAIT" not in one[1].properties
        assert bodies(read_messages(client, "Chats", 3)) == [b"3"]


def test_a_batch_cannot_say_where_it_is_in_lmqs(broker: BrokerProcess) -> None:
    """Its messages are stored as they come; the same text in a body is no property."""
    offset = b"INNER_MULTI_QUEUE_OFFSET\x010\x02"
    batch = item(b"plain", b"UNIQ_KEY\x01k1\x02") + item(offset, b"INNER_MULTI_DISPATCH\x01%LMQ%one\x02")
    with broker.connect() as client:
        ext = send_ext("Chats", m="true")
        assert client.ask(RequestCode.SEND_BATCH_MESSAGE, ext, batch).code == 0
        batch += item(b"evil", b"INNER_MULTI_DISPATCH\x01%LMQ%one\x02" + offset)
        answer = client.ask(RequestCode.SEND_BATCH_MESSAGE, ext, batch)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.remark == "batch request does not support INNER_MULTI_QUEUE_OFFSET"
        assert read_messages(client, "%LMQ%one") == []
        assert bodies(read_messages(client, "Chats")) == [b"plain", offset]


def test_an_lmq_is_a_topic_that_needs_no_creation(broker: BrokerProcess) -> None:
    """One queue, readable, in no list; its group keeps an offset and is in no list either."""
    with broker.connect() as client:
        send_to_lmqs(client, b"x", "%LMQ%one")
        wrong = pull(client, "%LMQ%one", queue_id=1)
        assert wrong.code == ResponseCode.INVALID_PARAMETER
        for code, what in ((RequestCode.GET_MAX_OFFSET, "offset"), (RequestCode.GET_MIN_OFFSET, "offset")):
            answer = client.ask(code, {"topic": "%LMQ%one", "queueId": "0"})
            assert answer.ext[what] == ("1" if code == RequestCode.GET_MAX_OFFSET else "0")
        ext = {"consumerGroup": "%LMQ%g", "topic": "%LMQ%one", "queueId": "0"}
        commit = client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext | {"commitOffset": "1"})
        assert commit.code == 0, commit.remark
        assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext).ext["offset"] == "1"
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("%LMQ%one", 4)).code == 0
        assert b"LMQ" not in client.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body
        assert b"LMQ" not in client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body


def test_a_held_pull_is_woken_by_an_lmq(broker: BrokerProcess) -> None:
    with broker.connect() as reader, broker.connect() as client:
        ext = pull_ext("%LMQ%one", suspendTimeoutMillis="20000", sysFlag=str(SUSPEND | SUBSCRIPTION))
        waiting = reader.send_request(RequestCode.PULL_MESSAGE, ext)
        pull(reader, "%LMQ%two")  # the first pull was read before this one's answer
        send_to_lmqs(client, b"news", "%LMQ%two,%LMQ%one")
        answer = reader.answer_to(waiting)
        assert (answer.code, answer.ext["nextBeginOffset"]) == (0, "1")


@pytest.mark.parametrize("clean", [False, True])
def test_lmqs_survive_the_broker(tmp_path: Path, clean: bool) -> None:
    with BrokerProcess(tmp_path / "store", *ON) as broker, broker.connect() as client:
        for n in range(20):
            send_to_lmqs(client, b"%d" % n, f"%LMQ%all,%LMQ%{n % 3}", queue_id=n % 4)
        ext = {"consumerGroup": "%LMQ%g", "topic": "%LMQ%all", "queueId": "0", "commitOffset": "17"}
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0
        if clean:
            assert broker.stop() == 0
        else:
            broker.kill()
    if clean:
        written = json.loads((tmp_path / "store" / "config" / "lmqConsumerOffset.json").read_text())
        assert written["lmqOffsetTable"] == {"%LMQ%all@%LMQ%g": 17}
    with BrokerProcess(tmp_path / "store", *ON) as broker, broker.connect() as client:
        assert bodies(read_messages(client, "%LMQ%all")) == [b"%d" % n for n in range(20)]
        assert bodies(read_messages(client, "%LMQ%1")) == [b"%d" % n for n in range(1, 20, 3)]
        assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext).ext["offset"] == "17"
        assert send_to_lmqs(client, b"20", "%LMQ%all").code == 0
        assert read_messages(client, "%LMQ%all")[-1].properties["INNER_MULTI_QUEUE_OFFSET"] == "20"


def test_a_delayed_message_is_dispatched_when_it_is_due(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        assert send_to_lmqs(client, b"late", "%LMQ%one", more="DELAY\x011\x02").code == 0
        assert read_messages(client, "%LMQ%one") == []
        [record] = wait_for_messages(client, "%LMQ%one", 1)
        assert (record.body, record.topic) == (b"late", "Chats")


def test_invalid_names(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        for names in ("plain", "%LMQ%one,plain", "%LMQ%a/b", "%LMQ%" + "x" * 300, ","):
            answer = send_to_lmqs(client, b"x", names)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert "INNER_MULTI_DISPATCH" in str(answer.remark)
        assert send_to_lmqs(client, b"twice", "%LMQ%one,%LMQ%one").code == 0
        assert send_to_lmqs(client, b"own", "%LMQ%one,%LMQ%two", topic="%LMQ%one").code == 0
        assert bodies(read_messages(client, "%LMQ%one")) == [b"twice", b"own"]
        assert bodies(read_messages(client, "%LMQ%two")) == [b"own"]
        assert read_messages(client, "Chats", 1) == []


def test_lmqs_are_bounded(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "store", *ON, "--set", "maxLmqConsumeQueueNum=2") as broker,
        broker.connect() as client,
    ):
        assert send_to_lmqs(client, b"1", "%LMQ%one").code == 0
        answer = send_to_lmqs(client, b"2", "%LMQ%two,%LMQ%three")
        assert answer.code == ResponseCode.LMQ_QUOTA_EXCEEDED
        assert answer.remark == "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]lmq consume queue num exceeded."
        assert send_to_lmqs(client, b"3", "%LMQ%two").code == 0
        assert send_to_lmqs(client, b"4", "%LMQ%one,%LMQ%two").code == 0
        assert bodies(read_messages(client, "%LMQ%two")) == [b"3", b"4"]


@pytest.mark.parametrize("options", [(), ("--set", "enableLmq=true"), ("--set", "enableMultiDispatch=true")])
def test_without_both_options_names_are_ignored(tmp_path: Path, options: tuple[str, ...]) -> None:
    with BrokerProcess(tmp_path / "store", *options) as broker, broker.connect() as client:
        assert send_to_lmqs(client, b"x", "%LMQ%one,plain").code == 0
        [record] = read_messages(client, "Chats")
        assert "INNER_MULTI_QUEUE_OFFSET" not in record.properties
        assert "enableLmq=true" in options or pull(client, "%LMQ%one").code == ResponseCode.TOPIC_NOT_EXIST
        assert send(client, "Chats", b"plain").code == 0
