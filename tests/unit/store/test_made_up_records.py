"""Bytes inside a body that look like a record are none: an offset leads only to what a queue's entry points to."""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import InnerMessage, MessageStore
from tests.store.test_entry_repair import filled, write_entry
from tests.support.stores import HOST, bodies, drop_segments, item, open_store, properties_of, put
from tests.unit.store.test_lmq import put_to_lmqs

BODY_AT = 88
EVER_MS = 1 << 62
NOW = 1_000_000
V6 = 0x30
"""Flags of IPv6 hosts."""


@pytest.fixture(params=[False, True], ids=["plain", "lmq"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path, segment_bytes=1 << 17, max_message_bytes=1 << 16, lmq=request.param) as store:
        yield store


def made_up(
    at: int,
    topic: str,
    queue_offset: int,
    *,
    queue_id: int = 0,
    size: int = 0,
    properties: bytes = b"",
    own: int = -1,
) -> bytes:
    """A record as the store writes it at `at`; `size`: it reaches over what comes after its head. `own`: the offset
    that it claims."""
    name = topic.encode()
    body = b"made up" if not size else bytes(size - BODY_AT - 1 - len(name) - 2)
    whole = BODY_AT + len(body) + 1 + len(name) + 2 + len(properties)
    crc, own = zlib.crc32(body) & 0x7FFFFFFF, at if own < 0 else own
    head = struct.pack(">iIiiiqqi", whole, 0xDAA320A7, crc, queue_id, 0, queue_offset, own, 0)
    head += struct.pack(">q8sq8siq", NOW, HOST, NOW, HOST, 0, 0)
    tail = bytes((len(name),)) + name + struct.pack(">h", len(properties)) + properties
    return head + struct.pack(">i", len(body)) + body + tail


def many_made_up(at: int) -> bytes:
    """Of the next messages of a queue, and of one that does not exist."""
    places = [("secret", 4 + n) for n in range(10)] + [("fresh", n) for n in range(10)]
    return b"".join(made_up(at + n * 200, *place).ljust(200) for n, place in enumerate(places))


def put_inside(store: MessageStore, topic: str, queue_offset: int, **options: int | bytes) -> int:
    """Send a body with a made-up record; where that is."""
    at = store.written + BODY_AT
    placed = put(store, made_up(at, topic, queue_offset, **options) + b"more", "mine")  # type: ignore[arg-type]
    store.write()
    assert placed.physical_offset + BODY_AT == at
    return at


def is_found(store: MessageStore, at: int) -> bool:
    reader = store.reader
    found = [reader.record_at(at), reader.record_at(at, unconfirmed=True)]
    return found != [None, None]


def begins_record(store: MessageStore, at: int) -> bool:
    """By its entry, or by a walk to it."""
    found = store.reader.begins_record(at)
    return store.reader.skip_records(0, at, at + 1) == at if found is None else found


def is_known(store: MessageStore, at: int) -> bool:
    """In any way."""
    return is_found(store, at) or begins_record(store, at)


@pytest.mark.parametrize("queue_offset", [-1, 0, 1, 2, 3, 1 << 40, (1 << 63) - 1])
def test_a_record_made_up_in_a_body_is_none(store: MessageStore, queue_offset: int) -> None:
    """Also with the place of a real message, or the next one."""
    for _ in range(3):
        put(store, b"real", "secret")
    store.write()
    for topic in ("secret", "mine", "unknown", "RMQ_SYS_TRANS_HALF_TOPIC", "a/b", "."):
        for queue_id in (0, -1, 1 << 30):
            assert not is_known(store, put_inside(store, topic, queue_offset, queue_id=queue_id))


def test_it_is_none_either_if_it_spans_what_follows(store: MessageStore) -> None:
    at = store.written + BODY_AT
    size = 1000
    put(store, made_up(at, "mine", 0, size=size)[:BODY_AT], "mine")
    put(store, b"a secret", "secret")
    store.write()
    rest = at + size - 7 - (store.written + BODY_AT)
    put(store, bytes(rest) + b"\x04mine\0\0", "mine")
    store.write()
    assert not is_known(store, at)


def test_it_may_claim_the_place_of_another_record(store: MessageStore) -> None:
    real = put(store, b"real", "secret")
    store.write()
    assert not is_known(store, put_inside(store, "secret", 0, own=real.physical_offset))
    assert is_found(store, real.physical_offset)


def test_it_may_name_lmqs(tmp_path: Path) -> None:
    with open_store(tmp_path, segment_bytes=1 << 17, max_message_bytes=1 << 16, lmq=True) as store:
        put_to_lmqs(store, b"real", "%LMQ%a")
        store.write()
        for names, offsets in (
            ("%LMQ%a", "0"),
            ("%LMQ%a", "1"),
            ("secret", "0"),
            (",".join(["%LMQ%a"] * 2000), "0,0,0"),
        ):
            properties = properties_of(INNER_MULTI_DISPATCH=names, INNER_MULTI_QUEUE_OFFSET=offsets)
            for topic in ("%LMQ%a", "deleted"):
                assert not is_known(store, put_inside(store, topic, 0, properties=properties))


def test_it_may_be_an_item_of_a_batch_or_in_its_properties(store: MessageStore) -> None:
    at = store.written + BODY_AT + 1
    body = item(b"x", b"\x04mine\0\0" + made_up(at + 5 + 2 + 7, "mine", 0))
    inner = InnerMessage("mine", 0, body, b"", born_timestamp=1, born_host=HOST, store_host=HOST)
    store.put_batch(inner, now_ms=1)
    store.write()
    for offset in range(store.written):
        assert is_known(store, offset) == (offset == 0)


def test_keys_do_not_lead_to_it(store: MessageStore) -> None:
    placed = put(store, b"real", "mine", properties=properties_of(KEYS="k"))
    store.write()
    put_inside(store, "mine", 0, properties=properties_of(KEYS="k"))
    found, _, _ = store.reader.query("mine", "k", 32, 0, EVER_MS)
    assert [decode(each).physical_offset for each in found] == [placed.physical_offset]


@pytest.mark.parametrize("sys_flag", [0, V6])
def test_real_records_are_found(tmp_path: Path, sys_flag: int) -> None:
    """After a restart, past deleted files, in every queue; not those of deleted topics, nor trimmed ones."""
    host = {"born_host": bytes(20), "store_host": bytes(20)} if sys_flag else {}
    with open_store(tmp_path) as store:
        placed = [put(store, b"x" * 200, f"T{n % 3}", n % 2, **host) for n in range(60)]
        store.write()
    with open_store(tmp_path) as store:
        assert all(is_found(store, each.physical_offset) for each in placed)
        assert drop_segments(store, at_most=2) == 2
        assert {is_found(store, each.physical_offset) for each in placed[30:]} == {True}
        assert not is_found(store, placed[0].physical_offset)
        store.drop_topic("T1")
        assert {is_found(store, each.physical_offset) for each in placed[31::3]} == {False}
        assert {begins_record(store, each.physical_offset) for each in placed[30:]} == {True}
        again = put(store, b"again", "T1", 0)
        store.write()
        assert is_found(store, again.physical_offset)
        store.cleaner.trim_queue("T2", 0, store.reader.max_offset("T2", 0))
        assert {is_found(store, each.physical_offset) for each in placed[32::6]} == {False}
        assert {is_found(store, each.physical_offset) for each in placed[30::6]} == {True}


def test_the_message_of_an_lmq_is_found_without_its_topic(tmp_path: Path) -> None:
    with open_store(tmp_path, lmq=True) as store:
        placed = put_to_lmqs(store, b"real", "%LMQ%a", "%LMQ%b")
        store.write()
        for name in ("T", "%LMQ%a"):
            store.drop_topic(name)
            assert is_found(store, placed.physical_offset)
        store.drop_topic("%LMQ%b")
        assert not is_found(store, placed.physical_offset)


def test_what_is_not_confirmed_is_found_only_by_those_who_may(tmp_path: Path) -> None:
    with open_store(tmp_path, confirm_later=True) as store:
        placed = put(store, b"hidden")
        store.write()
        assert store.reader.record_at(placed.physical_offset) is None
        assert store.reader.record_at(placed.physical_offset, unconfirmed=True) is not None
        store.confirm(store.written)
        assert store.reader.record_at(placed.physical_offset) is not None


def test_a_damaged_entry_hides_no_record(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        (entry,) = store.reader.entries("B", 0, 20, 1)
        write_entry(tmp_path, 20, b"\xff" * 20)
        raw = store.reader.record_at(entry.physical_offset)
        record: Record = decode(raw or b"")
        assert (record.topic, record.queue_offset) == ("B", 20)
        assert len(store.reader.drain_entry_repairs()) == 1


def test_a_made_up_record_repairs_no_entry(store: MessageStore) -> None:
    put(store, b"real", "secret")
    store.write()
    before = store.reader.entries("secret", 0, 0, 1)
    put_inside(store, "secret", 0)
    assert store.reader.drain_entry_repairs() == []
    assert store.reader.entries("secret", 0, 0, 1) == before


@pytest.mark.parametrize(
    "damage", ["body", "tail", "crc", "magic", "size", "small size", "body size", "own offset"]
)
@pytest.mark.parametrize("covered", [False, True])
def test_a_record_in_the_body_of_a_damaged_one_is_none(tmp_path: Path, damage: str, covered: bool) -> None:
    """Recovery looks for where the log goes on: not inside the body whose record is damaged."""
    store = open_store(tmp_path, segment_bytes=1 << 17, max_message_bytes=1 << 16)
    put(store, b"first", "secret", now_ms=NOW)
    store.write()
    at = store.written
    inside = many_made_up(at + BODY_AT)
    forged = put(store, inside, "mine", now_ms=NOW)
    for n in range(3):
        put(store, b"later %d" % n, "secret", now_ms=NOW)
    put(store, b"last", "mine", now_ms=2 * NOW)
    store.write()
    if covered:
        store.flush_queues()
    size = forged.end - at
    store.abandon()
    position, data = {
        "body": (at + BODY_AT + 3990, b"\xff"),
        "tail": (at + size - 5, b"\xff"),
        "crc": (at + 8, b"\xff\xff"),
        "magic": (at + 5, b"\0"),
        "size": (at, b"\x7f"),
        "small size": (at + 3, bytes(((size & 0xFF) ^ 8,))),
        "body size": (at + 84, b"\x01"),
        "own offset": (at + 30, b"\x09"),
    }[damage]
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        os.pwrite(file.fileno(), data, position)
    with open_store(tmp_path, segment_bytes=1 << 17, max_message_bytes=1 << 16) as store:
        later = [b"later %d" % n for n in range(3)]
        # what no checkpoint covers ends at the first damaged record
        assert bodies(store, "secret") == [b"first", *(later if covered or damage == "tail" else ())]
        assert bodies(store, "fresh") == []
        assert not is_known(store, at + BODY_AT)


@pytest.mark.parametrize("length", [5, 50, 87, 88, 100, 4000])
def test_a_record_in_the_body_of_a_torn_one_is_none(tmp_path: Path, length: int) -> None:
    store = open_store(tmp_path, segment_bytes=1 << 17, max_message_bytes=1 << 16)
    put(store, b"first", "secret")
    store.write()
    at = store.written
    put(
        store,
        many_made_up(at + BODY_AT),
        "mine",
    )
    store.write()
    end = store.written
    store.abandon()
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        os.pwrite(file.fileno(), bytes(end - at - length), at + length)
    with open_store(tmp_path, segment_bytes=1 << 17, max_message_bytes=1 << 16) as store:
        assert (bodies(store, "secret"), bodies(store, "mine"), store.written) == ([b"first"], [], at)
