"""Bodies as columns: JSON, MessagePack, Avro and protobuf, in any encoding, also compressed ones as they are stored.

JSON in UTF-8 is parsed in the JVM. All else is decoded in the workers, with the readers of `firearrow tail --decode`,
and needs no package of Spark. Schema files are read in the driver and sent with the function.
"""

import base64
import codecs
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegralType, MapType, StructType

from firearrow.client.base.compression import BodyUnreadable
from firearrow.client.base.errors import ConfigError
from firearrow.client.cli.messages.body_formats import NAMES, BodyFormat, body_format, schema_file
from firearrow.spark_tools.arrow.columns import open_body
from firearrow.spark_tools.base.errors import InvalidOption, SparkToolsError

JSON, UTF8 = "json", "utf-8"


class NotDecoded(SparkToolsError):
    """A body is not of the format, and `strict` is set."""


def from_body(
    schema: str | StructType,
    format: str = JSON,
    *,
    body: str = "body",
    sys_flag: str | None = None,
    encoding: str = UTF8,
    strict: bool = False,
) -> Column:
    """The body as a struct with this schema: `F.from_json` for all formats.

    `format`: `json`, `msgpack`, `avro:FILE` (a schema) or `protobuf:FILE:MESSAGE` (a descriptor set, of `protoc
    --include_imports -o FILE`). `body`: its column. `sys_flag`: the column `sysFlag`, if bodies were read with
    `openBodies=false`. `encoding`: of JSON, by Python's name. A body that cannot be decoded is null, or with `strict`
    the end of the query. InvalidOption.
    """
    wanted = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(wanted, StructType)
    columns = [F.col(body), *([] if sys_flag is None else [F.col(sys_flag)])]
    decoder = Decoder.of(format, encoding, wanted, strict)
    if decoder.is_plain and sys_flag is None:
        text = F.col(body).cast("string")
    else:
        decode: Any = decoder.opened if sys_flag is None else decoder.stored
        decoding = arrow_udf(decode, "string")  # type: ignore[call-overload]  # Spark warns of what its types ask for
        text = decoding(*columns)
    return F.from_json(text, wanted, {"mode": "FAILFAST" if strict else "PERMISSIVE"})


@dataclass(frozen=True, slots=True)
class Decoder:
    """Picklable; called in the worker."""

    format: str
    encoding: str
    schema: StructType
    strict: bool
    file: bytes
    """What the format's file contains."""

    @classmethod
    def of(cls, format: str, encoding: str, schema: StructType, strict: bool) -> "Decoder":
        """InvalidOption."""
        files: list[bytes] = []

        def contents(name: str) -> bytes:
            files.append(schema_file(name))
            return files[0]

        try:
            b"-".decode(encoding, "replace")
            if format != JSON and body_format(format, contents) is None:
                raise InvalidOption(f"format: expected json, {NAMES}, not {format!r}")
        except LookupError:
            raise InvalidOption(f"encoding: Python knows no {encoding!r} for text") from None
        except ConfigError as error:
            raise InvalidOption(f"format: {error}") from None
        return cls(format, encoding, schema, strict, files[0] if files else b"")

    @property
    def is_plain(self) -> bool:
        return self.format == JSON and codecs.lookup(self.encoding).name == UTF8

    @property
    def opened(self) -> Callable[[pa.Array], pa.Array]:
        """The function of bodies."""

        def texts(bodies: pa.Array) -> pa.Array:
            return self._texts(bodies, None)

        return texts

    @property
    def stored(self) -> Callable[[pa.Array, pa.Array], pa.Array]:
        """The function of bodies as they are stored, and their `sysFlag`."""

        def texts(bodies: pa.Array, flags: pa.Array) -> pa.Array:
            return self._texts(bodies, flags)

        return texts

    def _texts(self, bodies: pa.Array, flags: pa.Array | None) -> pa.Array:
        """JSON for Spark to parse."""
        reads = None if self.format == JSON else _format(self.format, self.file)
        found = []
        for number, body in enumerate(bodies):
            flag = 0 if flags is None else flags[number].as_py() or 0
            found.append(None if not body.is_valid else self._text(body.as_py(), flag, reads))
        return pa.array(found, pa.string())

    def _text(self, body: bytes, sys_flag: int, reads: BodyFormat | None) -> str | None:
        try:
            opened = open_body(sys_flag, body)
            if reads is None:
                return opened.decode(self.encoding)
            value = reads.decoded(opened)
            if not isinstance(value, Mapping):
                raise ValueError(f"it is one value of {reads.name}, without names")
            return orjson.dumps(
                _as_spark_reads(value, self.schema, hex_bytes=reads.name != "protobuf")
            ).decode()
        except (ValueError, BodyUnreadable) as error:  # also UnicodeDecodeError
            if self.strict:
                raise NotDecoded(f"a body cannot be decoded: {error}; without strict it is null") from None
            return None


@lru_cache(maxsize=16)
def _format(text: str, file: bytes) -> BodyFormat:
    found = body_format(text, lambda _: file)
    assert found is not None
    return found


def _as_spark_reads(value: Any, kind: DataType, *, hex_bytes: bool) -> Any:  # noqa: ANN401 (JSON)
    """Of what `from_json` would refuse: 64-bit integers of protobuf, which are texts, and bytes, which are hexadecimal
    but for protobuf."""
    match kind, value:
        case StructType(), Mapping():
            wanted = {field.name: field.dataType for field in kind.fields}
            return {
                name: _as_spark_reads(each, wanted[name], hex_bytes=hex_bytes)
                for name, each in value.items()
                if name in wanted
            }
        case MapType(), Mapping():
            return {
                name: _as_spark_reads(each, kind.valueType, hex_bytes=hex_bytes)
                for name, each in value.items()
            }
        case ArrayType(), list():
            return [_as_spark_reads(each, kind.elementType, hex_bytes=hex_bytes) for each in value]
        case IntegralType(), str() if value.removeprefix("-").isdecimal():
            return int(value)
        case BinaryType(), str() if hex_bytes:
            return base64.b64encode(bytes.fromhex(value)).decode()
    return value
