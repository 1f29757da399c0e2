"""Columns against the decoder of single records: an Arrow batch has the values of the records. No session."""

import ipaddress
import lzma
import pickle
import random
import struct
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from firearrow._native.base.text import valid
from firearrow._native.columnar.columns import Columns
from firearrow._native.columnar.record_spans import End, Spans, from_answer, walk
from firearrow._native.store.log.record import Record, RecordError
from firearrow.client.base.compression import FLAGS, open_body, pack
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import CompressionKind
from firearrow.spark_tools.arrow.columns import (
    ALL,
    COLUMNS,
    DecompressionFailed,
    column_names,
    record_batch,
    record_batches,
    schema,
    spark_schema,
)
from firearrow.spark_tools.base.errors import InvalidOption
from tests.spark.record_bytes import record_bytes, spans_of
from tests.spark.stores import Golden, KnownStore
from tests.support.recorder import Recorder

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEAR_10000_MS = 253402300800000
BROKER = "broker-ä"


def host_text(host: bytes) -> str:
    port = int.from_bytes(host[-4:], "big", signed=True)
    if len(host) == 8:
        return f"{ipaddress.IPv4Address(host[:4])}:{port}"
    return f"[{ipaddress.IPv6Address(host[:16])}]:{port}"


def time_of(ms: int) -> datetime | None:
    return EPOCH + timedelta(milliseconds=ms) if -62135596800000 <= ms < YEAR_10000_MS else None


def row_of(record: Record, open_bodies: bool = False) -> dict[str, Any]:
    """The expected columns of one record."""
    properties = record.properties
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "brokerName": BROKER,
        "storeTimestamp": time_of(record.store_timestamp),
        "bornTimestamp": time_of(record.born_timestamp),
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "uniqKey": properties.get("UNIQ_KEY"),
        "body": open_body(record.sys_flag, record.body) if open_bodies else record.body,
        "properties": properties,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "reconsumeTimes": record.reconsume_times,
        "bornHost": host_text(record.born_host),
        "storeHost": host_text(record.store_host),
        "bodyCrc": record.body_crc,
        "physicalOffset": record.physical_offset,
        "preparedTransactionOffset": record.prepared_offset,
    }


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    batch.validate(full=True)
    assert batch.schema == schema()
    rows: list[dict[str, Any]] = batch.to_pylist()
    for row in rows:
        pairs = row["properties"]
        row["properties"] = dict(pairs)
        assert len(row["properties"]) == len(pairs), "Spark refuses a key that stands twice"
    return rows


def agree(spans: Spans, open_bodies: bool = False) -> None:
    found = rows_of(record_batch(spans, ALL, BROKER, open_bodies=open_bodies))
    assert found == [row_of(spans[index], open_bodies) for index in range(len(spans))]


def segments(root: Path) -> list[Spans]:
    found = []
    for path in sorted((root / "commitlog").iterdir()):
        spans, _, end = walk(path.read_bytes(), 0, path.stat().st_size, base=int(path.name))
        assert end in (End.BLANK, End.UNWRITTEN, End.LIMIT)
        found.append(spans)
    return found


def test_every_record_that_apache_wrote(golden: Golden) -> None:
    found = segments(golden.root)
    assert sum(map(len, found)) > 500
    for spans in found:
        agree(spans)


def test_every_record_that_we_wrote_with_its_body_opened(store: KnownStore) -> None:
    bodies = {
        (known.queue.topic, known.queue.queue_id, known.queue_offset): known.body for known in store.messages
    }
    found = {}
    for spans in segments(store.root):
        agree(spans, open_bodies=True)
        for row in rows_of(record_batch(spans, ALL, BROKER, open_bodies=True)):
            found[row["topic"], row["queueId"], row["queueOffset"]] = row["body"]
    assert found == bodies


HOSTS = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
NUMBERS = {bits: st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (32, 64)}
TIMES = st.one_of(NUMBERS[64], st.integers(0, YEAR_10000_MS))
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "größe", "😀", "TAGS2", ""])
MARKS, ENDS = st.sampled_from(["\x01", "\x01\x01", ""]), st.sampled_from(["\x02", ""])
PIECES = st.tuples(NAMES, MARKS, st.text(max_size=12), ENDS)
PROPERTIES = st.one_of(
    st.lists(PIECES, max_size=60).map(lambda pieces: "".join(map("".join, pieces)).encode()),
    st.binary(max_size=200),
)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """A record that `check_record` accepts, with any strings; V2 where the topic needs it."""
    topic = draw(st.one_of(st.text(max_size=40).map(str.encode), st.binary(max_size=300)))
    wide = len(topic) > 127
    born, stored = draw(HOSTS), draw(HOSTS)
    flags = draw(NUMBERS[32]) & ~0x31 | (len(born) == 20) << 4 | (len(stored) == 20) << 5
    i32, i64 = NUMBERS[32], NUMBERS[64]
    body, properties = draw(st.binary(max_size=80)), draw(PROPERTIES)
    rest = struct.pack(">iiiqqiq", draw(i32), draw(i32), draw(i32), draw(i64), draw(i64), flags, draw(TIMES))
    rest += (
        born + struct.pack(">q", draw(TIMES)) + stored + struct.pack(">iqi", draw(i32), draw(i64), len(body))
    )
    rest += body + len(topic).to_bytes(2 if wide else 1, "big") + topic
    rest += struct.pack(">h", len(properties)) + properties
    return struct.pack(">iI", len(rest) + 8, 0xDAA320AB if wide else 0xDAA320A7) + rest


@given(st.lists(records(), max_size=20))
def test_random_records(made: list[bytes]) -> None:
    agree(from_answer(b"".join(made)))


@given(
    st.lists(records(), max_size=12),
    st.integers(1, 5),
    st.integers(1, 400),
    st.sets(st.sampled_from(ALL), min_size=1),
)
def test_slices_are_the_whole(made: list[bytes], count_max: int, bytes_max: int, wanted: set[str]) -> None:
    spans, columns = from_answer(b"".join(made)), sorted(wanted)
    whole = record_batch(spans, columns, BROKER, open_bodies=False)
    parts = list(
        record_batches(spans, columns, BROKER, open_bodies=False, count_max=count_max, bytes_max=bytes_max)
    )
    assert all(0 < len(part) <= count_max for part in parts)
    assert pa.Table.from_batches(parts, schema=schema(columns)) == pa.Table.from_batches([whole])


@pytest.mark.parametrize("last", ["", "\x02"])
def test_properties_as_either_version_of_apache_ends_them(last: str) -> None:
    spans = spans_of(record_bytes(b"b", f"TAGS\x01t\x02KEYS\x01k1 k2{last}".encode()))
    [row] = rows_of(record_batch(spans, ALL, BROKER, open_bodies=False))
    assert (row["tags"], row["keys"], row["uniqKey"]) == ("t", "k1 k2", None)
    assert row["properties"] == {"TAGS": "t", "KEYS": "k1 k2"}


def test_of_equal_names_the_last_value_stays_however_many_there_are() -> None:
    pairs = [(f"n{number % 1500}", str(number)) for number in range(3000)]
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
    spans = spans_of(record_bytes(b"", text))
    batch = record_batch(spans, ["properties"], BROKER, open_bodies=False)
    batch.validate(full=True)
    assert batch["properties"][0].as_py() == pairs[1500:]


def test_bad_bytes_are_replaced_as_python_does_and_only_they() -> None:
    good = "grüße 日本 😀 ok".encode()
    bad = good[:3] + b"\xff\xed\xa0\x80" + good[3:] + b"\xf0\x9f"
    spans = spans_of(
        record_bytes(b"", b"TAGS\x01" + good), record_bytes(b"", b"TAGS\x01" + bad + b"\x02k\x01v")
    )
    batch = record_batch(spans, ["tags", "keys", "properties"], BROKER, open_bodies=False)
    batch.validate(full=True)
    tags = [text.decode("utf-8", "replace") for text in (good, bad)]
    assert batch["tags"].to_pylist() == tags
    assert batch["properties"].to_pylist() == [[("TAGS", tags[0])], [("TAGS", tags[1]), ("k", "v")]]


@given(
    st.one_of(
        st.binary(max_size=40), st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass"))
    )
)
def test_utf8_is_what_the_strict_decoder_takes(text: bytes) -> None:
    try:
        text.decode()
        strict = True
    except UnicodeDecodeError:
        strict = False
    assert valid(text) is strict


@pytest.mark.parametrize("first", range(0xC0, 0x100))
def test_utf8_at_the_edges_of_every_first_byte(first: int) -> None:
    edges = (0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
    for second in edges:
        for rest in (b"", b"\x80", b"\xbf\xbf", b"\x80\x7f", b"\x80\x80\x80"):
            text = bytes((first, second)) + rest
            assert valid(text) is (text.decode("utf-8", "ignore").encode() == text), text


def test_times_outside_of_what_spark_shows_are_none() -> None:
    times = [0, -1, YEAR_10000_MS - 1, YEAR_10000_MS, -62135596800000, -62135596800001, 1 << 62, -(1 << 63)]
    spans = spans_of(*(record_bytes(b"", born_ms=ms, stored_ms=-ms - 1) for ms in times))
    batch = record_batch(spans, ["bornTimestamp", "storeTimestamp"], BROKER, open_bodies=False)
    batch.validate(full=True)
    assert batch["bornTimestamp"].to_pylist() == [time_of(ms) for ms in times]
    assert batch["storeTimestamp"].to_pylist() == [time_of(-ms - 1) for ms in times]
    assert batch["bornTimestamp"].null_count == 4


@pytest.mark.parametrize("kind", list(CompressionKind))
def test_bodies_are_opened_only_when_asked(kind: CompressionKind) -> None:
    sent = b"a body that is packed " * 40
    flag, stored = pack(kind, 5, sent)
    spans = spans_of(record_bytes(b"plain"), record_bytes(stored, sys_flag=flag), record_bytes(b""))
    kept, opened = (
        record_batch(spans, ["body", "sysFlag"], BROKER, open_bodies=asked) for asked in (False, True)
    )
    assert kept["body"].to_pylist() == [b"plain", stored, b""]
    assert opened["body"].to_pylist() == [b"plain", sent, b""]
    assert opened["sysFlag"].to_pylist() == [0, FLAGS[kind], 0]


def test_a_body_that_cannot_be_opened_names_its_message() -> None:
    packed = lzma.compress(b"not of any kind that there is")
    spans = spans_of(
        record_bytes(
            packed, topic="Orders", queue_id=3, queue_offset=17, sys_flag=FLAGS[CompressionKind.ZLIB]
        )
    )
    with pytest.raises(DecompressionFailed, match=r"topic Orders, queue 3, offset 17: .* openBodies=false"):
        record_batch(spans, ["body"], BROKER, open_bodies=True)
    assert record_batch(spans, ["topic"], BROKER, open_bodies=True)["topic"].to_pylist() == ["Orders"]


def test_messages_whose_bodies_cannot_be_opened_are_lost_by_name() -> None:
    flag, packed = pack(CompressionKind.ZSTD, 3, b"body")
    spans = spans_of(
        *(
            record_bytes(packed[:-1] if number % 5 == 3 else packed, queue_offset=number, sys_flag=flag)
            for number in range(12)
        )
    )
    lost = Recorder()
    batches = list(
        record_batches(
            spans, ["queueOffset", "body"], BROKER, open_bodies=True, count_max=5, on_data_loss=lost
        )
    )
    found = [row["queueOffset"] for batch in batches for row in batch.to_pylist()]
    assert found == [0, 1, 2, 4, 5, 6, 7, 9, 10, 11]
    assert {row["body"] for batch in batches for row in batch.to_pylist()} == {b"body"}
    assert [(part.queue, part.start, part.end) for part, _ in lost] == [
        (MessageQueue("Orders", BROKER, 3), number, number + 1) for number in (3, 8)
    ]
    assert all("zstd decompression failed" in why.lower() for _, why in lost)


def test_opened_bodies_count_for_the_bytes_of_a_batch() -> None:
    flag, stored = pack(CompressionKind.ZLIB, 9, bytes(100_000))
    spans = spans_of(*(record_bytes(stored, sys_flag=flag) for _ in range(10)))
    assert spans.bytes < 10_000
    parts = list(record_batches(spans, ["body"], BROKER, open_bodies=True, bytes_max=250_000))
    assert [len(part) for part in parts] == [3, 3, 3, 1]


def test_bodies_of_all_lengths_are_whole() -> None:
    """Short and long ones are copied by different code (farcopy.pxd)."""
    whole = random.Random(5).randbytes(9000)
    bodies = [whole[:length] for length in (*range(40), *range(505, 520), 1023, 1024, 1025, 9000)]
    spans = spans_of(*map(record_bytes, bodies))
    assert record_batch(spans, ["body"], BROKER, open_bodies=True)["body"].to_pylist() == bodies


def test_more_than_an_offset_holds_is_refused() -> None:
    body = bytes(200 << 20)
    spans = spans_of(record_bytes(zlib.compress(b"", 0), sys_flag=FLAGS[CompressionKind.ZLIB])).slice(0, 1)
    found = Columns(spans, opener=lambda record: body)
    assert found.size > len(body)
    many = spans_of(*(record_bytes(b"x", sys_flag=FLAGS[CompressionKind.ZLIB]) for _ in range(11)))
    found = Columns(many, opener=lambda record: body)
    with pytest.raises(
        OverflowError, match=f"body: {11 * len(body)} bytes in one batch of 11 records: take fewer"
    ):
        found.batch(["body"])


def test_more_of_a_broker_s_name_than_an_offset_holds_is_refused() -> None:
    spans = spans_of(record_bytes(b""), record_bytes(b""))
    with pytest.raises(OverflowError, match=r"brokerName: 2147483648 bytes .* of 2 records: take fewer"):
        record_batch(spans, ["brokerName"], "b" * (1 << 30), open_bodies=False)


def test_a_record_that_changes_under_the_window_is_noticed() -> None:
    window = bytearray(record_bytes(b"one") + record_bytes(b"two"))
    spans = from_answer(window)
    window[spans.position(1) + 4] ^= 1
    with pytest.raises(
        RecordError, match=f"at {spans.position(0) + spans.size(0)} changed while it was read"
    ):
        record_batch(spans, ["topic"], BROKER, open_bodies=False)


def test_no_records_are_an_empty_batch() -> None:
    spans = from_answer(b"")
    assert rows_of(record_batch(spans, ALL, BROKER, open_bodies=True)) == []
    assert list(record_batches(spans, ALL, BROKER, open_bodies=True)) == []


@pytest.mark.parametrize("bad", [{"first": 2}, {"first": -1}, {"count_max": 0}, {"bytes_max": 0}])
def test_what_is_not_there_cannot_be_taken(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="from record"):
        Columns(spans_of(record_bytes(b"")), **bad)


def test_a_batch_outlives_its_window() -> None:
    batch = record_batch(spans_of(record_bytes(b"body" * 100, b"TAGS\x01t")), ALL, BROKER, open_bodies=False)
    [row] = rows_of(pickle.loads(pickle.dumps(batch)))
    assert (row["body"], row["tags"]) == (b"body" * 100, "t")


SPARK_TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "binary": BinaryType(),
    "map<string,string>": MapType(StringType(), StringType()),
}


@pytest.mark.parametrize("columns", [ALL, ("body", "topic"), ("properties",)])
def test_the_schema_is_the_one_that_spark_makes(columns: tuple[str, ...]) -> None:
    fields = [line.split(" ") for line in spark_schema(columns).split(", ")]
    assert [name for name, _ in fields] == list(columns)
    spark = StructType([StructField(name, SPARK_TYPES[ddl]) for name, ddl in fields])
    assert to_arrow_schema(spark, timezone="UTC") == schema(columns)


def test_without_properties_the_map_is_left_out() -> None:
    assert column_names(ALL, properties=False) == tuple(name for name in COLUMNS if name != "properties")
    assert "properties" not in schema(properties=False).names
    assert "map" not in spark_schema(properties=False)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["topic", "Topic"], "unknown column 'Topic'"),
        (["body", "body"], "named twice"),
        (["properties"], "no column is left"),
    ],
)
def test_wrong_columns_are_refused(columns: list[str], expected: str) -> None:
    with pytest.raises(InvalidOption, match=f"columns: .*{expected}"):
        column_names(columns, properties=False)
