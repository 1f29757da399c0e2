"""Receipt handles, topic names and rewritten records, as clients and Apache write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow._native.store.log.record import decode
from firearrow.broker.base.message import Message
from firearrow.broker.pop.pop import rewrite_record
from firearrow.broker.pop.receipt_handles import (
    InvalidReceiptHandle,
    ReceiptHandle,
    kind_of,
    normal_topic,
    real_topic,
    receipt_handle_text,
    retry_topic,
)
from tests.support.harness import Harness

NAMES = st.text("abcXYZ09-_%|", min_size=1, max_size=20)
NUMBERS = st.integers(0, 10**18 - 1)


@given(NUMBERS, NUMBERS, NUMBERS, st.integers(0, 999), NAMES, NAMES, st.integers(0, 9))
def test_what_is_written_is_read_back(
    start: int, pop_ms: int, invisible_ms: int, revive_queue: int, topic: str, broker: str, queue_id: int
) -> None:
    for name, mark in (
        (topic, "0"),
        (retry_topic(topic, "g", False), "1"),
        (retry_topic(topic, "g", True), "2"),
    ):
        if mark == "0" and name.startswith("%RETRY%"):
            continue
        text = receipt_handle_text(
            start, pop_ms, invisible_ms, revive_queue, name, broker, queue_id, start + 1
        )
        assert ReceiptHandle.of(text) == (start, pop_ms, invisible_ms, revive_queue, mark, broker)
        assert kind_of(name) == mark
        assert real_topic(topic, "g", mark) == name
        assert normal_topic(name, "g") == topic


@given(st.text(max_size=80))
def test_any_string_is_a_receipt_handle_or_refused(text: str) -> None:
    try:
        receipt = ReceiptHandle.of(text)
    except InvalidReceiptHandle:
        return
    assert min(receipt[:4]) >= 0


def test_a_receipt_handle_of_the_java_client() -> None:
    receipt = ReceiptHandle.of("4 1795229512568 600000 3 0 broker-a 1 5")
    assert receipt == (4, 1795229512568, 600000, 3, "0", "broker-a")
    assert not receipt.is_ordered
    assert ReceiptHandle.of("0 1 2 999 0 b 0 0").is_ordered


@pytest.mark.parametrize("kind", ["3", "", "-1", "00"])
def test_strings_that_are_not_a_kind_of_topic(kind: str) -> None:
    with pytest.raises(InvalidReceiptHandle):
        real_topic("T", "G", kind)


@pytest.mark.parametrize("topic", ["%RETRY%G_T", "%RETRY%" + "G" * 120 + "_" + "T" * 120])
@pytest.mark.parametrize("host", [b"\x7f\0\0\1\0\0\x2a\x9f", bytes(15) + b"\1\0\0\x2a\x9f"])
def test_a_rewritten_record_differs_only_in_topic_and_receipt_handle(
    tmp_path_factory: pytest.TempPathFactory, topic: str, host: bytes
) -> None:
    harness = Harness(tmp_path_factory.mktemp("store"))
    message = Message(topic, 0, b"body" * 100, {"TAGS": "t", "1ST_POP_TIME": "7"}, flag=9, reconsume_times=3)
    message.born_host = message.store_host = host
    harness.appender.put(message)
    harness.timers.run()
    [entry] = harness.store.reader.entries(topic, 0, 0, 1)
    data = harness.store.reader.record_at(entry.physical_offset)
    assert data is not None
    before, after = decode(data), decode(rewrite_record(data, "T", "0 1 2 3 1 b 0 0"))
    assert (after.topic, before.topic) == ("T", topic)
    assert after.properties == before.properties | {"POP_CK": "0 1 2 3 1 b 0 0"}
    for field in (
        "body_crc",
        "queue_id",
        "flag",
        "queue_offset",
        "physical_offset",
        "sys_flag",
        "born_timestamp",
        "born_host",
        "store_timestamp",
        "store_host",
        "reconsume_times",
        "prepared_offset",
        "body",
    ):
        assert getattr(after, field) == getattr(before, field), field
    again = decode(rewrite_record(rewrite_record(data, "T", "first 1"), "T", "second 2"))
    assert again.properties["POP_CK"] == "second 2"  # whatever the record had
    harness.close()
