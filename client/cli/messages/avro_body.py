"""AvroSchema: reads Avro's binary encoding by a schema, of bodies that anyone may have sent.

Depth and number of values are bounded, which readers of files leave open: a short body may claim 2^60 nulls, or nest a
schema that contains itself as deep as it is long. https://avro.apache.org/docs/1.12.0/specification
"""

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

DEPTH_MAX, VALUES_MAX, VARINT_BYTES_MAX = 100, 100_000, 10
NUMBERS = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
SINGLE_OBJECT, SINGLE_OBJECT_BYTES = b"\xc3\x01", 10
"""The start of Avro's single-object encoding, and with the schema's fingerprint."""
REGISTRY, REGISTRY_BYTES = b"\0", 5
"""The same of schema registries: a zero, and the schema's number."""


Json = Any


class _Read(NamedTuple):
    value: Json
    at: int


class AvroSchema:
    """`schema`: as JSON has it. ValueError: it is not one."""

    def __init__(self, schema: object) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}
        self._schema = schema
        self._values = 0
        self._define(schema, "", 0)

    def decoded(self, body: bytes) -> Json:
        """With or without the head that registries or single objects have. ValueError: it is not of this schema."""
        for head, size in ((b"", 0), (REGISTRY, REGISTRY_BYTES), (SINGLE_OBJECT, SINGLE_OBJECT_BYTES)):
            if not body.startswith(head) or len(body) < size:
                continue
            self._values = 0
            try:
                value, end = self._read(self._schema, body, size, 0)
            except (IndexError, struct.error, UnicodeDecodeError, ValueError):
                continue
            if end == len(body):
                return value
        raise ValueError("the body is not of this schema")

    def _define(self, schema: Json, space: str, depth: int) -> None:
        """Note the named types, by their full names and those within their namespace."""
        if depth > DEPTH_MAX:
            raise ValueError("the schema nests too deep")
        if isinstance(schema, list):
            for each in schema:
                self._define(each, space, depth + 1)
        elif isinstance(schema, dict):
            if schema.get("type") in ("record", "error", "enum", "fixed"):
                name = str(schema["name"])
                space = str(schema.get("namespace") or (name.rpartition(".")[0] if "." in name else space))
                self._named[name] = self._named[f"{space}.{name}"] = schema
            for each in schema.get("fields", ()):
                self._define(each["type"], space, depth + 1)
            for part in ("items", "values", "type"):
                if isinstance(schema.get(part), dict | list):
                    self._define(schema[part], space, depth + 1)
        elif not isinstance(schema, str):
            raise ValueError(f"{schema!r} is not a type")

    def _read(self, schema: Json, body: bytes, at: int, depth: int) -> _Read:
        self._values += 1
        if depth > DEPTH_MAX or self._values > VALUES_MAX:
            raise ValueError("it nests too deep, or has too many values")
        if isinstance(schema, list):
            choice, at = _number(body, at)
            if not 0 <= choice < len(schema):
                raise ValueError("no such branch")
            return self._read(schema[choice], body, at, depth + 1)
        if isinstance(schema, str) and schema not in PRIMITIVES:
            schema = self._named.get(schema)
        kind = schema if isinstance(schema, str) else (schema or {}).get("type")
        match kind:
            case "record" | "error":
                record: dict[str, Any] = {}
                for field in schema["fields"]:
                    record[str(field["name"])], at = self._read(field["type"], body, at, depth + 1)
                return _Read(record, at)
            case "array":
                return self._blocks(schema["items"], body, at, depth, [])
            case "map":
                return self._blocks(schema["values"], body, at, depth, {})
            case "enum":
                choice, at = _number(body, at)
                if choice < 0:
                    raise ValueError("no such symbol")
                return _Read(schema["symbols"][choice], at)
            case "fixed":
                return _Read(_taken(body, at, int(schema["size"])).hex(), at + int(schema["size"]))
            case dict() | list():
                return self._read(kind, body, at, depth + 1)
            case str() if kind in PRIMITIVES:
                return _primitive(kind, body, at)
            case str() if kind in self._named:
                return self._read(kind, body, at, depth + 1)
        raise ValueError(f"{kind!r} is not a type")

    def _blocks(
        self,
        schema: Json,
        body: bytes,
        at: int,
        depth: int,
        found: list[Any] | dict[str, Any],
    ) -> _Read:
        """The items of an array, or the pairs of a map."""
        while True:
            count, at = _number(body, at)
            if count == 0:
                return _Read(found, at)
            if count < 0:  # with its bytes
                _, at = _number(body, at)
            for _ in range(abs(count)):
                if isinstance(found, dict):
                    key, at = _primitive("string", body, at)
                    found[key], at = self._read(schema, body, at, depth + 1)
                else:
                    value, at = self._read(schema, body, at, depth + 1)
                    found.append(value)


def _primitive(kind: str, body: bytes, at: int) -> _Read:
    match kind:
        case "null":
            return _Read(None, at)
        case "boolean":
            return _Read(bool(body[at]), at + 1)
        case "int" | "long":
            return _number(body, at)
        case "float" | "double":
            return _Read(NUMBERS[kind].unpack_from(body, at)[0], at + NUMBERS[kind].size)
    size, at = _number(body, at)
    data = _taken(body, at, size)
    return _Read(data.decode() if kind == "string" else data.hex(), at + size)


def _taken(body: bytes, at: int, size: int) -> bytes:
    if not 0 <= size <= len(body) - at:
        raise ValueError("the body ends before")
    return body[at : at + size]


def _number(body: bytes, at: int) -> _Read:
    """Zigzag, seven bits a byte."""
    value = 0
    for i in range(VARINT_BYTES_MAX):
        byte = body[at + i]
        value |= (byte & 0x7F) << 7 * i
        if not byte & 0x80:
            return _Read((value >> 1) ^ -(value & 1), at + i + 1)
    raise ValueError("a number has too many bytes")
