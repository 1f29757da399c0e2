"""SEND_REPLY_MESSAGE by raw frames: the reply goes to the requesting client, and into the reply topic."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.messages import read_messages
from tests.support.requests import send_ext

REPLIES = "DefaultCluster_REPLY_TOPIC"


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "store", "--set", f"flushDiskType={request.param}") as broker:
        yield broker


def register(connection: ClientSocket, client_id: str, *groups: str) -> None:
    body = {
        "clientID": client_id,
        "producerDataSet": [{"groupName": name} for name in groups],
        "consumerDataSet": [],
    }
    assert connection.ask(RequestCode.HEART_BEAT, body=json.dumps(body).encode()).code == 0


def reply_ext(client_id: str | None = "asker@1", queue_id: int = 0, topic: str = REPLIES) -> dict[str, str]:
    to = f"REPLY_TO_CLIENT\x01{client_id}\x02" if client_id else ""
    return send_ext(topic, queue_id, i=f"MSG_TYPE\x01reply\x02CORRELATION_ID\x01c-1\x02{to}", f="257")


def answer_push(asker: ClientSocket, seen: list[RemotingCommand], code: int = 0) -> threading.Thread:
    """In a thread: receive one request of the broker and answer it."""

    def run() -> None:
        request = asker.receive()
        seen.append(request)
        asker.send_raw(request.answer(code).encode())

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
def test_a_reply_reaches_the_requester_and_is_stored(broker: BrokerProcess, code: int) -> None:
    long_names = {
        "a": "producerGroup",
        "b": "topic",
        "c": "defaultTopic",
        "d": "defaultTopicQueueNums",
        "e": "queueId",
        "f": "sysFlag",
        "g": "bornTimestamp",
        "h": "flag",
        "i": "properties",
        "j": "reconsumeTimes",
        "k": "unitMode",
        "m": "batch",
    }
    ext = reply_ext()
    if code == RequestCode.SEND_REPLY_MESSAGE:
        ext = {long_names[key]: value for key, value in ext.items()}
    with broker.connect() as asker, broker.connect() as replier:
        register(asker, "asker@1", "PG_ASKER", "CLIENT_INNER_PRODUCER")
        seen: list[RemotingCommand] = []
        thread = answer_push(asker, seen)
        answer = replier.ask(code, ext, b"the reply")
        thread.join(10)
        [push] = seen
        host, port = replier.socket.getsockname()
        assert (push.code, push.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"the reply")
        assert push.ext["bornHost"] == f"{host}:{port}"
        assert push.ext["storeHost"] == f"127.0.0.1:{broker.address[1]}"
        assert (push.ext["topic"], push.ext["sysFlag"], push.ext["producerGroup"]) == (REPLIES, "257", "PG")
        assert "PUSH_REPLY_TIME\x01" in push.ext["properties"]
        assert "CORRELATION_ID\x01c-1\x02" in push.ext["properties"]
        assert answer.code == 0
        assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("0", "0")
        [record] = read_messages(replier, REPLIES)
        assert answer.ext["msgId"].endswith(f"{record.physical_offset:016X}")
        assert record.body == b"the reply"
        assert record.properties["MSG_REGION"] == "DefaultRegion"
        assert "PUSH_REPLY_TIME" not in record.properties


def test_a_reply_without_a_receiver_is_still_stored(broker: BrokerProcess) -> None:
    with broker.connect() as replier:
        answer = replier.ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply_ext("gone@1"), b"x")
        assert (answer.code, answer.remark) == (1, "push reply message fail, channel of <gone@1> not found.")
        answer = replier.ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply_ext(None), b"y")
        assert (answer.code, answer.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")
        assert [record.body for record in read_messages(replier, REPLIES)] == [b"x", b"y"]


def test_a_client_that_refuses_its_reply(broker: BrokerProcess) -> None:
    with broker.connect() as asker, broker.connect() as replier:
        register(asker, "asker@1", "PG_ASKER")
        thread = answer_push(asker, [], code=1)
        answer = replier.ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply_ext(), b"x")
        thread.join(10)
        assert (answer.code, answer.remark) == (1, "push reply message to asker@1fail.")


def test_an_unregistered_client_gets_no_reply(broker: BrokerProcess) -> None:
    """Still known while one of its producer groups is registered."""
    with broker.connect() as asker, broker.connect() as replier:
        register(asker, "asker@1", "PG_ONE", "PG_TWO")
        leave = {"clientID": "asker@1", "producerGroup": "PG_ONE"}
        assert asker.ask(RequestCode.UNREGISTER_CLIENT, leave).code == 0
        thread = answer_push(asker, [])
        assert replier.ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply_ext(), b"x").code == 0
        thread.join(10)
        assert asker.ask(RequestCode.UNREGISTER_CLIENT, leave | {"producerGroup": "PG_TWO"}).code == 0
        answer = replier.ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply_ext(), b"x")
        assert answer.remark == "push reply message fail, channel of <asker@1> not found."


def test_a_client_that_disconnects_during_the_push(broker: BrokerProcess) -> None:
    with broker.connect() as replier:
        with broker.connect() as asker:
            register(asker, "asker@1", "PG_ASKER")
            opaque = replier.send_request(RequestCode.SEND_REPLY_MESSAGE_V2, reply_ext(), b"x")
            assert asker.receive().code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        answer = replier.answer_to(opaque)
        assert (answer.code, answer.remark) == (1, "push reply message to asker@1fail.")


def test_replies_need_not_be_stored(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "store", "--set", "storeReplyMessageEnable=false") as broker,
        broker.connect() as asker,
        broker.connect() as replier,
    ):
        register(asker, "asker@1", "PG_ASKER")
        thread = answer_push(asker, [])
        answer = replier.ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply_ext(), b"x")
        thread.join(10)
        assert (answer.code, answer.ext["msgId"], answer.ext["queueOffset"]) == (0, "0", "0")
        assert read_messages(replier, REPLIES) == []


def test_waiting_replies_are_bounded(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "store", "--set", "maxReplyBytesWaiting=65536") as broker,
        broker.connect() as asker,
        broker.connect() as replier,
    ):
        register(asker, "asker@1", "PG_ASKER")
        first = replier.send_request(RequestCode.SEND_REPLY_MESSAGE_V2, reply_ext(), b"x" * 65_536)
        assert asker.receive().body == b"x" * 65_536
        answer = replier.ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply_ext(), b"y")
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert (
            answer.remark
            == "replies of 65536 bytes are waiting for their clients, at most 65536 bytes are allowed"
        )
        asker.close()
        assert replier.answer_to(first).code == 1


def test_a_reply_to_a_forbidden_topic_is_refused(broker: BrokerProcess) -> None:
    with broker.connect() as replier:
        answer = replier.ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply_ext(topic="SCHEDULE_TOPIC_XXXX"), b"x")
        assert answer.code == ResponseCode.NO_PERMISSION
        answer = replier.ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply_ext(queue_id=9), b"x")
        assert answer.code == ResponseCode.INVALID_PARAMETER
