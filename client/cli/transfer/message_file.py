"""Messages in files: a line of JSON for each, as `firearrow tail` and `dlq export` write them, or a row of Parquet,
with the columns that the jobs of Spark have.
"""

import base64
import binascii
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import orjson

from firearrow._native.protocol.name_rules import BROKER_OWN
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.message import SENT_APART, Message, Property
from firearrow.client.cli.messages.message_view import body_crc

LINE_BYTES_MAX = 512 << 20
CHUNK_BYTES = 1 << 20
BATCH_ROWS = 4096
PARQUET = (
    ("topic", "topic"),
    ("queueId", "queueId"),
    ("queueOffset", "offset"),
    ("brokerName", "broker"),
    ("storeTimestamp", "storedMs"),
    ("bornTimestamp", "bornMs"),
    ("tags", "tags"),
    ("keys", "keys"),
    ("uniqKey", "msgId"),
    ("body", "body"),
    ("properties", "properties"),
    ("flag", "flag"),
    ("sysFlag", "sysFlag"),
    ("reconsumeTimes", "reconsumeTimes"),
    ("bornHost", "bornHost"),
    ("storeHost", "storeHost"),
    ("bodyCrc", "bodyCrc"),
    ("physicalOffset", "physicalOffset"),
    ("preparedTransactionOffset", "preparedTransactionOffset"),
)
"""Columns as Spark's jobs name them, and the members of a line that they have."""
TIMES = frozenset({"storedMs", "bornMs"})


class InvalidRow(ValueError):
    """A line or row is not a message; the text is the reason."""


def body_of(row: Mapping[str, Any]) -> bytes:
    """InvalidRow."""
    body, encoding = row.get("body"), row.get("bodyEncoding")
    if isinstance(body, bytes):
        return body
    if encoding == "json":
        return orjson.dumps(body)
    if not isinstance(body, str):
        reason = row.get("bodyError")
        raise InvalidRow(f"it has no body{f' ({reason})' if reason else ''}")
    try:
        match encoding:
            case None:
                return body.encode()
            case "base64":
                return base64.b64decode(body, validate=True)
            case "hex":
                return bytes.fromhex(body)
    except (ValueError, binascii.Error):
        pass
    raise InvalidRow(f"its body is not in the encoding {encoding!r}")


def message_of(row: Mapping[str, Any], topic: str, *, check_crc: bool) -> Message:
    """The message to send. InvalidRow."""
    body = body_of(row)
    if check_crc and row.get("bodyCrc") is not None and body_crc(body) != row["bodyCrc"]:
        raise InvalidRow(
            "its body does not match bodyCrc: if it was edited, remove bodyCrc or give --no-check-crc"
        )
    properties = _texts(row.get("properties") or {})
    tags, keys = (
        row.get("tags", properties.get(Property.TAGS)),
        row.get("keys", properties.get(Property.KEYS)),
    )
    keys = tuple(keys.split()) if isinstance(keys, str) else tuple(keys or ())
    flag = row.get("flag", 0)
    if not (
        isinstance(tags, str | None) and all(isinstance(key, str) for key in keys) and isinstance(flag, int)
    ):
        raise InvalidRow("tags, keys or flag have another type than `topic export` writes")
    dropped = BROKER_OWN | SENT_APART
    return Message(
        topic,
        body,
        tags=tags or None,
        keys=keys,
        properties={name: value for name, value in properties.items() if name not in dropped},
        sharding_key=properties.get(Property.SHARDING_KEY),
        flag=flag,
        unique_id=properties.get(Property.UNIQUE_KEY),
    )


def _texts(properties: object) -> dict[str, str]:
    if not isinstance(properties, dict) or not all(
        isinstance(text, str) for pair in properties.items() for text in pair
    ):
        raise InvalidRow("its properties are not texts")
    return properties


# ---- JSON Lines ----


def json_rows(file: IO[bytes]) -> Iterator[tuple[int, Mapping[str, Any] | InvalidRow]]:
    """The rows of a file, each with the number of its line, from 1 on. Empty lines are none."""
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
            yield number, row if isinstance(row, dict) else InvalidRow("it is not a JSON object")
        except orjson.JSONDecodeError as error:
            yield number, InvalidRow(f"it is not JSON: {error}")


def crc_and_lines(path: Path) -> tuple[int, int]:
    """The CRC-32 of a file's bytes, and its lines."""
    crc = lines = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            crc, lines = zlib.crc32(chunk, crc), lines + chunk.count(b"\n")
    return crc, lines


# ---- Parquet ----


def is_parquet(path: Path) -> bool:
    """By its name; to read, by its first bytes as well."""
    if path.suffix.lower() in (".parquet", ".pq"):
        return True
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False


def pyarrow() -> Any:  # noqa: ANN401 (an optional, untyped package)
    """ConfigError: it is not installed."""
    try:
        import pyarrow.parquet  # noqa: PLC0415 (an optional package)
    except ImportError:
        raise ConfigError(
            "Parquet needs the package pyarrow: pip install pyarrow, or name a file of JSON Lines"
        ) from None
    return pyarrow


def parquet_schema() -> Any:  # noqa: ANN401 (a pyarrow.Schema)
    """The columns, with the types of Spark's jobs."""
    pa = pyarrow()
    time, text = pa.timestamp("us", tz="UTC"), pa.string()
    longs = dict.fromkeys(("queueOffset", "physicalOffset", "preparedTransactionOffset"), pa.int64())
    ints = dict.fromkeys(("queueId", "flag", "sysFlag", "reconsumeTimes", "bodyCrc"), pa.int32())
    more = {
        "storeTimestamp": time,
        "bornTimestamp": time,
        "body": pa.binary(),
        "properties": pa.map_(text, text),
    }
    types = longs | ints | more
    return pa.schema([pa.field(name, types.get(name, text)) for name, _ in PARQUET])


def write_parquet(lines: Path, target: Path) -> int:
    """Make a Parquet file of a file of JSON Lines; its rows. OSError."""
    pa, schema = pyarrow(), parquet_schema()
    with lines.open("rb") as file, pa.parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        for rows in _blocks(row for _, row in json_rows(file)):
            columns = {name: [_cell(member, row) for row in rows] for name, member in PARQUET}
            writer.write_batch(pa.RecordBatch.from_pydict(columns, schema=schema))
    return int(pa.parquet.read_metadata(target).num_rows)


def _blocks(rows: Iterable[Any]) -> Iterator[list[Any]]:
    block: list[Any] = []
    for row in rows:
        block.append(row)
        if len(block) == BATCH_ROWS:
            yield block
            block = []
    if block:
        yield block


def _cell(member: str, row: Mapping[str, Any]) -> Any:  # noqa: ANN401 (what a column has)
    value: Any = row.get(member)
    match member:
        case "body":
            return None if value is None else body_of(row)
        case "keys":
            return " ".join(value) or None
        case "msgId":
            return row["properties"].get(Property.UNIQUE_KEY)
        case "properties":
            return list(value.items())
        case _ if member in TIMES:
            return datetime.fromtimestamp(value / 1000, UTC)
    return value


def open_parquet(path: Path) -> Any:  # noqa: ANN401 (a pyarrow.parquet.ParquetFile)
    """ConfigError: it is none, or has no bodies."""
    pa = pyarrow()
    try:
        file = pa.parquet.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    if "body" not in file.schema_arrow.names:
        raise ConfigError(f"{path} has no column `body`")
    return file


def parquet_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any] | InvalidRow]]:
    """The rows of a Parquet file, each with its number, from 1 on. ConfigError."""
    file = open_parquet(path)
    known = {name: member for name, member in PARQUET if name in file.schema_arrow.names}
    number = 0
    for batch in file.iter_batches(BATCH_ROWS, columns=list(known)):
        for row in batch.to_pylist():
            number += 1
            found = {known[name]: value for name, value in row.items() if value is not None}
            found["properties"] = dict(found.get("properties", ()))
            if isinstance(found.get("body"), str):
                found["body"] = found["body"].encode()
            if "msgId" in found:
                found["properties"].setdefault(Property.UNIQUE_KEY, found["msgId"])
            yield number, found
