"""Batch bodies from records: what is kept, dropped and added, where a batch ends. Compared with items made by hand."""

import pickle
import random
import struct

import pytest

from firearrow._native.columnar.batch_encoder import (
    BATCH_COUNT_MAX,
    REPLAY_BROKER,
    REPLAY_JOB,
    REPLAY_OFFSET,
    REPLAY_QUEUE,
    REPLAY_TOPIC,
    BatchError,
    PropertyEdits,
    batch_body,
    single,
)
from firearrow._native.columnar.record_spans import Spans, from_answer
from firearrow._native.protocol.name_rules import BROKER_OWN
from firearrow._native.store.log.record import RecordError
from firearrow.client.base.message import MessageQueue, decode_properties
from firearrow.spark_tools.base.provenance import NAMES, Provenance
from tests.spark.record_bytes import BORN_MS, properties_bytes, record_bytes, spans_of

PLAIN = PropertyEdits(frozenset())


def items_of(body: bytes) -> list[tuple[int, bytes, bytes]]:
    """(flag, body, properties) of each item; every byte accounted for."""
    found, at = [], 0
    while at < len(body):
        size, magic, crc, flag, length = struct.unpack_from(">iiiii", body, at)
        assert (magic, crc) == (0, 0)
        inner = body[at + 20 : at + 20 + length]
        (properties_length,) = struct.unpack_from(">h", body, at + 20 + length)
        assert size == 22 + length + properties_length
        found.append((flag, inner, body[at + 22 + length : at + size]))
        at += size
    assert at == len(body)
    return found


def edited(properties: bytes, edits: PropertyEdits, **record: int) -> bytes:
    body = batch_body(spans_of(record_bytes(b"x", properties, **record)), 0, edits).body  # type: ignore[arg-type]
    ((_, _, found),) = items_of(body)
    return found


def test_an_item_is_the_reference_s_example() -> None:
    spans = spans_of(record_bytes(b"hi", b"TAGS\x01A\x02"))
    assert batch_body(spans, 0, PLAIN).body.hex() == (
        "0000001f" + "00000000" * 3 + "00000002" + "6869" + "0007" + "54414753014102"
    )


def test_bodies_flags_and_properties_come_through_in_order() -> None:
    records = [
        record_bytes(
            bytes([n]) * n, properties_bytes({"KEYS": f"k{n}"}), flag=n - 2, queue_offset=n, v6=n % 2 == 1
        )
        for n in range(50)
    ]
    batch = batch_body(spans_of(*records), 0, PLAIN)
    assert items_of(batch.body) == [
        (n - 2, bytes([n]) * n, properties_bytes({"KEYS": f"k{n}"})) for n in range(50)
    ]
    assert (batch.count, batch.next, batch.sys_flag, batch.born_ms) == (50, 50, 0, BORN_MS)


def test_what_brokers_set_is_dropped_and_the_unique_key_stays() -> None:
    own = {"UNIQ_KEY": "AB" * 16, "TAGS": "a", "KEYS": "k1 k2", "größe": "übel", "WAIT": "true"}
    theirs = dict.fromkeys(sorted(BROKER_OWN), "1")
    mixed = list((own | theirs).items())
    random.Random(1).shuffle(mixed)
    kept = {name: value for name, value in mixed if name in own}
    assert edited(properties_bytes(dict(mixed)), PropertyEdits()) == properties_bytes(kept)
    assert not BROKER_OWN & {"UNIQ_KEY", "KEYS", "TAGS", "WAIT", "ORIGIN_MESSAGE_ID", "RETRY_TOPIC"}


@pytest.mark.parametrize(
    ("properties", "left"),
    [
        (b"", b""),
        (b"DELAY\x013\x02", b""),
        (b"DELAY\x013", b""),
        (b"a\x011\x02DELAY\x013", b"a\x011\x02"),
        (b"DELAYS\x013\x02DELA\x013\x02", b"DELAYS\x013\x02DELA\x013\x02"),
        (b"DELAY\x02a\x011\x02", b"DELAY\x02a\x011\x02"),
        (b"DELAY\x01\x02\x02\x02a\x011", b"\x02\x02a\x011"),
        (b"\xff\xfe\x01\xff\x02DELAY\x011\x02", b"\xff\xfe\x01\xff\x02"),
    ],
)
def test_only_whole_names_are_dropped_and_bad_text_stays_as_it_was(properties: bytes, left: bytes) -> None:
    assert edited(properties, PropertyEdits(frozenset({"DELAY"}))) == left


def test_put_properties_come_last_and_replace_older_ones() -> None:
    edits = PropertyEdits(frozenset({"b"}), {"TAGS": "new", "c": "3"})
    assert edited(b"TAGS\x01old\x02a\x011\x02b\x012", edits) == b"a\x011\x02TAGS\x01new\x02c\x013\x02"
    assert edited(b"a\x011", edits) == b"a\x011\x02TAGS\x01new\x02c\x013\x02"
    assert edited(b"", edits) == b"TAGS\x01new\x02c\x013\x02"


@pytest.mark.parametrize("queue_offset", [0, 7, 10, 1 << 40, (1 << 63) - 1])
def test_provenance_names_the_record_s_own_offset_and_replaces_an_older_one(queue_offset: int) -> None:
    edits = PropertyEdits(provenance=("job-1", "broker-a"))
    old = properties_bytes({REPLAY_JOB: "old", "a": "1", REPLAY_OFFSET: "5"})
    expected = {
        "a": "1",
        REPLAY_JOB: "job-1",
        REPLAY_BROKER: "broker-a",
        REPLAY_TOPIC: "Orders",
        REPLAY_QUEUE: "3",
        REPLAY_OFFSET: str(queue_offset),
    }
    assert edited(old, edits, queue_offset=queue_offset) == properties_bytes(expected)
    assert edited(b"a\x011", PropertyEdits(frozenset()), queue_offset=queue_offset) == b"a\x011"


def test_batches_end_at_their_bytes_and_leave_nothing_out() -> None:
    size = 22 + 100
    spans = spans_of(*(record_bytes(bytes([n]) * 100, queue_offset=n) for n in range(10)))
    for bytes_max, count in ((size * 3, 3), (size * 3 - 1, 2), (size * 3 + 1, 3), (1, 1), (size * 10, 10)):
        at, bodies = 0, []
        while at < len(spans):
            batch = batch_body(spans, at, PLAIN, bytes_max=bytes_max)
            assert batch.count == min(count, len(spans) - at) == batch.next - at
            assert len(batch.body) == size * batch.count
            bodies += items_of(batch.body)
            at = batch.next
        assert [body[0] for _, body, _ in bodies] == list(range(10))


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    spans = spans_of(record_bytes(b"a"), record_bytes(b"b" * 5000), record_bytes(b"c"))
    counts = []
    at = 0
    while at < len(spans):
        batch = batch_body(spans, at, PLAIN, bytes_max=1000)
        counts.append(batch.count)
        at = batch.next
    assert counts == [1, 1, 1]


def test_batches_end_at_their_count() -> None:
    spans = spans_of(*[record_bytes(b"x")] * (BATCH_COUNT_MAX + 1))
    first = batch_body(spans, 0, PLAIN)
    assert (first.count, batch_body(spans, first.next, PLAIN).count) == (BATCH_COUNT_MAX, 1)
    assert batch_body(spans, 5, PLAIN, count_max=7).next == 12


def test_what_is_dropped_leaves_space_for_more_but_never_too_much() -> None:
    spans = spans_of(*[record_bytes(b"x" * 10, b"DELAY\x01" + b"9" * 200 + b"\x02")] * 100)
    at = 0
    while at < len(spans):
        batch = batch_body(spans, at, PropertyEdits(), bytes_max=1000)
        assert batch.count > 3
        assert len(batch.body) <= 1000
        at = batch.next


def test_one_batch_is_compressed_one_way() -> None:
    bits = [0, 0x1, 0x1, 0x301, 0x301, 0x201, 0, 0xC, 0x8]
    spans = spans_of(*(record_bytes(b"x", sys_flag=flag) for flag in bits))
    found, at = [], 0
    while at < len(spans):
        batch = batch_body(spans, at, PLAIN)
        found.append((batch.sys_flag, batch.count))
        at = batch.next
    assert found == [(0, 1), (0x1, 2), (0x301, 2), (0x201, 1), (0, 3)]


def test_properties_may_fill_what_a_record_holds_and_not_one_byte_more() -> None:
    def record(length: int) -> Spans:
        return spans_of(
            record_bytes(b"small"),
            record_bytes(b"x", b"a\x01" + b"v" * (length - 3) + b"\x02", queue_offset=41),
        )

    edits = PropertyEdits(put={"b": "2"})
    assert batch_body(record(32767 - 4), 0, edits).count == 2
    assert single(record(32767 - 4), 1, edits).properties.endswith(b"b\x012\x02")
    too_long = record(32767 - 3)
    assert batch_body(too_long, 0, edits).count == 1, "those before it are sent first"
    with pytest.raises(BatchError, match=r"queue offset 41: .* over 32767 bytes"):
        batch_body(too_long, 1, edits)
    with pytest.raises(BatchError, match="queue offset 41"):
        single(too_long, 1, edits)


def test_a_record_that_changes_under_the_mapping_is_noticed() -> None:
    data = bytearray(record_bytes(b"one") + record_bytes(b"two"))
    spans = from_answer(data)
    data[len(data) // 2 + 4] ^= 0xFF
    assert batch_body(spans, 0, PLAIN).count == 1
    with pytest.raises(RecordError, match="changed"):
        batch_body(spans, 1, PLAIN)


def test_one_alone_has_all_that_its_own_request_needs() -> None:
    spans = spans_of(
        record_bytes(b"x"),
        record_bytes(
            b"body", b"DELAY\x013\x02a\x011\x02", flag=9, sys_flag=0x30D, reconsume_times=4, born_ms=77
        ),
    )
    assert single(spans, 1, PropertyEdits(put={"b": "2"})) == (
        9,
        b"body",
        b"a\x011\x02b\x012\x02",
        0x301,
        4,
        77,
    )
    with pytest.raises(IndexError):
        single(spans, 2, PLAIN)
    for index in (2, -1):
        with pytest.raises(IndexError):
            batch_body(spans, index, PLAIN)


def test_edits_travel() -> None:
    edits = PropertyEdits(frozenset({"a"}), {"b": "2"}, ("job", "broker"))
    again = pickle.loads(pickle.dumps(edits))
    assert (again.drop, again.put, again.provenance) == (edits.drop, edits.put, edits.provenance)
    properties = b"a\x011\x02c\x013\x02"
    assert edited(properties, again) == edited(properties, edits)


@pytest.mark.parametrize("put", [{"": "1"}, {"a": ""}, {"a\x01": "1"}, {"a": "1\x02"}])
def test_texts_that_would_tear_properties_are_refused(put: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="property"):
        PropertyEdits(put=put)


def test_too_much_to_put_is_refused_at_once() -> None:
    PropertyEdits(put={"a": "x" * (32767 - 3)})
    with pytest.raises(ValueError, match="32768 bytes"):
        PropertyEdits(put={"a": "x" * (32767 - 2)})


def test_random_properties_agree_with_the_plain_way() -> None:
    chance = random.Random(7)
    names = ["DELAY", "a", "TAGS", "TRACE_ON", "TRACE", "é", "UNIQ_KEY", "CLUSTER2", "CLUSTER", "T"]
    edits = PropertyEdits(put={"T": "t"}, provenance=("j", "b"))
    for number in range(500):
        pairs = [(chance.choice(names), "v" * chance.randrange(1, 9)) for _ in range(chance.randrange(8))]
        text = "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
        kept = "".join(f"{n}\x01{v}\x02" for n, v in pairs if n not in BROKER_OWN and n != "T")
        more = {
            "T": "t",
            REPLAY_JOB: "j",
            REPLAY_BROKER: "b",
            REPLAY_TOPIC: "Orders",
            REPLAY_QUEUE: "3",
            REPLAY_OFFSET: str(number),
        }
        text = text[:-1] if number % 2 else text
        assert edited(text, edits, queue_offset=number) == kept.encode() + properties_bytes(more)


def test_provenance_is_read_back_and_nothing_is_made_up() -> None:
    found = edited(b"a\x011\x02", PropertyEdits(provenance=("job", "broker-a")), queue_offset=9)
    properties = decode_properties(found)
    assert Provenance.of(properties) == Provenance("job", MessageQueue("Orders", "broker-a", 3), 9)
    assert Provenance.of({**properties, REPLAY_OFFSET: "none"}) is None
    assert all(Provenance.of({k: v for k, v in properties.items() if k != name}) is None for name in NAMES)
