"""The cost of finding and selecting records: `pytest bench --benchmark-enable`.

One window of 1-KiB bodies, some keys and one of five tags each, as a broker writes it; entries of one queue
of sixteen.
"""

import struct

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from firearrow._native.base.hash import crc32, java_hash
from firearrow._native.columnar.entry_lookup import from_entries
from firearrow._native.columnar.record_filter import RecordFilter
from firearrow._native.columnar.record_spans import find, walk
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.filter_eval import FilterEvaluator

COUNT, QUEUES, TAGS = 64 * 1024, 16, 5
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
BODY = bytes(range(256)) * 4
BORN_MS = 1_700_000_000_000


def record(number: int, physical_offset: int) -> bytes:
    properties = b"UNIQ_KEY\x01%032X\x02WAIT\x01true\x02TAGS\x01tag%d\x02KEYS\x01key%d\x02" % (
        number,
        number % TAGS,
        number,
    )
    head = struct.pack(
        ">iiiqqiq", crc32(BODY), number % QUEUES, 0, number // QUEUES, physical_offset, 0, BORN_MS + number
    )
    rest = HOST + struct.pack(">q", BORN_MS + number) + HOST + struct.pack(">iqi", 0, 0, len(BODY)) + BODY
    rest += b"\x05Bench" + struct.pack(">h", len(properties)) + properties
    return struct.pack(">iI", 8 + len(head) + len(rest), 0xDAA320A7) + head + rest


@pytest.fixture(scope="module")
def log() -> tuple[bytes, bytes]:
    """The log, and the entries of queue 0."""
    records, entries, physical_offset = [], [], 0
    for number in range(COUNT):
        made = record(number, physical_offset)
        records.append(made)
        if number % QUEUES == 0:
            entries.append(struct.pack(">qiq", physical_offset, len(made), java_hash(f"tag{number % TAGS}")))
        physical_offset += len(made)
    return b"".join(records), b"".join(entries)


@pytest.mark.parametrize("check_crc", [False, True])
def test_walk(benchmark: BenchmarkFixture, log: tuple[bytes, bytes], check_crc: bool) -> None:
    """65,536 contiguous records."""
    window, _ = log
    spans, stopped_at, _ = benchmark(walk, window, 0, len(window), check_crc=check_crc)
    assert (len(spans), stopped_at) == (COUNT, len(window))


def test_find(benchmark: BenchmarkFixture, log: tuple[bytes, bytes]) -> None:
    """64 MiB without a record."""
    window = bytes(64 << 20)
    assert benchmark(find, window, 0, len(window)) == -1


@pytest.mark.parametrize("tags", [None, frozenset({java_hash("tag1")}), frozenset({java_hash("none")})])
def test_entries(benchmark: BenchmarkFixture, log: tuple[bytes, bytes], tags: frozenset[int] | None) -> None:
    """4,096 entries, of every tag, of one of five, of none."""
    window, entries = log
    spans, used = benchmark(from_entries, window, entries, base=0, first=0, tags=tags, queue=("Bench", 0))
    assert used == COUNT // QUEUES
    assert len(spans) == (used if tags is None else 0 if java_hash("none") in tags else used // TAGS)


SELECTIONS = {
    "time": ({"stored_until": BORN_MS + COUNT // 2}, COUNT // 2),
    "tag": ({"tags": ["tag1", "tag2"]}, COUNT * 2 // TAGS),
    "key": ({"keys": ["key77"]}, 1),
    "100,000 keys": ({"keys": [f"key{number}" for number in range(0, 200_000, 2)]}, COUNT // 2),
    "unique id": ({"unique_ids": [f"{number:032X}" for number in (5, 6)]}, 2),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_selection(benchmark: BenchmarkFixture, log: tuple[bytes, bytes], name: str) -> None:
    """65,536 records examined."""
    spans, _, _ = walk(log[0], 0, len(log[0]))
    asked, count = SELECTIONS[name]
    kept = benchmark(RecordFilter(**asked).keep, spans)  # type: ignore[arg-type]
    assert abs(len(kept) - count) <= 1


def test_sql(benchmark: BenchmarkFixture, log: tuple[bytes, bytes]) -> None:
    """4,096 records, evaluated in Python."""
    spans, _ = from_entries(log[0], log[1], base=0, first=0)
    kept = benchmark(FilterEvaluator(MessageFilter(sql="TAGS = 'tag1' AND KEYS IS NOT NULL")).keep, spans)
    assert len(kept) == COUNT // QUEUES // TAGS
