"""Messages, receipts and what is stored of them: each limit at its value, and one past it."""

import base64
import json
from pathlib import Path

import pytest

from firearrow._native.store.log.results import PutRefused
from firearrow.broker.append.progress_journal import NAME_BYTES_MAX, Journal, Kind
from firearrow.broker.handlers import acks
from firearrow.broker.handlers.acks import _bits
from firearrow.broker.pop import checkpoints
from firearrow.broker.pop.checkpoints import PopCheckPoint
from firearrow.broker.pop.order_info import OFFSETS_MAX, OrderInfo
from firearrow.broker.pop.receipt_handles import (
    DIGITS_MAX,
    RECEIPT_HANDLE_CHARS_MAX,
    InvalidReceiptHandle,
    ReceiptHandle,
    parse_number,
)
from tests.hostile.code import value_of
from tests.support.stores import open_store, put

PROPERTIES_BYTES_MAX = value_of("_native/store/files/layout", "PROPERTIES_BYTES_MAX")
TOPIC_BYTES_MAX = value_of("_native/store/files/layout", "TOPIC_BYTES_MAX")
QUEUE_ID_MAX = value_of("_native/store/message_store", "QUEUE_ID_MAX")


def test_bytes_of_properties(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", segment_bytes=1 << 20) as store:
        put(store, b"x", properties=b"k\x01" + b"v" * (PROPERTIES_BYTES_MAX - 3) + b"\x02")
        with pytest.raises(PutRefused, match="properties"):
            put(store, b"x", properties=b"k\x01" + b"v" * (PROPERTIES_BYTES_MAX - 2) + b"\x02")
        store.write()
        assert store.reader.max_offset("T", 0) == 1


def test_bytes_of_a_topic(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", segment_bytes=1 << 20) as store:
        put(store, b"x", topic="%RETRY%" + "t" * (TOPIC_BYTES_MAX - 7))
        with pytest.raises(PutRefused, match="topic"):
            put(store, b"x", topic="%RETRY%" + "t" * (TOPIC_BYTES_MAX - 6))


def test_numbers_of_queues(tmp_path: Path) -> None:
    with open_store(tmp_path / "s") as store:
        put(store, b"x", queue_id=QUEUE_ID_MAX)
        for wrong in (QUEUE_ID_MAX + 1, -1):
            with pytest.raises(PutRefused, match="queueId"):
                put(store, b"x", queue_id=wrong)


def test_bytes_of_a_body(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", max_message_bytes=1000) as store:
        put(store, bytes(1000))
        with pytest.raises(PutRefused, match="body"):
            put(store, bytes(1001))


def bit_set(count: int) -> str:
    return base64.b64encode(((1 << count) - 1).to_bytes((count + 7) // 8, "little")).decode()


def test_acknowledgements_of_a_check_point() -> None:
    assert _bits(bit_set(acks.OFFSETS_MAX)) == list(range(acks.OFFSETS_MAX))
    with pytest.raises(ValueError, match=f"at most {acks.OFFSETS_MAX}"):
        _bits(bit_set(acks.OFFSETS_MAX + 1))
    sparse = base64.b64encode(bytes(191) + b"\x01").decode()
    assert len(sparse) == 2 * acks.BITS_BYTES_MAX
    assert _bits(sparse) == [191 * 8]
    with pytest.raises(ValueError, match="too long"):
        _bits(sparse + "AAAA")


def receipt(size: int) -> str:
    words = "1 2 3 4 0 "
    return words + "b" * (size - len(words))


def test_receipts() -> None:
    assert ReceiptHandle.of(receipt(RECEIPT_HANDLE_CHARS_MAX)).start_offset == 1
    with pytest.raises(InvalidReceiptHandle):
        ReceiptHandle.of(receipt(RECEIPT_HANDLE_CHARS_MAX + 1))
    assert parse_number("9" * DIGITS_MAX, "n") == 10**DIGITS_MAX - 1
    with pytest.raises(InvalidReceiptHandle, match="n must be a number"):
        parse_number("9" * (DIGITS_MAX + 1), "n")


def check_point(**changes: object) -> PopCheckPoint:
    whole_one = {"t": "T", "c": "G", "q": 0, "so": 5, "pt": 1, "it": 1, "n": 1, "bn": "b"}
    return PopCheckPoint.of(json.dumps(whole_one | changes).encode())


def test_check_points() -> None:
    most = checkpoints.MESSAGES_MAX
    assert len(check_point(n=most).offsets) == most
    with pytest.raises(ValueError, match="n"):
        check_point(n=most + 1)
    assert len(check_point(d=list(range(most + 1))).offsets) == most
    assert check_point(it=checkpoints.INVISIBLE_MS_MAX).invisible_ms == checkpoints.INVISIBLE_MS_MAX
    with pytest.raises(ValueError, match="it"):
        check_point(it=checkpoints.INVISIBLE_MS_MAX + 1)
    with pytest.raises(ValueError, match="so"):
        check_point(so=checkpoints.OFFSET_MAX + 1)


def test_offsets_of_an_order() -> None:
    order = {"popTime": 1, "i": 1, "o": list(range(OFFSETS_MAX)), "l": 1, "a": "x", "c": 0}
    assert len(OrderInfo.from_object(order).offsets) == OFFSETS_MAX
    with pytest.raises(ValueError, match=f"{OFFSETS_MAX + 1} offsets"):
        OrderInfo.from_object(order | {"o": list(range(OFFSETS_MAX + 1))})


def test_names_in_the_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "run", 0)
    journal.note(Kind.OFFSET, "n" * NAME_BYTES_MAX, 0, 1)
    with pytest.raises(ValueError, match=f"at most {NAME_BYTES_MAX}"):
        journal.note(Kind.OFFSET, "n" * (NAME_BYTES_MAX + 1), 0, 1)
    journal.close()
