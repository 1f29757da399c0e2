"""Half messages as values: how they are created, what the final message keeps, what a copy counts."""

from dataclasses import replace

import pytest

from firearrow._native.store.log.record import Record, decode
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message import Message, properties_text
from firearrow.broker.transactions import half_message
from firearrow.broker.transactions.check_sender import encoded
from tests.support.harness import HOST

PREPARED = {
    "TRAN_MSG": "true",
    "PGROUP": "PG",
    "UNIQ_KEY": "U",
    "TAGS": "t",
    "WAIT": "true",
    "__transactionId__": "U",
    "REAL_TOPIC": "T",
    "REAL_QID": "3",
}


def record(**properties: str) -> Record:
    return Record(
        size=0,
        body_crc=77,
        queue_id=0,
        flag=5,
        queue_offset=12,
        physical_offset=900,
        sys_flag=0x1,
        born_timestamp=1000,
        born_host=HOST,
        store_timestamp=2000,
        store_host=HOST,
        reconsume_times=2,
        prepared_offset=0,
        body=b"body",
        topic="RMQ_SYS_TRANS_HALF_TOPIC",
        properties_bytes=properties_text(PREPARED | properties),
    )


def test_a_message_becomes_a_half_message() -> None:
    message = Message("T", 3, b"body", {"TRAN_MSG": "true", "UNIQ_KEY": "U"}, sys_flag=0x5)
    half_message.make_half(message)
    assert (message.topic, message.queue_id, message.sys_flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0x1)
    assert message.properties == {
        "TRAN_MSG": "true",
        "UNIQ_KEY": "U",
        "__transactionId__": "U",
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
    }


def test_a_delay_that_is_not_a_number_is_refused_before() -> None:
    with pytest.raises(Refusal, match="DELAY"):
        half_message.make_half(Message("T", 0, b"", {"TRAN_MSG": "true", "DELAY": "soon"}))


def test_the_final_message() -> None:
    """As 5.5.0 stores it: TRAN_MSG stays, REAL_* are removed."""
    final = half_message.committed(record())
    assert (final.topic, final.queue_id, final.sys_flag, final.flag) == ("T", 3, 0x9, 5)
    assert (final.prepared_offset, final.born_ms, final.reconsume_times) == (900, 1000, 2)
    assert final.properties == {k: v for k, v in PREPARED.items() if not k.startswith("REAL_")}


@pytest.mark.parametrize(
    ("more", "kept"),
    [({"DELAY": "2"}, False), ({"TIMER_DELAY_MS": "9"}, False), ({"DELAY": "0"}, True), ({}, True)],
)
def test_a_hook_writes_the_properties_again(more: dict[str, str], kept: bool) -> None:
    assert ("TRAN_MSG" in half_message.committed(record(**more)).properties) == kept


@pytest.mark.parametrize(
    "broken",
    [
        {"REAL_TOPIC": ""},
        {"REAL_TOPIC": "../x"},
        {"REAL_QID": "x"},
        {"REAL_QID": "-1"},
        {"REAL_QID": "9" * 30},
        {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC"},
    ],
)
def test_a_half_message_without_a_real_queue_cannot_be_committed(broken: dict[str, str]) -> None:
    with pytest.raises(Refusal, match="no valid real topic and queue"):
        half_message.committed(record(**broken))


@pytest.mark.parametrize(("before", "after"), [({}, "1"), ({"TRANSACTION_CHECK_TIMES": "4"}, "5")])
def test_a_copy_counts_checks(before: dict[str, str], after: str) -> None:
    copy = half_message.check_copy(record(**before), counted=True)
    assert (copy.topic, copy.queue_id, copy.flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 5)
    assert copy.properties == PREPARED | {"TRANSACTION_CHECK_TIMES": after}


def test_a_copy_that_waits_keeps_its_first_offset_and_its_count() -> None:
    first = half_message.check_copy(record(TRANSACTION_CHECK_TIMES="2"), counted=False)
    assert first.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "12"
    assert first.properties["TRANSACTION_CHECK_TIMES"] == "2"
    again = half_message.check_copy(record(TRAN_PREPARED_QUEUE_OFFSET="4"), counted=False)
    assert again.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "4"


@pytest.mark.parametrize(
    ("text", "ms"), [(None, None), ("30", 30_000), ("-1", 6000), ("x", 6000), ("0", 0), ("9" * 30, 6000)]
)
def test_immunity(text: str | None, ms: int | None) -> None:
    properties = {} if text is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": text}
    assert half_message.immunity_ms(properties, 6000) == ms


@pytest.mark.parametrize("topic", ["T", "L" * 127, "%RETRY%" + "L" * 200])
def test_the_message_of_a_check_can_be_decoded(topic: str) -> None:
    shown = decode(encoded(replace(record(), topic=topic)), False)
    assert (shown.topic, shown.body, shown.properties) == (topic, b"body", PREPARED)
    assert (shown.born_timestamp, shown.store_timestamp, shown.physical_offset) == (1000, 2000, 900)
