"""Records in a window: walked, looked up by entries, found again after damage; never outside of the window."""

import mmap
import struct
from pathlib import Path

import pytest

from firearrow._native.base.hash import java_hash
from firearrow._native.columnar.entry_lookup import from_entries
from firearrow._native.columnar.record_spans import End, Spans, find, from_answer, walk
from firearrow._native.store.log.record import RecordError
from firearrow._native.store.message_store import MessageStore, StoreConfig
from tests.spark.record_bytes import properties_bytes, record_bytes
from tests.spark.stores import Golden
from tests.support.stores import HOST_V6, put
from tests.unit.store.test_golden import assert_same

BASE = 262144
BLANK = struct.pack(">iI", 40, 0xCBD43194) + bytes(32)
BODY_AT, MAGIC_AT, QUEUE_OFFSET_AT, PHYSICAL_AT = 88, 4, 20, 28


def log_of(
    count: int, *, base: int = BASE, body: bytes = b"body ", first: int = 0
) -> tuple[bytes, list[int]]:
    """Consecutive records of Orders@3, and where each begins."""
    log, positions = b"", []
    for number in range(count):
        positions.append(len(log))
        log += record_bytes(
            body + str(number).encode(),
            properties_bytes({"TAGS": f"tag{number % 3}", "n": str(number)}),
            queue_offset=first + number,
            physical_offset=base + len(log),
        )
    return log, positions


def entries_of(log: bytes, positions: list[int], *, base: int = BASE) -> bytes:
    ends = [*positions[1:], len(log)]
    return b"".join(
        struct.pack(">qiq", base + position, end - position, java_hash(f"tag{number % 3}"))
        for number, (position, end) in enumerate(zip(positions, ends, strict=True))
    )


def positions_of(spans: Spans) -> list[int]:
    return [spans.position(index) for index in range(len(spans))]


def changed(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


# ---- walking ----


def test_every_record_of_a_golden_log_is_what_apache_says(golden: Golden) -> None:
    expected = {m["physicalOffset"]: m for _, queue in golden.queues() for m in queue["messages"]}
    seen = set()
    for path in sorted((golden.root / "commitlog").iterdir()):
        spans, _, end = walk(path.read_bytes(), 0, 1 << 40, base=int(path.name), check_crc=True)
        assert end in (End.BLANK, End.UNWRITTEN)
        for index in range(len(spans)):
            record = spans[index]
            assert record.physical_offset == spans.base + spans.position(index)
            if record.physical_offset in expected:
                assert_same(record, expected[record.physical_offset])
                assert spans.properties(index) == expected[record.physical_offset]["properties"]
                assert spans.topic(index) == record.topic
                assert bytes(spans.record(index))[BODY_AT : BODY_AT + len(record.body)] == record.body
                seen.add(record.physical_offset)
    assert seen == set(expected)


def test_a_walk_ends_at_its_limits() -> None:
    log, positions = log_of(10)
    assert positions_of(walk(log, 0, positions[4], base=BASE)[0]) == positions[:4]
    assert positions_of(walk(log, 0, positions[4] + 1, base=BASE)[0]) == positions[:5]  # begins before
    spans, stopped_at, end = walk(log, positions[2], len(log), base=BASE, count_max=3)
    assert (positions_of(spans), stopped_at, end) == (positions[2:5], positions[5], End.LIMIT)
    spans, stopped_at, end = walk(log, 0, len(log), base=BASE, bytes_max=positions[2] + 1)
    assert (positions_of(spans), stopped_at, end) == (positions[:3], positions[3], End.LIMIT)
    assert (spans.bytes, spans.base, spans.length) == (positions[3], BASE, len(log))
    with pytest.raises(ValueError, match="cannot start at -1"):
        walk(log, -1, 5)


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (BLANK, End.BLANK),
        (bytes(200), End.UNWRITTEN),
        (b"", End.LIMIT),
        (bytes(7), End.UNWRITTEN),
        (b"\x01" * 200, End.TORN),
        (log_of(1)[0], End.TORN),  # a whole record, but of another offset
        (struct.pack(">iI", 4, 0xCBD43194), End.TORN),  # a blank shorter than its header
    ],
)
def test_the_end_of_a_walk_has_a_reason(tail: bytes, why: End) -> None:
    log, positions = log_of(3)
    spans, stopped_at, end = walk(log + tail, 0, 1 << 40, base=BASE)
    assert positions_of(spans) == positions
    assert end is why
    assert stopped_at == len(log) + (len(BLANK) if why is End.BLANK else 0)


def test_a_torn_record_is_none_at_every_cut() -> None:
    log, positions = log_of(2)
    for cut in range(positions[1] + 8, len(log)):
        spans, stopped_at, end = walk(log[:cut], 0, cut, base=BASE)
        assert (positions_of(spans), stopped_at, end) == ([0], positions[1], End.TORN)

    body_end = positions[1] + BODY_AT + len(b"body 1")
    for cut in range(positions[1] + 8, body_end):
        zeroed = log[:cut] + bytes(len(log) + 100 - cut)
        spans, stopped_at, end = walk(zeroed, 0, len(zeroed), base=BASE, check_crc=True)
        assert (positions_of(spans), end) == ([0], End.BAD_CRC if stopped_at > positions[1] else End.TORN)


def test_a_wrong_crc_is_reported_when_it_is_checked() -> None:
    log, positions = log_of(3)
    log = changed(log, positions[1] + BODY_AT, b"B")
    assert positions_of(walk(log, 0, len(log), base=BASE)[0]) == positions
    spans, stopped_at, end = walk(log, 0, len(log), base=BASE, check_crc=True)
    assert (positions_of(spans), stopped_at, end) == ([0], positions[2], End.BAD_CRC)
    elsewhere = changed(log, positions[1] + PHYSICAL_AT, bytes(8))
    assert walk(elsewhere, 0, len(log), base=BASE, check_crc=True)[1:] == (positions[1], End.TORN)


def test_long_topics_and_ipv6_hosts_are_records_too(tmp_path: Path) -> None:
    long = "%RETRY%" + "g" * 200
    with MessageStore.open(tmp_path, StoreConfig(segment_bytes=65536, queue_file_bytes=2000)) as store:
        put(store, b"v2", long)
        put(store, b"v6", born_host=HOST_V6, store_host=HOST_V6)
        put(store, b"both", long, born_host=HOST_V6)
        store.write()
    [log] = (tmp_path / "commitlog").iterdir()
    spans, _, end = walk(log.read_bytes(), 0, 65536, check_crc=True)
    assert end is End.UNWRITTEN
    assert [record.topic for record in spans] == [long, "T", long]  # type: ignore[attr-defined]
    assert [(len(spans[n].born_host), len(spans[n].store_host)) for n in range(3)] == [
        (8, 8),
        (20, 20),
        (20, 8),
    ]


# ---- by entries ----


def test_entries_show_their_records() -> None:
    log, positions = log_of(40)
    entries = entries_of(log, positions)
    spans, used = from_entries(log, entries, base=BASE, first=0, queue=("Orders", 3))
    assert (positions_of(spans), used) == (positions, 40)
    assert spans.bytes == len(log)
    spans, used = from_entries(log, entries[20 * 7 : 20 * 9 + 19], base=BASE, first=7)
    assert (positions_of(spans), used) == (positions[7:9], 2)
    assert from_entries(log, b"", base=BASE, first=0)[1] == 0


def test_golden_queues_are_read_by_their_entries(golden: Golden) -> None:
    logs = {int(path.name): path.read_bytes() for path in (golden.root / "commitlog").iterdir()}
    seen = 0
    for topic, queue in golden.queues():
        folder = golden.root / "consumequeue" / topic / str(queue["queueId"])
        entries = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
        entries, at = entries[: queue["maxOffset"] * 20], 0
        while at < queue["maxOffset"]:
            base = int.from_bytes(entries[at * 20 : at * 20 + 8], "big") // 262144 * 262144
            spans, used = from_entries(
                logs[base],
                entries[at * 20 :],
                base=base,
                first=at,
                is_lmq=topic.startswith("%LMQ%"),
                queue=(topic, queue["queueId"]),
            )
            for index in range(len(spans)):
                assert_same(spans[index], queue["messages"][at + index])
                seen += 1
            at += used
    assert seen > 700


def test_tags_are_refused_on_the_entry() -> None:
    log, positions = log_of(30)
    entries = entries_of(log, positions)
    bad_bodies = bytes(len(log))  # a reader of these bytes finds no record
    none = frozenset({java_hash("elsewhere")})
    assert from_entries(bad_bodies, entries, base=BASE, first=0, tags=none)[1] == 30
    for tags in ({"tag1"}, {"tag0", "tag2"}, {f"tag{n}" for n in range(2, 50)}):
        codes = frozenset(java_hash(tag) for tag in tags)
        spans, used = from_entries(log, entries, base=BASE, first=0, tags=codes)
        assert used == 30
        assert positions_of(spans) == [
            position for n, position in enumerate(positions) if f"tag{n % 3}" in tags
        ]
    assert len(from_entries(log, entries, base=BASE, first=0, tags=frozenset())[0]) == 0


def test_an_address_into_an_extension_file_refuses_nothing() -> None:
    log, positions = log_of(2)
    entries = bytearray(entries_of(log, positions))
    entries[12:20] = struct.pack(">q", -(1 << 63) + 100)
    tags = frozenset({java_hash("neither")})
    assert positions_of(from_entries(log, entries, base=BASE, first=0, tags=tags)[0]) == [0]


def test_bytes_and_the_window_bound_what_is_looked_up() -> None:
    log, positions = log_of(30)
    entries = entries_of(log, positions)
    spans, used = from_entries(log, entries, base=BASE, first=0, bytes_max=positions[3] + 1)
    assert (positions_of(spans), used) == (positions[:4], 4)
    half = log[: positions[20]]
    assert from_entries(half, entries, base=BASE, first=0)[1] == 20
    assert from_entries(log, entries, base=BASE + positions[5], first=0)[1] == 0


LIES = {
    "size": (20 * 8 + 8, struct.pack(">i", 99)),
    "size below zero": (20 * 8 + 8, struct.pack(">i", -1)),
    "position": (20 * 8, struct.pack(">q", BASE + 1)),
    "another record": (20 * 8, struct.pack(">q", BASE)),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_wrong_entry_is_named(lie: str) -> None:
    log, positions = log_of(30)
    entries = changed(entries_of(log, positions), *LIES[lie])
    spans, used = from_entries(log, entries, base=BASE, first=0)
    assert (positions_of(spans), used) == (positions[:8], 8)
    with pytest.raises(RecordError, match="queue offset 8: no such record at"):
        from_entries(log, entries[20 * 8 :], base=BASE, first=8)


def test_records_of_another_queue_are_not_those_of_the_entries() -> None:
    log, positions = log_of(3)
    entries = entries_of(log, positions)
    for queue in (("Orders", 2), ("Order", 3), ("Ordert", 3), ("Orders2", 3)):
        with pytest.raises(RecordError, match="queue offset 0"):
            from_entries(log, entries, base=BASE, first=0, queue=queue)
    with pytest.raises(RecordError, match="queue offset 5"):
        from_entries(log, entries, base=BASE, first=5)
    assert len(from_entries(log, entries, base=BASE, first=5, is_lmq=True)[0]) == 3


# ---- what is done with them ----


def test_parts_stand_on_the_same_window() -> None:
    log, positions = log_of(10)
    spans, _, _ = walk(log, 0, len(log), base=BASE)
    assert positions_of(spans.slice(3, 6)) == positions[3:6]
    assert spans.slice(8, 99).bytes == len(log) - positions[8]
    assert positions_of(spans.take([7, 0, 7])) == [positions[7], 0, positions[7]]
    with pytest.raises(IndexError):
        spans.take([10])
    with pytest.raises(IndexError):
        spans.record(-1)
    assert spans.record(2).readonly
    with pytest.raises(TypeError, match="made by walk"):
        Spans()


def test_bytes_that_change_are_an_error_and_no_crash() -> None:
    log, positions = log_of(2)
    window = bytearray(log)
    spans, _, _ = walk(window, 0, len(log), base=BASE)
    window[positions[1] : positions[1] + 4] = b"\x7f\xff\xff\xff"
    assert spans[0].queue_offset == 0
    with pytest.raises(RecordError, match=f"the record at {BASE + positions[1]} changed"):
        spans.store_ms(1)


def test_a_window_lives_as_long_as_its_spans(tmp_path: Path) -> None:
    log, _ = log_of(5, base=0)
    (tmp_path / "log").write_bytes(log)
    with (tmp_path / "log").open("rb") as file:
        window = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    spans, _, _ = walk(window, 0, len(log))
    with pytest.raises(BufferError):
        window.close()
    (tmp_path / "log").unlink()
    del window
    assert spans[4].body == b"body 4"


def test_an_answer_is_whole_records_or_an_error() -> None:
    log, positions = log_of(4)
    assert positions_of(from_answer(log)) == positions
    assert len(from_answer(b"")) == 0
    with pytest.raises(
        RecordError, match=f"no whole record {positions[3]} bytes into an answer of {len(log) - 1}"
    ):
        from_answer(log[:-1])


# ---- resynchronisation ----


def test_the_next_record_is_found_after_damage() -> None:
    log, positions = log_of(6)
    assert find(log, 0, len(log), base=BASE) == 0
    assert find(log, 1, len(log), base=BASE) == positions[1]
    assert find(log, positions[5] + 1, len(log), base=BASE) == -1
    assert find(log, 1, positions[1], base=BASE) == -1  # begins before `stop`
    assert find(log, 0, len(log), base=BASE + 1) == -1  # records contain their offset
    broken = changed(log, positions[2] + MAGIC_AT, b"\0")
    assert find(broken, positions[2], len(log), base=BASE) == positions[3]
    assert find(b"\xda" * 500, 0, 500) == -1
    assert find(b"", 0, 9) == -1


def test_a_record_inside_of_a_body_is_not_found_as_one() -> None:
    inner, _ = log_of(3, base=0)
    log, positions = log_of(2, body=inner)
    assert find(log, 1, len(log), base=BASE) == positions[1]
