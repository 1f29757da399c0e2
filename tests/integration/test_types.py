"""Types of messages: a topic may name one, which no broker enforces; trace messages and lite topics, by raw frames."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from tests.support.broker_process import BrokerProcess
from tests.support.messages import read_messages
from tests.support.requests import send_ext, topic_ext


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "store", "--set", "traceTopicEnable=true") as broker:
        yield broker


def test_any_message_goes_to_a_topic_of_any_type(broker: BrokerProcess) -> None:
    """Apache's proxy enforces the types of topics, its broker does not."""
    with broker.connect() as client:
        ext = topic_ext("Typed", 1) | {"attributes": "+message.type=FIFO"}
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0
        for properties in ("", "__SHARDINGKEY\x01k\x02", "_SYS_MSG_PRIORITY_\x013\x02"):
            assert client.ask(RequestCode.SEND_MESSAGE_V2, send_ext("Typed", i=properties), b"x").code == 0
        _, ordered, urgent = read_messages(client, "Typed")
        assert ordered.properties["__SHARDINGKEY"] == "k"
        assert urgent.properties["_SYS_MSG_PRIORITY_"] == "3"


def test_a_topic_of_mixed_types_needs_an_option(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        ext = topic_ext("Mixed", 1) | {"attributes": "+message.type=MIXED"}
        refused = client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
        assert (refused.code, refused.remark) == (
            ResponseCode.INVALID_PARAMETER,
            "MIXED message type is not supported.",
        )
        body = b"enableMixedMessageType=true\n"
        assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body).code == 0
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0


def test_a_lite_topic_is_only_a_property_in_topics_of_another_type(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        assert client.ask(RequestCode.ACK_LITE_MESSAGE).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        properties = "__LITE_TOPIC\x01a room\x02"
        assert client.ask(RequestCode.SEND_MESSAGE_V2, send_ext("Chats", i=properties), b"x").code == 0
        [record] = read_messages(client, "Chats")
        assert record.properties["__LITE_TOPIC"] == "a room"
        assert "INNER_MULTI_DISPATCH" not in record.properties
        ext = topic_ext("Lite", 1) | {"attributes": "+message.type=LITE"}
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0
        refused = client.ask(RequestCode.SEND_MESSAGE_V2, send_ext("Lite", i=properties), b"x")
        assert (refused.code, refused.remark) == (
            ResponseCode.MESSAGE_ILLEGAL,
            "lite topics need enableLmq=true and enableMultiDispatch=true in the broker's configuration",
        )


def test_a_trace_is_found_by_the_id_of_its_message(broker: BrokerProcess) -> None:
    """As `queryMsgTraceById` queries: by key in the trace topic."""
    with broker.connect() as client:
        message_id = "C00002025FFF4E0E2F2A679687CE003A"
        sent = send_ext("RMQ_SYS_TRACE_TOPIC", i=f"KEYS\x01{message_id} order-7\x02")
        assert client.ask(RequestCode.SEND_MESSAGE_V2, sent, b"Pub\x01...").code == 0
        query = {
            "topic": "RMQ_SYS_TRACE_TOPIC",
            "key": message_id,
            "maxNum": "64",
            "beginTimestamp": "0",
            "endTimestamp": str((1 << 63) - 1),
            "_UNIQUE_KEY_QUERY": "false",
        }
        answer = client.ask(RequestCode.QUERY_MESSAGE, query)
        assert answer.code == 0
        assert b"Pub\x01..." in answer.body
        assert client.ask(RequestCode.QUERY_MESSAGE, query | {"key": "other"}).code == 22
