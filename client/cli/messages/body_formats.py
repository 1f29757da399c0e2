"""Formats of bodies that need more than the body: a library or a schema. `--decode` and the console name them.

msgpack                       MessagePack (needs `firearrow[decode]`)
avro:FILE                     Avro with a schema file (.avsc)
protobuf:FILE:MESSAGE         a message type of a descriptor set, as `protoc --include_imports -o FILE` writes it
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from firearrow.client.base.errors import ConfigError
from firearrow.client.cli.messages.avro_body import AvroSchema

FILE_BYTES_MAX = 16 << 20
BODY_BYTES_MAX = 1 << 20
"""Larger bodies are not decoded."""
NAMES = "msgpack, avro:FILE or protobuf:FILE:MESSAGE"


class BodyFormat(NamedTuple):
    """`read`: the value of a body as JSON may have it; any exception: it is not of this format."""

    name: str
    read: Callable[[bytes], Any]

    def decoded(self, body: bytes) -> Any:  # noqa: ANN401 (JSON)
        """ValueError: it is not of this format, or too large."""
        if len(body) > BODY_BYTES_MAX:
            raise ValueError(f"bodies over {BODY_BYTES_MAX} bytes are not decoded")
        try:
            value = self.read(body)
            orjson.dumps(value)  # a number may be too large for JSON
        except Exception as error:  # of the library, which may be any
            raise ValueError(f"it is not {self.name}: {error}") from None
        return value


def schema_file(name: str) -> bytes:
    """What the file contains. ConfigError."""
    try:
        with Path(name).open("rb") as file:
            return file.read(FILE_BYTES_MAX)
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}") from None


def body_format(text: str, contents: Callable[[str], bytes] = schema_file) -> BodyFormat | None:
    """What `text` names; None: no format of this module. `contents`: of its file. ConfigError: its file or library
    cannot be used."""
    name, _, rest = text.partition(":")
    match name:
        case "msgpack" if not rest:
            return BodyFormat("MessagePack", _message_pack())
        case "avro" if rest:
            try:
                return BodyFormat("Avro", AvroSchema(orjson.loads(contents(rest))).decoded)
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(f"{rest} is not a schema of Avro: {error}") from None
        case "protobuf" if ":" in rest:
            file, _, message = rest.rpartition(":")
            return BodyFormat("protobuf", _protobuf(file, message, contents))
    return None


def _library(name: str, extra: str) -> Any:  # noqa: ANN401 (a module)
    try:
        return import_module(name)
    except ImportError:
        raise ConfigError(f"this format needs the package {extra}: pip install 'firearrow[decode]'") from None


def _message_pack() -> Callable[[bytes], Any]:
    unpackb = _library("msgpack", "msgpack").unpackb
    return lambda body: _plain(unpackb(body, raw=False, strict_map_key=False, timestamp=0))


def _plain(value: Any) -> Any:  # noqa: ANN401 (JSON)
    """As JSON may have it: bytes as hex, and keys as texts. The depth is bounded by the library."""
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else str(_plain(key)): _plain(each) for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _protobuf(file: str, message: str, contents: Callable[[str], bytes]) -> Callable[[bytes], Any]:
    descriptors = _library("google.protobuf.descriptor_pb2", "protobuf").FileDescriptorSet()
    pools = _library("google.protobuf.descriptor_pool", "protobuf")
    factory = _library("google.protobuf.message_factory", "protobuf")
    as_json = _library("google.protobuf.json_format", "protobuf")
    pool = pools.DescriptorPool()
    try:
        descriptors.ParseFromString(contents(file))
        for each in descriptors.file:
            pool.Add(each)
        made = factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except ConfigError:
        raise
    except Exception as error:  # DecodeError, TypeError, KeyError
        raise ConfigError(f"{file} has no message {message} of protobuf: {error}") from None
    return lambda body: as_json.MessageToDict(
        made.FromString(body), preserving_proto_field_name=True, descriptor_pool=pool
    )
