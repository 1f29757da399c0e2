"""The columns of messages, and records as Arrow batches of them; Spark's types of the same names beside.

All are nullable, because Spark's own schema of a source is. Knows no session. Any thread, one batch at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from firearrow._native.bulk.columns import Columns
from firearrow._native.bulk.spans import Spans
from firearrow._native.store.record import Record
from firearrow.client.compression import BodyUnreadable, open_body
from firearrow.spark_tools.errors import OptionWrong, SparkToolsError

BATCH_RECORDS_MAX = 8192
BATCH_BYTES_MAX = 4 << 20
OFFSET_MAX = (1 << 31) - 1
PROPERTY_OF = {"tags": b"TAGS", "keys": b"KEYS", "uniqKey": b"UNIQ_KEY"}


class BodyBroken(SparkToolsError):
    """A compressed body cannot be opened; the text names the message."""


@dataclass(frozen=True, slots=True)
class Filling:
    """Where one batch comes from; a method for each way to fill a column, told the column's name."""

    found: Columns
    broker_name: str

    def numbers(self, name: str) -> pa.Array:
        return self._array(name, None, self.found.numbers(name))

    def times(self, name: str) -> pa.Array:
        return self._array(name, *self.found.times(name))

    def topic(self, name: str) -> pa.Array:
        return self._array(name, None, *self.found.topic())

    def body(self, name: str) -> pa.Array:
        return self._array(name, None, *self.found.body())

    def hosts(self, name: str) -> pa.Array:
        return self._array(name, None, *self.found.hosts(name))

    def value(self, name: str) -> pa.Array:
        return self._array(name, *self.found.value(PROPERTY_OF[name]))

    def properties(self, name: str) -> pa.Array:
        starts, names, values = self.found.properties()
        kind = COLUMNS[name].arrow
        pairs = [
            pa.Array.from_buffers(
                pa.string(), len(offsets) // 4 - 1, [None, *map(pa.py_buffer, (offsets, text))]
            )
            for offsets, text in (names, values)
        ]
        entries = pa.StructArray.from_arrays(pairs, fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(self.found), [None, pa.py_buffer(starts)], children=[entries])

    def broker(self, name: str) -> pa.Array:
        """The same name in each row."""
        count, text = len(self.found), self.broker_name.encode()
        if count * len(text) > OFFSET_MAX:
            raise OverflowError(
                f"{name}: {count * len(text)} bytes in one batch of {count} records: take fewer"
            )
        offsets = (np.arange(count + 1, dtype=np.int64) * len(text)).astype(np.int32)
        return self._array(name, None, offsets.tobytes(), text * count)

    def _array(self, name: str, *buffers: bytes | bytearray | None) -> pa.Array:
        held = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
        return pa.Array.from_buffers(COLUMNS[name].arrow, len(self.found), held)


@dataclass(frozen=True, slots=True)
class Column:
    arrow: pa.DataType
    ddl: str
    """Spark's name of the type."""
    fill: Callable[[Filling, str], pa.Array]


TIME = pa.timestamp("us", tz="UTC")
COLUMNS: dict[str, Column] = {
    "topic": Column(pa.string(), "string", Filling.topic),
    "queueId": Column(pa.int32(), "int", Filling.numbers),
    "queueOffset": Column(pa.int64(), "bigint", Filling.numbers),
    "brokerName": Column(pa.string(), "string", Filling.broker),
    "storeTimestamp": Column(TIME, "timestamp", Filling.times),
    "bornTimestamp": Column(TIME, "timestamp", Filling.times),
    "tags": Column(pa.string(), "string", Filling.value),
    "keys": Column(pa.string(), "string", Filling.value),
    "uniqKey": Column(pa.string(), "string", Filling.value),
    "body": Column(pa.binary(), "binary", Filling.body),
    "properties": Column(pa.map_(pa.string(), pa.string()), "map<string,string>", Filling.properties),
    "flag": Column(pa.int32(), "int", Filling.numbers),
    "sysFlag": Column(pa.int32(), "int", Filling.numbers),
    "reconsumeTimes": Column(pa.int32(), "int", Filling.numbers),
    "bornHost": Column(pa.string(), "string", Filling.hosts),
    "storeHost": Column(pa.string(), "string", Filling.hosts),
    "bodyCrc": Column(pa.int32(), "int", Filling.numbers),
    "physicalOffset": Column(pa.int64(), "bigint", Filling.numbers),
    "preparedTransactionOffset": Column(pa.int64(), "bigint", Filling.numbers),
}
ALL = tuple(COLUMNS)


def chosen(columns: Sequence[str], properties: bool = True) -> tuple[str, ...]:
    """The names, each a column's and once, without `properties` if that is false. OptionWrong: it is not so."""
    for index, name in enumerate(columns):
        if name not in COLUMNS:
            raise OptionWrong(f"columns: there is no {name!r}; there are {', '.join(ALL)}")
        if name in columns[:index]:
            raise OptionWrong(f"columns: {name} is named twice; name it once")
    wanted = tuple(name for name in columns if properties or name != "properties")
    if not wanted:
        raise OptionWrong("columns: none is left; name at least one")
    return wanted


def schema(columns: Sequence[str] = ALL, properties: bool = True) -> pa.Schema:
    return _schema(chosen(columns, properties))


@lru_cache(maxsize=64)
def _schema(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([pa.field(name, COLUMNS[name].arrow) for name in columns])


def spark_schema(columns: Sequence[str] = ALL, properties: bool = True) -> str:
    """The same for Spark, as DDL."""
    return ", ".join(f"{name} {COLUMNS[name].ddl}" for name in chosen(columns, properties))


def record_batch(
    spans: Spans, columns: Sequence[str], broker_name: str, *, open_bodies: bool
) -> pa.RecordBatch:
    """All of `spans` as one batch. BodyBroken; OverflowError: a column would need 2 GiB; RecordError: bytes changed."""
    found = Columns(spans, opener=_opener(columns, open_bodies), properties=_wants_properties(columns))
    return _batch(found, columns, broker_name)


def record_batches(
    spans: Spans,
    columns: Sequence[str],
    broker_name: str,
    *,
    open_bodies: bool,
    count_max: int = BATCH_RECORDS_MAX,
    bytes_max: int = BATCH_BYTES_MAX,
) -> Iterator[pa.RecordBatch]:
    """All of `spans` in batches of so many records at most, closed once they have `bytes_max`, bodies as opened."""
    opener, properties = _opener(columns, open_bodies), _wants_properties(columns)
    first = 0
    while first < len(spans):
        found = Columns(
            spans, first, opener=opener, properties=properties, count_max=count_max, bytes_max=bytes_max
        )
        yield _batch(found, columns, broker_name)
        first += len(found)


def _batch(found: Columns, columns: Sequence[str], broker_name: str) -> pa.RecordBatch:
    filling = Filling(found, broker_name)
    arrays = [COLUMNS[name].fill(filling, name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=_schema(tuple(columns)))


def _opener(columns: Sequence[str], open_bodies: bool) -> Callable[[Record], bytes] | None:
    return _opened if open_bodies and "body" in columns else None


def _wants_properties(columns: Sequence[str]) -> bool:
    return "properties" in columns or not PROPERTY_OF.keys().isdisjoint(columns)


def _opened(record: Record) -> bytes:
    try:
        return open_body(record.sys_flag, record.body)
    except BodyUnreadable as fault:
        where = f"topic {record.topic}, queue {record.queue_id}, offset {record.queue_offset}"
        raise BodyBroken(f"{where}: {fault}; read it as it is stored with openBodies=false") from fault
