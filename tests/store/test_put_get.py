"""What `put` accepts and refuses, and every result of `get`."""

import errno
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.base.hash import java_hash
from firearrow._native.store import store_reader
from firearrow._native.store.files.segment import fail_next, heal
from firearrow._native.store.log.record import decode
from firearrow._native.store.log.results import PutRefused, WriteRefusal
from firearrow._native.store.message_store import GetStatus, InnerMessage, MessageStore
from tests.support.stores import HOST, HOST_V6, bodies, item, open_store, properties_of, put, read, split


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path, segment_bytes=1 << 20, max_message_bytes=1000) as store:
        yield store


def test_every_field_is_returned(store: MessageStore) -> None:
    properties = properties_of(KEYS="a b", TAGS="red", umlaut="ü€𝄞")
    placed = put(
        store,
        b"\0\1\0",
        properties=properties,
        flag=-3,
        sys_flag=0x101,
        born_host=HOST_V6,
        store_host=HOST_V6,
        reconsume_times=4,
        prepared_offset=77,
        now_ms=12345,
    )
    store.write()
    (record,) = read(store)
    assert (record.physical_offset, record.queue_offset) == (placed.physical_offset, 0)
    assert record.size == placed.end - placed.physical_offset == 91 + 24 + 3 + 1 + len(properties)
    assert (record.flag, record.sys_flag, record.reconsume_times, record.prepared_offset) == (
        -3,
        0x131,
        4,
        77,
    )
    assert (record.born_host, record.store_host) == (HOST_V6, HOST_V6)
    assert (record.body, record.topic, record.properties_bytes) == (b"\0\1\0", "T", properties)
    assert (record.born_timestamp, record.store_timestamp) == (12345, 12345)


def test_a_long_retry_topic_makes_a_v2_record(store: MessageStore) -> None:
    for length, magic in ((127, "daa320a7"), (128, "daa320ab"), (255, "daa320ab")):
        topic = "%RETRY%".ljust(length, "g")
        placed = put(store, b"", topic=topic)
        store.write()
        raw = store.reader.record_at(placed.physical_offset)
        assert raw is not None
        assert raw[4:8].hex() == magic
        assert [record.topic for record in read(store, topic)] == [topic]
    for topic in ("t" * 128, "%RETRY%".ljust(256, "g"), "", "..", "a/b", "a\0b"):
        with pytest.raises(PutRefused, match="topic"):
            put(store, b"", topic=topic)


def test_a_store_that_another_broker_writes_says_so(store: MessageStore) -> None:
    for refusal in WriteRefusal:
        store.write_refusal = refusal
        with pytest.raises(PutRefused, match=refusal):
            put(store, b"refused")
    store.write_refusal = None
    put(store, b"taken")
    store.write()
    assert bodies(store) == [b"taken"]


def test_limits_at_their_value_and_one_past(store: MessageStore) -> None:
    put(store, b"x" * 1000)
    with pytest.raises(PutRefused, match="body"):
        put(store, b"x" * 1001)
    put(store, b"", properties=b"a\1" + b"x" * 32765)
    with pytest.raises(PutRefused, match="properties"):
        put(store, b"", properties=b"a\1" + b"x" * 32766)
    put(store, b"", queue_id=65535)
    for queue_id in (-1, 65536):
        with pytest.raises(PutRefused, match="queueId"):
            put(store, b"", queue_id=queue_id)
    store.write()
    assert [len(body) for body in bodies(store)] == [1000, 0]


def batch(store: MessageStore, items: bytes) -> tuple[int, ...]:
    placed = store.put_batch(
        InnerMessage("T", 0, items, b"", born_timestamp=1, born_host=HOST, store_host=HOST), now_ms=1
    )
    return placed.physical_offsets


def test_a_batch_is_unrolled_with_its_own_properties(store: MessageStore) -> None:
    wanted = [(b"one", properties_of(TAGS="a"), 1), (b"", b"", 2), (b"three", b"KEYS\1k", 3)]
    put(store, b"before")
    offsets = batch(store, b"".join(item(*one) for one in wanted))
    store.write()
    records = read(store)[1:]
    assert [(record.body, record.properties_bytes, record.flag) for record in records] == wanted
    assert [record.queue_offset for record in records] == [1, 2, 3]
    assert tuple(record.physical_offset for record in records) == offsets


def test_a_batch_stays_in_one_segment(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put(store, b"x" * 2000)
        offsets = batch(store, item(b"y" * 900) * 3)
        store.write()
        assert offsets[0] == 4096
        assert bodies(store) == [b"x" * 2000, *[b"y" * 900] * 3]


@pytest.mark.parametrize(
    "items",
    [
        b"",
        item(b"body")[:-1],
        item(b"body") + b"\0",
        item(b"body") + item(b"body")[:10],
        b"\xff\xff\xff\xff" + item(b"body")[4:],
        item(b"body")[:16] + b"\xff\xff\xff\xff" + item(b"body")[20:],
        item(b"body")[:-2] + b"\xff\xff",
        b"\0\0\0\0" + item(b"body")[4:],
        item(b"x" * 1001),
    ],
)
def test_a_bad_batch_is_refused_whole(store: MessageStore, items: bytes) -> None:
    with pytest.raises(PutRefused, match=r"batch|body"):
        batch(store, items)
    assert store.staged_bytes == 0
    assert put(store, b"good").queue_offset == 0


def test_prepared_and_rolled_back_messages_stay_out_of_queues(store: MessageStore) -> None:
    placed = [put(store, b"m", sys_flag=flag) for flag in (0x4, 0xC, 0x8, 0)]
    store.write()
    assert [one.queue_offset for one in placed] == [0, 0, 0, 1]
    assert [record.sys_flag for record in read(store)] == [0x8, 0]
    found = [store.reader.record_at(one.physical_offset) is not None for one in placed]
    assert found == [False, False, True, True]  # an offset leads to what an entry points to
    assert [store.reader.begins_record(one.physical_offset) for one in placed] == [None, None, True, True]
    assert store.reader.skip_records(0, placed[1].physical_offset, 1) == placed[1].physical_offset


def test_a_delayed_message_has_its_deliver_time_in_the_queue(store: MessageStore) -> None:
    for level in ("1", "3", "99"):
        put(
            store, b"", topic="SCHEDULE_TOPIC_XXXX", properties=properties_of(DELAY=level, TAGS="a"), now_ms=5
        )
    store.write()
    entries = store.reader.entries("SCHEDULE_TOPIC_XXXX", 0, 0, 9)
    assert [entry.tags_code for entry in entries] == [1005, 10005, 7200005]


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (-1, GetStatus.OFFSET_TOO_SMALL, 0),
        (0, GetStatus.FOUND, 3),
        (2, GetStatus.FOUND, 3),
        (3, GetStatus.OFFSET_OVERFLOW_ONE, 3),
        (4, GetStatus.OFFSET_OVERFLOW_BADLY, 3),
        (1 << 62, GetStatus.OFFSET_OVERFLOW_BADLY, 3),
    ],
)
def test_offsets_against_the_ends(
    store: MessageStore, offset: int, status: GetStatus, next_offset: int
) -> None:
    for number in range(3):
        put(store, b"%d" % number)
    store.write()
    got = store.reader.get("T", 0, offset, 32)
    assert (got.status, got.next_offset, got.min_offset, got.max_offset) == (status, next_offset, 0, 3)
    assert got.count == len(split(got.body))


def test_an_unknown_queue_answers_as_an_empty_one(store: MessageStore) -> None:
    for queue_id in (0, -1, 1 << 40):
        got = store.reader.get("Nobody", queue_id, 5, 32)
        assert (got.status, got.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
    assert store.reader.queues() == []


def test_limits_of_a_pull(store: MessageStore) -> None:
    for _ in range(40):
        put(store, b"x" * 100)
    store.write()
    size = store.reader.entries("T", 0, 0, 1)[0].size
    assert (
        store.reader.get("T", 0, 0, 64).count == 10
    )  # a get ends with the queue file: 200 bytes are 10 entries
    assert store.reader.get("T", 0, 0, 5).count == 5
    assert store.reader.get("T", 0, 0, 5, max_bytes=3 * size).count == 3
    assert store.reader.get("T", 0, 0, 5, max_bytes=3 * size - 1).count == 2
    assert store.reader.get("T", 0, 0, 5, max_bytes=1).count == 1
    limits = {"bytes_in_memory": 10**6, "count_in_memory": 7, "bytes_on_disk": 10**6, "count_on_disk": 4}
    limits["filter_bytes"] = 16000
    store.reader.set_limits(in_memory_bytes=1 << 40, **limits)
    assert store.reader.get("T", 0, 0, 32).count == 7
    store.reader.set_limits(in_memory_bytes=-1, **limits)
    assert store.reader.get("T", 0, 0, 32).count == 4
    assert store.reader.get("T", 0, 0, 32).far_behind


def test_tags_and_filters_select(store: MessageStore) -> None:
    for tag in ("a", "b", "a", "c"):
        put(store, tag.encode(), properties=properties_of(TAGS=tag))
    store.write()
    got = store.reader.get("T", 0, 0, 32, tags=frozenset({java_hash("a")}))
    assert [record.body for record in split(got.body)] == [b"a", b"a"]
    assert got.next_offset == 4
    got = store.reader.get("T", 0, 0, 32, tags=frozenset({java_hash("zz")}))
    assert (got.status, got.next_offset, got.body) == (GetStatus.NO_MATCHED_MESSAGE, 4, b"")
    got = store.reader.get("T", 0, 0, 32, accept=lambda record: b"TAGS\1b" in bytes(record))
    assert [record.body for record in split(got.body)] == [b"b"]


def test_a_slow_filter_does_not_hold_up_the_loop_for_the_whole_window(store: MessageStore) -> None:
    """It ends after 50 ms, as at the end of the window: the client goes on from there."""
    for _ in range(300):
        put(store, b"x")
    store.write()
    seen: list[int] = []

    def accept(record: memoryview) -> bool:
        seen.append(len(record))
        time.sleep(0.01)
        return len(seen) == 2

    got = store.reader.get("T", 0, 0, 32, accept=accept)
    assert (got.status, got.count, got.next_offset) == (GetStatus.FOUND, 1, len(seen))
    assert 2 <= len(seen) <= 7
    got = store.reader.get("T", 0, got.next_offset, 32, accept=accept)
    assert (got.status, got.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, len(seen))


def test_keys_and_tags_are_found_in_their_own_topics(tmp_path: Path) -> None:
    """Whatever topic was written before: of the same length, a part of it, or one too long for the cache."""
    topics = ["T", "TT", "TU", "T", "%RETRY%" + "g" * 248, "%RETRY%" + "g" * 247 + "h", "TU", "T"]
    with open_store(tmp_path, index_slots=1000, index_entries=1000) as store:
        for number, topic in enumerate(topics):
            put(
                store,
                b"%d" % number,
                topic,
                properties=properties_of(UNIQ_KEY=f"u{number}", KEYS="k l", TAGS="t"),
            )
        store.write()
        for number, topic in enumerate(topics):
            own = [b"%d" % at for at, other in enumerate(topics) if other == topic]
            for key, tag, wanted in (
                ("k", False, own),
                ("l", False, own),
                ("t", True, own),
                (f"u{number}", False, [b"%d" % number]),
            ):
                records, _, _ = store.reader.query(topic, key, 32, 0, 1 << 40, tag)
                assert [decode(record).body for record in records] == wanted


def same_hash(number: int) -> str:
    """Keys of one Java hash, for 17 bits of a number."""
    return "".join("Aa" if number >> bit & 1 else "BB" for bit in range(17))


def test_a_key_is_found_among_others_of_its_hash(tmp_path: Path) -> None:
    """The index knows only hashes: of keys, of unique keys, of tags, and of topic and key together."""
    with open_store(tmp_path, index_slots=1000, index_entries=1000) as store:
        put(store, b"key", "Aa", properties=properties_of(KEYS=f"x {same_hash(0)} y"))
        put(store, b"unique", "Aa", properties=properties_of(UNIQ_KEY=same_hash(1)))
        put(store, b"tag", "Aa", properties=properties_of(TAGS=same_hash(2)))
        for number in range(100):
            other, topic = same_hash(100 + number), "BB" if number % 2 else "Aa"
            put(store, b"", topic, properties=properties_of(KEYS=other, UNIQ_KEY=other, TAGS=other))
            put(store, b"", "BB", properties=properties_of(KEYS=same_hash(0), TAGS=same_hash(2)))
        store.write()
        for number, tag, wanted in ((0, False, b"key"), (1, False, b"unique"), (2, True, b"tag")):
            records, _, _ = store.reader.query("Aa", same_hash(number), 1, 0, 1 << 40, tag)
            assert [decode(record).body for record in records] == [wanted]
        records, _, _ = store.reader.query("BB", same_hash(0), 3, 0, 1 << 40)
        assert len(records) == 3
        assert store.reader.query("Aa", same_hash(3), 3, 0, 1 << 40)[0] == []


def test_a_record_with_a_key_twice_counts_once(tmp_path: Path) -> None:
    with open_store(tmp_path, index_slots=1000, index_entries=1000) as store:
        for number in range(3):
            put(store, b"%d" % number, properties=properties_of(KEYS="k k k", UNIQ_KEY="k"))
        store.write()
        records, _, _ = store.reader.query("T", "k", 2, 0, 1 << 40)
        assert [decode(record).body for record in records] == [b"1", b"2"]


def test_comparisons_of_a_query_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_most = 1000
    monkeypatch.setattr(store_reader, "COMPARED_MAX", at_most)
    with open_store(tmp_path, index_slots=1000, index_entries=at_most + 100) as store:
        for number in range(at_most):
            put(store, b"", properties=properties_of(KEYS=same_hash(number)))
        store.write()
        assert len(store.reader.query("T", same_hash(0), 1, 0, 1 << 40)[0]) == 1
        put(store, b"", properties=properties_of(KEYS=same_hash(at_most)))
        store.write()
        assert store.reader.query("T", same_hash(0), 1, 0, 1 << 40)[0] == []
        assert len(store.reader.query("T", same_hash(1), 1, 0, 1 << 40)[0]) == 1


def test_search_by_time(store: MessageStore) -> None:
    for now_ms in (1000, 2000, 2000, 3000):
        put(store, b"", now_ms=now_ms)
    store.write()
    times = (0, 1000, 1500, 2000, 3000, 3001)
    assert [store.reader.offset_by_time("T", 0, at) for at in times] == [0, 0, 1, 1, 3, 4]
    assert [store.reader.store_time("T", 0, at) for at in (-1, 0, 3, 4)] == [-1, 1000, 3000, -1]
    assert store.reader.earliest_store_time() == 1000


def test_an_offset_without_a_record_returns_nothing(store: MessageStore) -> None:
    inner = put(store, b"inner")
    store.write()
    raw = store.reader.record_at(inner.physical_offset)
    assert raw is not None
    forged = put(store, raw)  # a body that looks like a record
    store.write()
    for offset in (-1, 1, forged.physical_offset + 88, store.written, 1 << 62):
        assert store.reader.record_at(offset) is None


def test_the_last_batch_is_read_while_more_is_staged_and_after_a_failed_write(
    store: MessageStore,
) -> None:
    """It is in memory until the next message is staged."""

    def seen() -> list[bytes]:
        return [record.body for record in read(store)]

    put(store, b"first")
    put(store, b"second")
    store.write()
    assert seen() == [b"first", b"second"]
    put(store, b"XXXXXXXXXXXXXXXXXX")
    assert seen() == [b"first", b"second"]
    fail_next("pwrite", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        store.write()
    heal()
    assert seen() == [b"first", b"second"]
    put(store, b"third")
    store.write()
    put(store, b"YYYYYYYYYYYYYYYYYY")
    store.write()
    assert seen() == [b"first", b"second", b"third", b"YYYYYYYYYYYYYYYYYY"]
