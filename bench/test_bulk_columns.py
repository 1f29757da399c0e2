"""The cost of columns on one core, for bodies of three sizes: `pytest bench --benchmark-enable`.

Records are contiguous in memory, as in a segment whose pages are resident.
"""

import struct
import zlib

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from firearrow._native.columnar.record_spans import Spans, walk
from firearrow.spark_tools.arrow.columns import ALL, record_batches

WINDOW_BYTES = 64 << 20
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
CHOICES = {
    "all": ALL,
    "no body": tuple(name for name in ALL if name != "body"),
    "no properties": tuple(name for name in ALL if name not in ("properties", "tags", "keys", "uniqKey")),
    "heads": ("topic", "queueId", "queueOffset", "storeTimestamp"),
}


def record(number: int, physical_offset: int, body: bytes) -> bytes:
    """Four properties and a topic of eight letters, as the study of the Spark tools had them."""
    named = {
        "UNIQ_KEY": f"{number:032X}",
        "WAIT": "true",
        "TAGS": f"tag{number % 5}",
        "KEYS": f"order-{number:08}",
    }
    properties = "".join(f"{name}\x01{value}\x02" for name, value in named.items()).encode()
    rest = struct.pack(
        ">Iiiqqiq", zlib.crc32(body), number % 4, 0, number, physical_offset, 0, 1_700_000_000_000
    )
    rest += HOST + struct.pack(">q", 1_700_000_000_001) + HOST + struct.pack(">iqi", 0, 0, len(body)) + body
    rest += b"\x08orders-%d" % (number % 4) + struct.pack(">h", len(properties)) + properties
    return struct.pack(">iI", len(rest) + 8, 0xDAA320A7) + rest


def records(body_bytes: int) -> Spans:
    parts: list[bytes] = []
    physical_offset, body = 0, bytes(range(256)) * (body_bytes // 256 + 1)
    while physical_offset < WINDOW_BYTES:
        parts.append(record(len(parts), physical_offset, body[:body_bytes]))
        physical_offset += len(parts[-1])
    spans, _, _ = walk(b"".join(parts), 0, physical_offset)
    return spans


@pytest.fixture(scope="module", params=[128, 1024, 10240])
def spans(request: pytest.FixtureRequest) -> Spans:
    return records(request.param)


@pytest.mark.parametrize("choice", CHOICES)
def test_columns(benchmark: BenchmarkFixture, spans: Spans, message_filter: str) -> None:
    """`extra_info` has millions of records a second, at the best."""

    def decode() -> int:
        return sum(map(len, record_batches(spans, CHOICES[message_filter], "broker-a", open_bodies=True)))

    assert benchmark.pedantic(decode, rounds=9, warmup_rounds=1) == len(spans)
    if benchmark.stats is not None:
        benchmark.extra_info["records"] = len(spans)
        benchmark.extra_info["million_a_second"] = round(len(spans) / benchmark.stats.stats.min / 1e6, 2)
