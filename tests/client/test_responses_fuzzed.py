"""Any input from outside is read, or refused with an error of ours; nothing else is ever raised."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.client.admin_api import records
from firearrow.client.admin_api.message_queries import decode_offset_id
from firearrow.client.admin_api.records import Members, read
from firearrow.client.base.errors import ClientError, MessageRefused
from firearrow.client.send.recall import RecallHandle
from firearrow.client.send.request_reply import reply_of
from firearrow.client.trace.records import InvalidTrace, MessageKind, PubRecord, decode
from tests.client.test_request_reply import PUSH
from tests.support.examples import examples

READERS: list[Callable[[Members], object]] = [
    records.cluster_info,
    records.topic_config,
    records.group_config,
    records.groups,
    records.topic_stats,
    records.consumer_lag,
    records.consumer_connections,
    records.reset_offsets,
    records.texts,
]
NAMES = [
    "brokerAddrTable",
    "brokerAddrs",
    "clusterAddrTable",
    "offsetTable",
    "brokerOffset",
    "consumerOffset",
    "connectionSet",
    "subscriptionTable",
    "subscriptionGroupTable",
    "attributes",
    "table",
    "topicName",
    "consumeTps",
    "0",
    "version",
    '{"brokerName":"b","queueId":0,"topic":"t"}',
    "retryMaxTimes",
    "consumeEnable",
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
WORDS = st.text(st.characters(blacklist_characters="\x01\x02", blacklist_categories=["Cs"]), max_size=12)
RUNS = examples(150)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@RUNS
@given(value=VALUES)
def test_bodies_of_brokers(reader: Callable[[Members], object], value: object) -> None:
    try:
        read(json.dumps(value).encode(), reader)
    except ClientError:
        return
    assert isinstance(value, dict)


@RUNS
@given(body=st.binary(max_size=60))
def test_bodies_that_are_no_json(body: bytes) -> None:
    try:
        read(body, records.cluster_info)
    except ClientError:
        return


@RUNS
@given(
    text=st.lists(
        st.sampled_from(
            ["Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall", "1", "-", "null", "true", "٣"]
        )
        | st.sampled_from(["\x01", "\x02"]),
        max_size=40,
    ).map("".join)
)
def test_traces(text: str) -> None:
    try:
        decode(text)
    except InvalidTrace:
        return


@RUNS
@given(
    words=st.tuples(WORDS, WORDS, WORDS, WORDS),
    numbers=st.tuples(st.integers(0, 1 << 62), st.integers(0, 1 << 30)),
)
def test_what_is_written_is_read_again(words: tuple[str, str, str, str], numbers: tuple[int, int]) -> None:
    words = tuple(word if word != "null" else "" for word in words)  # type: ignore[assignment]
    record = PubRecord(
        numbers[0],
        words[0],
        words[1],
        words[2],
        words[3],
        words[0],
        None,
        words[1],
        numbers[1],
        numbers[1],
        MessageKind.HALF,
        None,
        False,
    )
    assert decode(record.encode()) == [record]


@RUNS
@given(
    name=st.sampled_from(sorted(PUSH)),
    value=st.text(max_size=12) | st.integers().map(str),
    body=st.binary(max_size=20),
)
def test_replies(name: str, value: str, body: bytes) -> None:
    push = RemotingCommand.request(
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, PUSH | {name: value, "sysFlag": PUSH["sysFlag"]}, body
    )
    try:
        reply = reply_of(push, 0)
    except (FieldError, ClientError):
        return
    assert isinstance(reply, ReceivedMessage)
    assert reply.body == body


@RUNS
@given(
    text=st.text(max_size=60)
    | st.binary(min_size=28, max_size=28).map(bytes.hex)
    | st.binary(min_size=16, max_size=16).map(bytes.hex)
)
def test_ids_and_handles(text: str) -> None:
    for decoded in (decode_offset_id, RecallHandle.decode):
        try:
            decoded(text)
        except (ClientError, MessageRefused):
            continue
