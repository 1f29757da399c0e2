"""Message columns: the columns of the sink and their types, and an Arrow batch of them as a RowEncoder.

A schema is checked once, before anything is sent; `rows_of` then copies only columns that must be cast. Any
thread.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from firearrow._native.columnar.arrow_import import ListArray, StringArray
from firearrow._native.columnar.row_encoder import RowEncoder
from firearrow._native.protocol.name_rules import BROKER_OWN
from firearrow.client.base.message import Property
from firearrow.spark_tools.arrow.columns import COLUMNS
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.provenance import (
    NAMES,
    REPLAY_BROKER,
    REPLAY_JOB,
    REPLAY_OFFSET,
    REPLAY_QUEUE,
    REPLAY_TOPIC,
)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_body(kind: pa.DataType) -> bool:
    return _is_text(kind) or bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_text(kind.value_type)


def _is_texts(kind: pa.DataType) -> bool:
    return _is_text(kind) or _is_list(kind)


def _is_map(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind)) and _is_text(kind.key_type) and _is_text(kind.item_type)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_integer(kind))


@dataclass(frozen=True, slots=True)
class MessageColumn:
    """A column of the sink: the types it may have, as a test and as text, and its meaning."""

    fits: Callable[[pa.DataType], bool]
    types: str
    note: str


MESSAGE_COLUMNS: dict[str, MessageColumn] = {
    "body": MessageColumn(_is_body, "binary or string", "Required; not null."),
    "topic": MessageColumn(
        _is_text, "string", "Required unless the option `topic` is given, which overrides it."
    ),
    "tags": MessageColumn(_is_text, "string", "Null or empty: none, here and below."),
    "keys": MessageColumn(_is_texts, "string or array<string>", "Keys, separated by spaces if a string."),
    "uniqKey": MessageColumn(
        _is_text, "string", "Null: one is made, the same for a task that is tried again."
    ),
    "properties": MessageColumn(
        _is_map,
        "map<string,string>",
        "Those that brokers set themselves or that would act again are left out.",
    ),
    "flag": MessageColumn(pa.types.is_integer, "int", "The message's flag."),
    "queueId": MessageColumn(
        pa.types.is_integer, "int", "The queue; null: see `shardingKey`. Option `queues`."
    ),
    "shardingKey": MessageColumn(
        _is_text, "string", "Equal keys go to the same queue, in order; null: any queue."
    ),
    "delayLevel": MessageColumn(pa.types.is_integer, "int", "Level of the broker's table; 0 or null: none."),
    "deliverTime": MessageColumn(
        _is_time, "timestamp, or bigint in ms", "When consumers get it; null: at once."
    ),
    "brokerName": MessageColumn(_is_text, "string", "Where the row was read (option `provenance`)."),
    "queueOffset": MessageColumn(pa.types.is_integer, "bigint", "Where the row was read."),
    "sourceTopic": MessageColumn(
        _is_text, "string", "Where the row was read, if `topic` says where it goes."
    ),
    "sourceQueueId": MessageColumn(
        pa.types.is_integer, "int", "Where the row was read, if `queueId` says where it goes."
    ),
    "sysFlag": MessageColumn(
        pa.types.is_integer, "int", "How bodies are compressed, with the option `packedBodies`."
    ),
}
IGNORED = frozenset(COLUMNS) - frozenset(MESSAGE_COLUMNS)
"""Columns of the source that the sink does not use."""


def columns_table() -> str:
    """The columns as a Markdown list."""
    lines = (f"- `{name}` ({column.types}): {column.note}" for name, column in MESSAGE_COLUMNS.items())
    return "\n".join(lines)


def check_columns(schema: pa.Schema, topic: str | None, job: str | None = None, packed: bool = False) -> None:
    """InvalidOption: the first error in the columns."""
    for field in schema:
        column = MESSAGE_COLUMNS.get(field.name)
        if column is None and field.name not in IGNORED:
            known = ", ".join(MESSAGE_COLUMNS)
            raise InvalidOption(
                f"column {field.name}: unknown to the sink; drop it or rename it to one of {known}"
            )
        if column is not None and not column.fits(field.type):
            raise InvalidOption(f"column {field.name}: must be {column.types}, not {field.type}; cast it")
        if schema.names.count(field.name) > 1:
            raise InvalidOption(f"column {field.name} appears twice; drop one")
    if "body" not in schema.names:
        raise InvalidOption(
            "column body is missing: binary or string; rename the column that holds the message"
        )
    if topic is None and "topic" not in schema.names:
        raise InvalidOption("no topic: add a column topic, or give the option topic for all rows")
    if job is not None:
        check_provenance(schema, "provenance")
    if packed and "sysFlag" not in schema.names:
        raise InvalidOption("packedBodies needs the column sysFlag, which states how bodies are compressed")


def check_provenance(schema: pa.Schema, option: str) -> None:
    """InvalidOption: a column is missing that states where rows were read."""
    for either in (("brokerName",), ("queueOffset",), ("sourceTopic", "topic"), ("sourceQueueId", "queueId")):
        if not set(either) & set(schema.names):
            raise InvalidOption(
                f"{option} needs the column {' or '.join(either)}, which states where a row was read"
            )


def rows_of(
    batch: pa.RecordBatch, *, job: str | None = None, ids: tuple[str, int] | None = None
) -> RowEncoder:
    """The batch as messages; `check_columns` has passed its schema. `job`: for provenance. `ids`: see
    RowEncoder."""
    body = texts(batch.column("body"))
    text_columns: dict[str, StringArray] = {}
    list_columns: dict[str, ListArray] = {}
    if "keys" in batch.schema.names:
        keys = batch.column("keys")
        if _is_text(keys.type):
            text_columns[Property.KEYS] = texts(keys)
        else:
            list_columns[Property.KEYS] = lists(keys)
    for name, column in (
        (Property.TAGS, "tags"),
        (Property.UNIQUE_KEY, "uniqKey"),
        (Property.SHARDING_KEY, "shardingKey"),
    ):
        if column in batch.schema.names:
            text_columns[name] = texts(batch.column(column))
    numbers: dict[str, memoryview] = {}
    if job is not None:
        text_columns[REPLAY_BROKER] = texts(batch.column("brokerName"))
        text_columns[REPLAY_TOPIC] = texts(_first(batch, "sourceTopic", "topic"))
        numbers[REPLAY_QUEUE] = whole_numbers(_first(batch, "sourceQueueId", "queueId"))
        numbers[REPLAY_OFFSET] = whole_numbers(batch.column("queueOffset"))
    names = batch.schema.names
    return RowEncoder(
        body,
        texts=text_columns,
        lists=list_columns,
        numbers=numbers,
        ids=ids,
        constants={REPLAY_JOB: job} if job is not None else {},
        properties=pairs(batch.column("properties")) if "properties" in names else None,
        dropped=BROKER_OWN.union(NAMES if job is not None else ()),
        flags=whole_numbers(batch.column("flag"), pa.int32(), 0) if "flag" in names else None,
    )


def _first(batch: pa.RecordBatch, *columns: str) -> pa.Array | None:
    return next((batch.column(column) for column in columns if column in batch.schema.names), None)


def whole_numbers(column: pa.Array, kind: pa.DataType | None = None, null: int = -1) -> memoryview:
    """The numbers as int64, or as `kind`; nulls become `null`."""
    plain = column.cast(kind or pa.int64()).fill_null(null)
    return memoryview(plain.to_numpy(zero_copy_only=True))


def texts(column: pa.Array) -> StringArray:
    """A column of strings or bytes, with offsets of either size."""
    if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
        column = column.cast(pa.binary())
    valid, offsets, data = column.buffers()
    return StringArray(_window(offsets), _window(data), _bits(valid), column.offset, len(column))


def lists(column: pa.Array) -> ListArray:
    if pa.types.is_large_list(column.type):
        column = column.cast(pa.list_(pa.string()))
    valid, offsets = column.buffers()[:2]
    return ListArray(_window(offsets), _bits(valid), column.offset, len(column), texts(column.values))


def pairs(column: pa.Array) -> ListArray:
    """A column of maps."""
    valid, offsets = column.buffers()[:2]
    return ListArray(
        _window(offsets), _bits(valid), column.offset, len(column), texts(column.keys), texts(column.items)
    )


def _window(buffer: pa.Buffer | None) -> memoryview:
    return memoryview(b"" if buffer is None else buffer)


def _bits(buffer: pa.Buffer | None) -> memoryview | None:
    return None if buffer is None else memoryview(buffer)
