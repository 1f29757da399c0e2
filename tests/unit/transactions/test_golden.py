"""Transactions as Apache stored them: rebuilt from their half messages, and continued if they are pending."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.message import Message
from firearrow.broker.transactions import half_message
from firearrow.broker.transactions.open_halves import op_half_offsets
from tests.support.transaction_harness import COMMIT, HALF, OP, TransactionHarness
from tests.unit.store.test_golden import CONFIG, Golden

STORES = ("store-apache", "store-apache-crashed")
MINUTE_MS = 60_000


@pytest.fixture(params=STORES)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return Golden(request.param, tmp_path)


@pytest.fixture
def store(golden: Golden) -> Iterator[MessageStore]:
    with MessageStore.open(golden.root, CONFIG) as store:
        yield store


def records(store: MessageStore, topic: str, queue_id: int = 0) -> list[Record]:
    raws = [
        store.reader.record_at(entry.physical_offset)
        for entry in store.reader.entries(topic, queue_id, 0, 1000)
    ]
    return [decode(raw) for raw in raws if raw is not None]


def same(message: Message, stored: Record) -> bool:
    return message == Message.of_record(stored)


def test_final_messages_equal_apaches(store: MessageStore) -> None:
    finals = [
        record
        for topic, queue_id in store.reader.queues()
        for record in records(store, topic, queue_id)
        if record.sys_flag & 0xC
    ]
    assert len(finals) >= 2
    for final in finals:
        raw = store.reader.record_at(final.prepared_offset)
        assert raw is not None
        assert same(half_message.committed(decode(raw)), final)


def test_copies_equal_apaches(store: MessageStore) -> None:
    halves = records(store, HALF)
    copies = [record for record in halves if "TRANSACTION_CHECK_TIMES" in record.properties]
    assert len(copies) >= 6
    for copy in copies:
        before = [one for one in halves[: copy.queue_offset] if one.born_timestamp == copy.born_timestamp]
        assert any(same(half_message.check_copy(one, counted=True), copy) for one in before)


def test_half_messages_equal_apaches(store: MessageStore) -> None:
    for record in records(store, HALF):
        if "TRANSACTION_CHECK_TIMES" in record.properties:
            continue
        message = Message.of_record(record)
        message.topic, message.queue_id = half_message.real_queue(message.properties)
        for name in ("REAL_TOPIC", "REAL_QID", "__transactionId__"):
            del message.properties[name]
        message.sys_flag |= 4
        half_message.make_half(message)
        assert same(message, record)


def test_op_messages_are_read(store: MessageStore) -> None:
    ops = records(store, OP)
    halves = records(store, HALF)
    ended = [offset for record in ops for offset in op_half_offsets(record.body)]
    assert len(ended) == len(set(ended)) >= 3
    assert {halves[offset].properties["KEYS"] for offset in ended}.isdisjoint({"pending"})
    assert all(record.properties == {"TAGS": "d", "WAIT": "true"} for record in ops)


@pytest.mark.parametrize(("name", "open_ones"), [("store-apache", 1), ("store-apache-crashed", 2)])
def test_pending_transactions_are_continued(tmp_path: Path, name: str, open_ones: int) -> None:
    """Apache's kill left two copies of one; decided ones are not checked."""
    golden = Golden(name, tmp_path)
    store = MessageStore.open(golden.root, CONFIG)
    last = records(store, HALF)[-1]
    offsets = min((golden.root / "config").glob("lmqConsumerOffset.json*")).read_bytes()
    harness = TransactionHarness(
        golden.root, offsets, last.store_timestamp + MINUTE_MS, store=store, transaction_check_max=100
    )
    asked = harness.join("PG_TRANSACTION")
    requests = harness.next_round(asked)
    assert [decode(request.body).body for request in requests] == [b"stays half"] * open_ones
    raw = store.reader.record_at(int(requests[-1].ext["commitLogOffset"]))
    assert raw is not None
    copy = decode(raw)
    queue_id = int(copy.properties["REAL_QID"])
    before = len(harness.records("GoldenTx", queue_id))
    assert harness.end(copy, COMMIT, checked=True, producerGroup="PG_TRANSACTION") is not None
    final = harness.records("GoldenTx", queue_id)[before]
    assert (final.body, final.prepared_offset) == (b"stays half", copy.physical_offset)
    assert len(harness.next_round(asked)) == open_ones - 1
    harness.close()
