"""Messages of a pull response: decoded on demand, as Apache's, and never trusted."""

import copy
import json
import pickle
import struct
from collections.abc import Iterator, Set

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow._native.store.log.received_message import ReceivedMessage, decode_messages
from firearrow._native.store.log.record import RecordError
from firearrow._native.store.log.record import decode as decode_record
from firearrow._native.wire.command import RemotingCommand
from tests.golden import whole_frames

HOST_V4 = bytes([10, 0, 0, 7]) + struct.pack(">i", 5000)
HOST_V6 = bytes(15) + b"\x01" + struct.pack(">i", 6000)
PULLS = ("PULL_MESSAGE", "POP_MESSAGE", "LITE_PULL_MESSAGE")


def record(
    body: bytes = b"body",
    topic: bytes = b"T",
    properties: bytes = b"",
    *,
    queue_offset: int = 5,
    sys_flag: int = 0,
    flag: int = 9,
) -> bytes:
    born = HOST_V6 if sys_flag & 0x10 else HOST_V4
    store = HOST_V6 if sys_flag & 0x20 else HOST_V4
    wide = len(topic) > 127
    rest = struct.pack(">iiiqqiq", 0, 3, flag, queue_offset, 4096, sys_flag, 1000) + born
    rest += struct.pack(">q", 2000) + store + struct.pack(">iqi", 2, 77, len(body)) + body
    rest += (
        struct.pack(">h" if wide else ">B", len(topic))
        + topic
        + struct.pack(">h", len(properties))
        + properties
    )
    return struct.pack(">ii", 8 + len(rest), -626843477 if wide else -626843481) + rest


def item(body: bytes, properties: bytes = b"", flag: int = 0) -> bytes:
    size = 22 + len(body) + len(properties)
    return (
        struct.pack(">iiiii", size, 0, 0, flag, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
    )


def plain(sys_flag: int, stored: bytes) -> bytes:
    raise AssertionError("not compressed")


def decoded(
    body: bytes,
    *,
    queue: object = None,
    min_offset: int | None = None,
    max_offset: int | None = None,
    offset_delta: int = 0,
    tags: Set[str] | None = None,
) -> list[ReceivedMessage]:
    return decode_messages(
        body,
        "broker-a",
        plain,
        queue=queue,
        min_offset=min_offset,
        max_offset=max_offset,
        offset_delta=offset_delta,
        tags=tags,
    )


def everything(message: ReceivedMessage) -> dict[str, object]:
    names = [
        name for name in dir(ReceivedMessage) if not name.startswith("_") and not name.endswith("_property")
    ]
    return {name: getattr(message, name) for name in names}


def pulled() -> Iterator[bytes]:
    for _, recorded, raw in whole_frames():
        if recorded.line["kind"] == "response" and recorded.line.get("answers") in PULLS:
            body = RemotingCommand.decode(raw).body
            if recorded.line["code"] == 0 and body:
                yield body


def test_a_message_shows_every_field_of_its_record() -> None:
    properties = b"TAGS\x01new\x02KEYS\x01a b\x02UNIQ_KEY\x01ID\x02TRAN_MSG\x01TRUE\x02"
    (message,) = decoded(record(b"\0body\xff", "Täst".encode(), properties))
    assert everything(message) == {
        "topic": "Täst",
        "body": b"\0body\xff",
        "body_bytes": 6,
        "body_crc": 0,
        "store_size": 146,
        "broker_name": "broker-a",
        "queue": None,
        "queue_id": 3,
        "queue_offset": 5,
        "physical_offset": 4096,
        "flag": 9,
        "sys_flag": 0,
        "reconsume_times": 2,
        "born_timestamp": 1000,
        "store_timestamp": 2000,
        "born_host": "10.0.0.7:5000",
        "store_host": "10.0.0.7:5000",
        "prepared_transaction_offset": 77,
        "message_id": "ID",
        "offset_message_id": "0A00000700001388" + "0000000000001000",
        "transaction_id": "ID",
        "tags": "new",
        "keys": ("a", "b"),
        "properties": {"TAGS": "new", "KEYS": "a b", "UNIQ_KEY": "ID", "TRAN_MSG": "TRUE"},
    }


@pytest.mark.parametrize(
    ("sys_flag", "born", "store"),
    [
        (0x10, "[::1]:6000", "10.0.0.7:5000"),
        (0x20, "10.0.0.7:5000", "[::1]:6000"),
        (0x30, "[::1]:6000", "[::1]:6000"),
    ],
)
def test_hosts_of_either_family_are_read(sys_flag: int, born: str, store: str) -> None:
    (message,) = decoded(record(sys_flag=sys_flag))
    assert (message.born_host, message.store_host, message.store_timestamp) == (born, store, 2000)
    assert (message.prepared_transaction_offset, message.body) == (77, b"body")
    assert len(message.message_id) == (56 if sys_flag & 0x20 else 32)


def test_a_long_topic_is_read() -> None:
    assert decoded(record(topic=b"t" * 200))[0].topic == "t" * 200


def test_topics_of_one_answer_may_differ() -> None:
    body = record(topic=b"one") + record(topic=b"two") + record(topic=b"one") + record(topic=b"\xff\xfe") * 2
    assert [message.topic for message in decoded(body)] == [
        "one",
        "two",
        "one",
        "\ufffd\ufffd",
        "\ufffd\ufffd",
    ]


def test_properties_are_read_as_apache_reads_them() -> None:
    text = b"a\x01\x02\x01x\x02b\x01one\x02junk\x02\x02b\x01two\x02last\x01end"
    (message,) = decoded(record(properties=text))
    assert message.get_property("b") == "two"
    assert [message.get_property(name) for name in ("a", "", "junk", "last")] == [None, None, None, "end"]
    assert message.properties == {"b": "two", "last": "end"}


def test_changed_properties_are_kept_and_visible_everywhere() -> None:
    (message,) = decoded(record(properties=b"TAGS\x01old\x02a\x011\x02"), min_offset=3, max_offset=70)
    message.put_property("TAGS", "new")
    message.put_property("KEYS", "k")
    assert (message.tags, message.keys, message.get_property("MAX_OFFSET")) == ("new", ("k",), "70")
    message.put_property("MAX_OFFSET", "80")
    assert message.get_property("MAX_OFFSET") == "80"
    expected = {"TAGS": "new", "a": "1", "MIN_OFFSET": "3", "MAX_OFFSET": "80", "KEYS": "k"}
    assert message.properties == expected
    message.put_property("b", "2")
    message.properties["TAGS"] = "newest"
    del message.properties["a"]
    assert (message.tags, message.get_property("a"), message.get_property("a", "x")) == ("newest", None, "x")
    assert message.properties["b"] == "2"


def test_the_requested_queue_is_set_and_offsets_are_shifted() -> None:
    class Queue:
        queue_id = 11

    queue = Queue()
    (message,) = decoded(record(), queue=queue, offset_delta=100)
    assert (message.queue, message.queue_id, message.queue_offset) == (queue, 11, 105)


def test_only_messages_with_a_wanted_tag_are_kept() -> None:
    bodies = [
        record(b"1", properties=b"TAGS\x01a\x02"),
        record(b"2"),
        record(b"3", properties=b"TAGS\x01b\x02"),
    ]
    assert [message.body for message in decoded(b"".join(bodies), tags={"b", "c"})] == [b"3"]
    assert len(decoded(b"".join(bodies), tags=frozenset())) == 3


def test_a_compressed_body_is_decompressed_once() -> None:
    calls = []

    def opener(sys_flag: int, stored: bytes) -> bytes:
        calls.append((sys_flag, stored))
        return b"open"

    (message,) = decode_messages(record(b"packed", sys_flag=0x301), "b", opener)
    assert calls == []
    assert (message.body, message.body, message.body_bytes) == (b"open", b"open", 6)
    assert calls == [(0x301, b"packed")]


@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
def test_a_copy_is_equal_and_keeps_only_its_own_bytes(sys_flag: int) -> None:
    inner = item(b"one", b"TAGS\x01x\x02", flag=4) + item(b"", b"k\x01v")
    batch = record(inner, b"Batch", queue_offset=8, sys_flag=sys_flag | 0xC0)
    others = record(b"x" * 10000)
    for message in decoded(record(b"first", sys_flag=sys_flag) + batch + others, min_offset=1, max_offset=9)[
        :3
    ]:
        for copied in (pickle.loads(pickle.dumps(message)), copy.copy(message), copy.deepcopy(message)):
            assert copied == message
            assert pickle.loads(pickle.dumps(copied)) == message
            assert everything(copied) == everything(message)
            copied.put_property("MIN_OFFSET", "7")
            assert copied != message
        assert len(pickle.dumps(message)) < 1000
    one, other = decoded(record(queue_offset=1) + record(queue_offset=2))
    assert one != other
    assert one != "message"


def test_an_inner_batch_becomes_messages() -> None:
    inner = item(b"one", b"TAGS\x01x\x02", flag=4) + item(b"", b"k\x01v")
    body = record(b"before", queue_offset=7) + record(inner, b"Batch", queue_offset=8, sys_flag=0xC0)
    before, one, two = decoded(body, min_offset=1)
    assert (before.body, before.queue_offset, before.reconsume_times) == (b"before", 7, 2)
    assert (one.body, one.tags, one.flag, one.queue_offset, one.topic) == (b"one", "x", 4, 8, "Batch")
    assert (two.body, two.properties, two.queue_offset) == (b"", {"k": "v", "MIN_OFFSET": "1"}, 9)
    assert (two.reconsume_times, two.prepared_transaction_offset, two.born_timestamp) == (0, 0, 1000)
    assert (two.store_host, two.physical_offset) == ("10.0.0.7:5000", 4096)


def test_an_inner_batch_may_be_compressed() -> None:
    body = record(b"packed", sys_flag=0xC1)
    messages = decode_messages(body, "b", lambda flag, stored: item(b"one") + item(b"two"))
    assert [message.body for message in messages] == [b"one", b"two"]


def test_a_batch_that_need_not_be_unwrapped_stays_whole() -> None:
    assert [message.body for message in decoded(record(item(b"one"), sys_flag=0x80))] == [item(b"one")]


@pytest.mark.parametrize(
    "inner",
    [
        item(b"one")[:-1],
        item(b"one")[:10],
        struct.pack(">i", 21) + item(b"one")[4:],
        struct.pack(">iiiii", 25, 0, 0, 0, 4) + b"one\0\0",
        struct.pack(">iiiii", 25, 0, 0, 0, -1) + b"one\0\0",
        struct.pack(">iiiii", 25, 0, 0, 0, 3) + b"one\xff\xff",
    ],
)
def test_a_broken_inner_batch_is_refused(inner: bytes) -> None:
    with pytest.raises(RecordError, match="inner batch"):
        decoded(record(inner, sys_flag=0xC0))


def test_every_recorded_response_equals_its_records() -> None:
    count = 0
    for body in pulled():
        at = 0
        for message in decoded(body):
            expected = decode_record(body[at:])
            at += expected.size
            assert (message.topic, message.properties) == (expected.topic, expected.properties)
            assert (message.body_crc, message.sys_flag) == (expected.body_crc, expected.sys_flag)
            assert message.born_timestamp == expected.born_timestamp
            if not message.sys_flag & 1:
                assert message.body == expected.body
            count += 1
        assert at == len(body)
    assert count > 200


def test_a_response_cut_anywhere_is_refused() -> None:
    whole = record(properties=b"a\x01b\x02")
    for end in range(1, len(whole)):
        with pytest.raises(RecordError):
            decoded(whole + whole[:end])
    assert decoded(b"") == []


@given(st.data())
def test_garbled_answers_are_refused_or_read_to_the_end(data: st.DataObject) -> None:
    inner = item(b"one", b"TAGS\x01x\x02") + item(b"two")
    body = bytearray(
        record(b"x" * 20, properties=b"a\x01b\x02KEYS\x01k\x02", sys_flag=0x10) + record(inner, sys_flag=0xC0)
    )
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(body)))
    try:
        messages = decode_messages(bytes(body[:end]), "b", lambda flag, stored: stored)
    except RecordError:
        return
    for message in messages:
        assert json.dumps({name: repr(value) for name, value in everything(message).items()})


def test_it_cannot_be_constructed() -> None:
    with pytest.raises(TypeError, match="decode_messages"):
        ReceivedMessage()
    bare = ReceivedMessage.__new__(ReceivedMessage)
    assert (bare.topic, bare.body, bare.properties) == ("", b"", {})


def test_the_repr_of_a_message() -> None:
    assert repr(decoded(record(properties=b"UNIQ_KEY\x01ID\x02"))[0]) == (
        "ReceivedMessage('T', 'broker-a', queue 3, offset 5, id ID, 4 bytes)"
    )
