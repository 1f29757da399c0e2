"""Each hot structure alone, a thousand operations a call: `pytest bench/test_structures.py`."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.frames import BATCH, TOPIC, properties, send_frame
from bench.loops import Loops, StoreParts, loops
from firearrow._native.base.hash import CRC_WAYS, java_hash
from firearrow._native.store.message_store import InnerMessage, MessageStore, StoreConfig
from firearrow._native.wire.command import RemotingCommand

TIMES = 1000
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
TEXT = properties(1).encode()
BODIES = pytest.mark.parametrize("body_bytes", [128, 1024])


@pytest.fixture(scope="module")
def native() -> Loops:
    return loops()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """4096 messages of 1 KiB in queue 0, each with one of four tags."""
    made = MessageStore.open(
        tmp_path, StoreConfig(segment_bytes=1 << 28, index_slots=1 << 20, index_entries=1 << 22)
    )
    for n in range(4096):
        own = f"UNIQ_KEY\x01{n:032X}\x02TAGS\x01tag{n % 4}\x02".encode()
        message = InnerMessage(TOPIC, 0, bytes(1024), own, born_timestamp=1, born_host=HOST, store_host=HOST)
        made.put(message, now_ms=1_700_000_000_000)
        if n % BATCH == BATCH - 1:
            made.write()
    yield made
    made.abandon()


@pytest.fixture
def parts(native: Loops, store: MessageStore) -> StoreParts:
    return native.Parts(store.reader, TOPIC, 0)


def counted(benchmark: BenchmarkFixture, operations: int = TIMES) -> None:
    benchmark.extra_info["operations"] = operations


def test_frames(benchmark: BenchmarkFixture, native: Loops) -> None:
    counted(benchmark)
    window = b"".join(send_frame(0, bytes(128), n) for n in range(TIMES))
    assert benchmark(native.frames, window) == TIMES


@pytest.mark.parametrize("form", ["json", "binary"])
def test_header_scan(benchmark: BenchmarkFixture, native: Loops, form: str) -> None:
    """Of a send with twelve ext fields."""
    counted(benchmark)
    command = RemotingCommand.decode(send_frame(0, b"", 1))
    command.serializer = int(form == "binary")
    frame = command.encode()
    text = frame[8 : 8 + int.from_bytes(frame[5:8])]
    assert benchmark(native.headers, text, command.serializer, TIMES) == len(command.ext)


@BODIES
def test_record_encode(benchmark: BenchmarkFixture, native: Loops, body_bytes: int) -> None:
    counted(benchmark)
    record = benchmark(native.encode, TOPIC.encode(), TEXT, HOST, bytes(body_bytes), TIMES)
    assert len(record) == 91 + len(TOPIC) + len(TEXT) + body_bytes
    assert native.check(record, 1) == 1


@BODIES
def test_record_check(benchmark: BenchmarkFixture, native: Loops, body_bytes: int) -> None:
    counted(benchmark)
    record = native.encode(TOPIC.encode(), TEXT, HOST, bytes(body_bytes), 1)
    assert benchmark(native.check, record, TIMES) == TIMES


@pytest.mark.parametrize("way", range(CRC_WAYS))
@pytest.mark.parametrize("body_bytes", [128, 1024, 4096])
def test_crc(benchmark: BenchmarkFixture, native: Loops, body_bytes: int, way: int) -> None:
    counted(benchmark)
    body = bytes(range(128)) * (body_bytes // 128)
    assert benchmark(native.crc, body, way, TIMES) == zlib.crc32(body) & 0x7FFFFFFF


def test_key_hashes(benchmark: BenchmarkFixture, native: Loops) -> None:
    """Of a unique key and a tag."""
    counted(benchmark)
    found = benchmark(native.key_hashes, TOPIC.encode(), TEXT, TIMES)
    assert found == [abs(java_hash(f"{TOPIC}#{1:032X}")), abs(java_hash(f"{TOPIC}#T#TagA"))]


@BODIES
def test_append(
    benchmark: BenchmarkFixture, native: Loops, parts: StoreParts, store: MessageStore, body_bytes: int
) -> None:
    """Staged, and written for each 32."""
    counted(benchmark)
    record = native.encode(TOPIC.encode(), TEXT, HOST, bytes(body_bytes), 1)
    before = store.written
    ends = []
    benchmark.pedantic(lambda: ends.append(parts.append(record, TIMES)), rounds=20, warmup_rounds=2)  # type: ignore[no-untyped-call]
    assert (ends[0] - before) // len(record) == TIMES


def test_queue_put(benchmark: BenchmarkFixture, parts: StoreParts) -> None:
    counted(benchmark)
    ends: list[int] = []
    benchmark.pedantic(lambda: ends.append(parts.put(TIMES)), rounds=50, warmup_rounds=2)  # type: ignore[no-untyped-call]
    assert ends[0] == 4096 + TIMES


def test_queue_slice(benchmark: BenchmarkFixture, parts: StoreParts, store: MessageStore) -> None:
    """The look-up of 32 entries and a look at each."""
    counted(benchmark)
    size = len(store.reader.get(TOPIC, 0, 0, 1).body)
    assert benchmark(parts.slice, TIMES) == TIMES * BATCH * size


def test_index_put(benchmark: BenchmarkFixture, parts: StoreParts) -> None:
    counted(benchmark)
    benchmark.pedantic(parts.index_put, (TIMES,), rounds=50, warmup_rounds=2)  # type: ignore[no-untyped-call]


def test_tag_filter(benchmark: BenchmarkFixture, parts: StoreParts) -> None:
    """32 of 128 entries are picked; no record is touched."""
    counted(benchmark)
    count, _ = benchmark(parts.pull, [java_hash("tag3")], TIMES, False)
    assert count == BATCH


def test_pull_assemble(benchmark: BenchmarkFixture, parts: StoreParts, store: MessageStore) -> None:
    """32 records of 1 KiB picked and copied."""
    counted(benchmark)
    size = len(store.reader.get(TOPIC, 0, 0, 1).body)
    assert benchmark(parts.pull, [], TIMES, True) == (BATCH, BATCH * size)


def test_batch_items(benchmark: BenchmarkFixture, store: MessageStore) -> None:
    """A body of 32 items put, and written."""
    counted(benchmark, BATCH)
    item = struct.pack(">iiiii", 22 + 128 + len(TEXT), 0, 0, 0, 128) + bytes(128)
    items = (item + struct.pack(">h", len(TEXT)) + TEXT) * BATCH

    def put() -> int:
        placed = store.put_batch(
            InnerMessage(TOPIC, 1, items, b"", born_timestamp=1, born_host=HOST, store_host=HOST),
            now_ms=1_700_000_000_000,
        )
        store.write()
        return placed.end

    placed = benchmark.pedantic(put, rounds=200, warmup_rounds=2)  # type: ignore[no-untyped-call]
    assert placed == store.written
    assert store.reader.max_offset(TOPIC, 1) % BATCH == 0
