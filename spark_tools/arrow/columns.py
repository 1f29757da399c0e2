"""Columns of the source with their Arrow and Spark types, and records as Arrow batches.

All columns are nullable, because Spark makes the schema of a source nullable. Any thread, one batch at a
time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec

import pyarrow as pa

from firearrow._native.columnar.arrow_export import ArrowBatch
from firearrow._native.columnar.columns import Columns
from firearrow._native.columnar.record_spans import Spans
from firearrow._native.store.log.record import Record
from firearrow.client.base import compression
from firearrow.client.base.compression import BODY_BYTES_MAX, COMPRESSED, KIND_BITS, KINDS, BodyUnreadable
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import CompressionKind
from firearrow.spark_tools.base.errors import InvalidOption, SparkToolsError
from firearrow.spark_tools.base.source import OnDataLoss, QueueRange

BATCH_RECORDS_MAX = 8192
BATCH_BYTES_MAX = 4 << 20
PROPERTY_OF = {"tags": b"TAGS", "keys": b"KEYS", "uniqKey": b"UNIQ_KEY"}


class DecompressionFailed(SparkToolsError):
    """A compressed body cannot be decompressed; the text names the message."""


class UnreadableBodies:
    """Opens bodies and collects the messages whose body cannot be opened."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, int, int], str] = {}
        """Topic, queue id and queue offset → why."""

    def __call__(self, record: Record) -> bytes:
        try:
            return open_body(record.sys_flag, record.body)
        except BodyUnreadable as fault:
            self.found[record.topic, record.queue_id, record.queue_offset] = str(fault)
            return b""

    def rest(self, spans: Spans, first: int, broker_name: str, on_data_loss: OnDataLoss) -> Spans:
        """`spans` without these messages, all from `first` on, which are reported. DataLoss."""
        kept = [
            index
            for index in range(len(spans))
            if index < first
            or (spans.topic(index), spans.queue_id(index), spans.queue_offset(index)) not in self.found
        ]
        for (topic, queue_id, offset), why in self.found.items():
            part = QueueRange(MessageQueue(topic, broker_name, queue_id), offset, offset + 1)
            on_data_loss(part, f"{why}; openBodies=false reads bodies as they are stored")
        self.found.clear()
        return spans.take(kept)


@dataclass(frozen=True, slots=True)
class Column:
    arrow: pa.DataType
    ddl: str
    """Spark's name for the type."""


TIME = pa.timestamp("us", tz="UTC")
COLUMNS: dict[str, Column] = {
    "topic": Column(pa.string(), "string"),
    "queueId": Column(pa.int32(), "int"),
    "queueOffset": Column(pa.int64(), "bigint"),
    "brokerName": Column(pa.string(), "string"),
    "storeTimestamp": Column(TIME, "timestamp"),
    "bornTimestamp": Column(TIME, "timestamp"),
    "tags": Column(pa.string(), "string"),
    "keys": Column(pa.string(), "string"),
    "uniqKey": Column(pa.string(), "string"),
    "body": Column(pa.binary(), "binary"),
    "properties": Column(pa.map_(pa.string(), pa.string()), "map<string,string>"),
    "flag": Column(pa.int32(), "int"),
    "sysFlag": Column(pa.int32(), "int"),
    "reconsumeTimes": Column(pa.int32(), "int"),
    "bornHost": Column(pa.string(), "string"),
    "storeHost": Column(pa.string(), "string"),
    "bodyCrc": Column(pa.int32(), "int"),
    "physicalOffset": Column(pa.int64(), "bigint"),
    "preparedTransactionOffset": Column(pa.int64(), "bigint"),
}
ALL = tuple(COLUMNS)


def column_names(columns: Sequence[str], properties: bool = True) -> tuple[str, ...]:
    """Checks column names; `properties` false drops that column. InvalidOption: unknown, repeated or no
    names."""
    for index, name in enumerate(columns):
        if name not in COLUMNS:
            raise InvalidOption(f"columns: unknown column {name!r}; the columns are {', '.join(ALL)}")
        if name in columns[:index]:
            raise InvalidOption(f"columns: {name} is named twice; name it once")
    names = tuple(name for name in columns if properties or name != "properties")
    if not names:
        raise InvalidOption("columns: no column is left; name at least one")
    return names


def schema(columns: Sequence[str] = ALL, properties: bool = True) -> pa.Schema:
    return _schema(column_names(columns, properties))


@lru_cache(maxsize=64)
def _schema(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([pa.field(name, COLUMNS[name].arrow) for name in columns])


def spark_schema(columns: Sequence[str] = ALL, properties: bool = True) -> str:
    """The schema for Spark, as DDL."""
    return ", ".join(f"{name} {COLUMNS[name].ddl}" for name in column_names(columns, properties))


def record_batch(
    spans: Spans, columns: Sequence[str], broker_name: str, *, open_bodies: bool
) -> pa.RecordBatch:
    """All of `spans` as one batch.

    DecompressionFailed; OverflowError: a column would need 2 GiB; RecordError: bytes changed while they
    were read.
    """
    found = Columns(spans, opener=_opener(columns, open_bodies), properties=_needs_properties(columns))
    return _batch(found, columns, broker_name)


def record_batches(
    spans: Spans,
    columns: Sequence[str],
    broker_name: str,
    *,
    open_bodies: bool,
    count_max: int = BATCH_RECORDS_MAX,
    bytes_max: int = BATCH_BYTES_MAX,
    on_data_loss: OnDataLoss | None = None,
) -> Iterator[pa.RecordBatch]:
    """All of `spans` in batches of at most `count_max` records. A batch ends when it has `bytes_max`
    decompressed bytes. Messages whose body cannot be decompressed are reported and left out; without
    `on_data_loss` the first one is a DecompressionFailed."""
    opener, properties = _opener(columns, open_bodies), _needs_properties(columns)
    collector = None if on_data_loss is None or opener is None else UnreadableBodies()
    first = 0
    while first < len(spans):
        found = Columns(
            spans,
            first,
            opener=collector or opener,
            properties=properties,
            count_max=count_max,
            bytes_max=bytes_max,
        )
        if collector is not None and collector.found:
            assert on_data_loss is not None
            spans = collector.rest(spans, first, broker_name, on_data_loss)
            continue
        yield _batch(found, columns, broker_name)
        first += len(found)


def arrays(spans: Spans, columns: Sequence[str], properties: Sequence[str]) -> list[pa.Array]:
    """Columns with bodies as stored, then a column for each named property, null where a message does not
    have it.

    RecordError: bytes changed while they were read.
    """
    fields = [*schema(columns), *(pa.field(name, pa.string()) for name in properties)]
    names = [*map(_field, columns), *(name.encode() for name in properties)]
    return list(_imported(Columns(spans).batch(names), pa.schema(fields)).columns)


def _batch(found: Columns, columns: Sequence[str], broker_name: str) -> pa.RecordBatch:
    return _imported(found.batch([*map(_field, columns)], broker_name), _schema(tuple(columns)))


def _field(column: str) -> str | bytes:
    return PROPERTY_OF.get(column, column)


def _imported(batch: ArrowBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch._import_from_c(batch.address, schema)


def _opener(columns: Sequence[str], open_bodies: bool) -> Callable[[Record], bytes] | None:
    return _opened if open_bodies and "body" in columns else None


def _needs_properties(columns: Sequence[str]) -> bool:
    return "properties" in columns or not PROPERTY_OF.keys().isdisjoint(columns)


def _opened(record: Record) -> bytes:
    try:
        return open_body(record.sys_flag, record.body)
    except BodyUnreadable as fault:
        where = f"topic {record.topic}, queue {record.queue_id}, offset {record.queue_offset}"
        raise DecompressionFailed(
            f"{where}: {fault}; set openBodies=false to read bodies as they are stored"
        ) from fault


# ---- compressed bodies ----

CODECS = {
    kind: codec
    for kind, codec, package in (
        (CompressionKind.LZ4, "lz4", "lz4"),
        (CompressionKind.ZSTD, "zstd", "zstandard"),
    )
    if find_spec(package) is None
}
"""The kinds that are opened with pyarrow, because the package is missing: it is ten times faster for small bodies."""


def open_body(sys_flag: int, stored: bytes, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """The body as it was sent, see client/base/compression.py. BodyUnreadable."""
    kind = KINDS.get(sys_flag & KIND_BITS) if sys_flag & COMPRESSED else None
    codec = None if kind is None else CODECS.get(kind)
    return (
        compression.open_body(sys_flag, stored, bytes_max)
        if codec is None
        else decompressed(codec, stored, bytes_max)
    )


def decompressed(codec: str, stored: bytes, bytes_max: int) -> bytes:
    """BodyUnreadable: damaged, or more than `bytes_max`."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(stored), codec) as stream:
            body: bytes = stream.read(bytes_max + 1)
    except OSError as error:
        raise BodyUnreadable(f"body: {codec} decompression failed: {error}") from error
    if len(body) > bytes_max or not stored:
        what = f"decompresses to more than {bytes_max} bytes" if body else "the data is truncated"
        raise BodyUnreadable(f"body: {codec} decompression failed: {what}")
    return body
