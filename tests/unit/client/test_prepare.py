"""How a message is prepared for sending: fields, compression, what moves from properties to header."""

import sys
import zlib

import pytest

from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.unique_ids import UniqueIds
from firearrow.client.base.errors import ConfigError, MessageRefused
from firearrow.client.base.message import Message, Property, decode_properties
from firearrow.client.base.names import Namespace
from firearrow.client.base.options import CompressionKind, ProducerOptions
from firearrow.client.send.prepare import MessagePreparer, PreparedMessage
from firearrow.client.send.producer import Producer

COMPRESSED, ZLIB, HALF = 0x1, 0x300, 0x4


def preparer(namespace: str | None = None, **options: object) -> MessagePreparer:
    ids = UniqueIds(b"\x7f\0\0\1", 1, b"salt")
    return MessagePreparer("g", ProducerOptions(**options), Namespace(namespace), ids, False)  # type: ignore[arg-type]


def request_of(prepared: PreparedMessage) -> RemotingCommand:
    return RemotingCommand.decode(prepared.frame(7, 3, "b", 1700000000000, False))


def test_the_fields_of_a_plain_message() -> None:
    message = Message("t", b"body", tags="x", flag=5)
    request = request_of(preparer(default_queues=8).prepare(message))
    properties = decode_properties(request.ext.pop("i").encode())
    assert request.ext == {
        "a": "g",
        "b": "t",
        "c": "TBW102",
        "d": "8",
        "e": "3",
        "f": "0",
        "g": "1700000000000",
        "h": "5",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "b",
    }
    assert (request.code, request.opaque, request.body, request.is_oneway) == (310, 7, b"body", False)
    assert properties == {"UNIQ_KEY": message.unique_id, "WAIT": "true", "TAGS": "x"}


def test_bodies_are_packed_from_the_limit_on() -> None:
    prepare = preparer(compress_over_bytes=100).prepare
    for body, flag in ((b"a" * 99, 0), (b"a" * 100, COMPRESSED | ZLIB), (b"", COMPRESSED | ZLIB)):
        message = Message("t", body)
        for each in (message, Message("t", body, properties={"any": "thing"})):
            prepared = prepare(each)
            request = request_of(prepared)
            assert int(request.ext["f"]) == flag
            assert (zlib.decompress(request.body) if flag else request.body) == body
            assert each.body == body
            assert prepared.size == len(body), "back-pressure counts what the user gave"


def test_what_packing_makes_larger_is_sent_packed_all_the_same() -> None:
    body = bytes(range(256))
    request = request_of(preparer(compress_over_bytes=1).prepare(Message("t", body)))
    assert len(request.body) > len(body)
    assert zlib.decompress(request.body) == body


def test_the_size_is_checked_before_packing() -> None:
    prepare = preparer(message_bytes_max=5000).prepare
    prepare(Message("t", b"a" * 5000))
    with pytest.raises(MessageRefused, match="5001 bytes, at most 5000"):
        prepare(Message("t", b"a" * 5001))


def test_counts_of_retry_topics_travel_in_the_header() -> None:
    properties = {"own": "x", Property.RECONSUME_TIME: "3", Property.MAX_RECONSUME_TIMES: "16"}
    message = Message("%RETRY%g", b"x", properties=properties, delay_level=4, sharding_key="s", priority=1)
    request = request_of(preparer().prepare(message))
    assert (request.ext["j"], request.ext["l"]) == ("3", "16")
    sent = decode_properties(request.ext["i"].encode())
    assert (sent["own"], sent["DELAY"], sent["__SHARDINGKEY"]) == ("x", "4", "s")
    assert sent[Property.PRIORITY] == "1"
    assert Property.RECONSUME_TIME not in sent
    assert Property.MAX_RECONSUME_TIMES not in sent
    assert message.properties == properties, "the user's message is left alone"
    assert message.unique_id == sent["UNIQ_KEY"]
    plain = request_of(preparer().prepare(Message("t", b"x", properties=dict(properties))))
    assert plain.ext["j"] == "0"
    assert "l" not in plain.ext
    assert "RECONSUME_TIME\x013" in plain.ext["i"]


@pytest.mark.parametrize("count", ["x", "-2", str(1 << 31), "1.5"])
def test_invalid_counts_are_refused(count: str) -> None:
    for name in (Property.RECONSUME_TIME, Property.MAX_RECONSUME_TIMES):
        with pytest.raises(MessageRefused, match=name):
            preparer().prepare(Message("%RETRY%g", b"x", properties={name: count}))


def test_half_messages_and_replies_are_known_by_their_properties() -> None:
    half = preparer().prepare(Message("t", b"x" * 5000, properties={"TRAN_MSG": "true", "PGROUP": "g"}))
    assert int(request_of(half).ext["f"]) == COMPRESSED | ZLIB | HALF
    assert half.kind == "half"
    reply = preparer().prepare(Message("C_REPLY_TOPIC", b"x", properties={"MSG_TYPE": "reply"}))
    assert request_of(reply).code == 325
    assert preparer().prepare(Message("t", b"x", properties={"TRAN_MSG": "no"})).kind == "normal"
    for delay in ({"delay_level": 1}, {"delay_s": 1}, {"deliver_at_ms": 1}):
        assert preparer().prepare(Message("t", b"x", **delay)).kind == "delay"  # type: ignore[arg-type]


def test_a_namespace_is_in_names_and_properties() -> None:
    made = preparer("ns")
    request = request_of(made.prepare(Message("t", b"x")))
    assert request.ext["b"] == "ns%t"
    assert "INSTANCE_ID\x01ns\x02" in request.ext["i"]
    assert request_of(made.prepare(Message("%RETRY%g", b"x"))).ext["b"] == "%RETRY%ns%g"
    batch = request_of(made.prepare_batch([Message("t", b"x")]))
    assert batch.ext["b"] == "ns%t"


def test_a_batch_is_never_compressed_and_has_a_separate_id() -> None:
    messages = [Message("t", b"a" * 5000, unique_id="ONE"), Message("t", b"b", tags="x")]
    prepared = preparer().prepare_batch(messages)
    request = request_of(prepared)
    assert (request.code, request.ext["m"], request.ext["f"]) == (320, "true", "0")
    assert request.body.count(b"a") >= 5000
    own = decode_properties(request.ext["i"].encode())["UNIQ_KEY"]
    assert own not in {message.unique_id for message in messages}
    assert messages[0].unique_id == "ONE"
    assert messages[1].unique_id is not None


def test_the_limit_of_messages_holds_for_the_whole_batch() -> None:
    messages = [Message("t", b"x" * 100, unique_id=str(n)) for n in range(5)]
    size = len(preparer().prepare_batch(messages).body)
    preparer(message_bytes_max=size).prepare_batch(messages)
    with pytest.raises(MessageRefused, match=f"{size} bytes, at most {size - 1}"):
        preparer(message_bytes_max=size - 1).prepare_batch(messages)


@pytest.mark.parametrize(
    "name", ["", "  ", "a.b", "a b", "ü", "t" * 128, "SCHEDULE_TOPIC_XXXX", "OFFSET_MOVED_EVENT"]
)
def test_topics_that_no_producer_may_send_to(name: str) -> None:
    made = preparer()
    with pytest.raises(MessageRefused):
        made.prepare(Message(name, b"x"))
    assert not made.topics, "nothing of it is kept"
    made.prepare(Message("t" * 127, b"x"))


def test_a_missing_package_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    preparer(compression=CompressionKind.ZLIB)
    with pytest.raises(ConfigError, match="lz4"):
        preparer(compression=CompressionKind.LZ4)
    with pytest.raises(ConfigError, match="lz4"):
        Producer("g", options=ProducerOptions(compression=CompressionKind.LZ4))
