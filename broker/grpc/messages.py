"""The message classes of Apache RocketMQ's gRPC protocol, made from their descriptors by `protobuf`.

Imported at the first gRPC connection: nothing else needs `protobuf`. The classes belong to a pool of their own, so that
a client of Apache's in the same process can have its own. mypy does not know their fields.
"""

import datetime
import functools
from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pool, duration_pb2, message_factory, timestamp_pb2
from google.protobuf.message import DecodeError

from firearrow._native.http2.proto_fields import ProtoFields
from firearrow.broker.grpc import descriptors

__all__ = ["DecodeError", "ProtoClass", "ProtoMessage"]

ProtoMessage = Any
"""A message of the protocol."""
ProtoClass = Any
PACKAGE = "apache.rocketmq.v2"
SERVICE = f"{PACKAGE}.MessagingService"
HEALTH = "grpc.health.v1.Health"
REFLECTIONS = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
SERVICES = (SERVICE, HEALTH, *REFLECTIONS)
FIELDS_MAX = 65_536
"""Of a request: a batch of 150 messages with all properties that a message may have."""
COUNTED_BYTES = 2 * FIELDS_MAX
"""What is shorter cannot have more fields."""

pool = descriptor_pool.DescriptorPool()
"""Of all that is served."""
for _known in (duration_pb2, timestamp_pb2):
    pool.AddSerializedFile(_known.DESCRIPTOR.serialized_pb)
for _own in (
    *(descriptors.DEFINITION, descriptors.SERVICE),
    *(descriptors.HEALTH, descriptors.REFLECTION, descriptors.REFLECTION_ALPHA),
):
    pool.AddSerializedFile(descriptors.serialized(_own))
if hasattr(message_factory, "GetMessageClass"):
    class_of = message_factory.GetMessageClass
else:  # before 4.22, as Debian 12 and 13 have it
    class_of = message_factory.MessageFactory(pool).GetPrototype


def message(name: str) -> ProtoClass:
    """The class of a message of the package."""
    return class_of(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def enum(name: str) -> dict[str, int]:
    """The values of an enum of the package by their names."""
    values = pool.FindEnumTypeByName(f"{PACKAGE}.{name}").values
    return {value.name: value.number for value in values}


Status = message("Status")
Message = message("Message")
SendMessageResponse = message("SendMessageResponse")
AckMessageResponse = message("AckMessageResponse")
MessageQueue = message("MessageQueue")
Settings = message("Settings")
Resource = message("Resource")
Endpoints = message("Endpoints")
TelemetryCommand = message("TelemetryCommand")
CODES = enum("Code")
CLIENT_TYPES = enum("ClientType")
MESSAGE_TYPES = enum("MessageType")
ENCODINGS = enum("Encoding")
DIGESTS = enum("DigestType")
PERMISSIONS = enum("Permission")
SCHEMES = enum("AddressScheme")
FILTERS = enum("FilterType")


def method_classes(name: str, service: str = SERVICE) -> tuple[ProtoClass, ProtoClass]:
    """The classes of a method's requests and answers."""
    method = pool.FindServiceByName(service).methods_by_name[name]
    return tuple(class_of(kind) for kind in (method.input_type, method.output_type))


def parse(kind: ProtoClass, data: bytes) -> ProtoMessage:
    """DecodeError: it is not such a message, or has too many fields."""
    if len(data) > COUNTED_BYTES and _fields(kind.DESCRIPTOR.full_name).count(data, FIELDS_MAX) > FIELDS_MAX:
        raise DecodeError(f"it has more than {FIELDS_MAX} fields")
    return kind.FromString(data)


@functools.cache
def _fields(name: str) -> ProtoFields:
    found = ProtoFields()
    for field in pool.FindMessageTypeByName(name).fields:
        if field.message_type is not None:
            found.add(field.number, _fields(field.message_type.full_name))
    return found


def status(code: str, text: str = "OK") -> ProtoMessage:
    """A status with the code of this name."""
    return Status(code=CODES[code], message=text)


def common_status(entries: Sequence[ProtoMessage]) -> ProtoMessage:
    """Of an answer: that of all its entries, if they agree."""
    if len({entry.status.code for entry in entries}) == 1:
        return entries[0].status
    return status("MULTIPLE_RESULTS", "MULTIPLE_RESULTS")


def filter_of(expression: ProtoMessage) -> tuple[str, str]:
    """A FilterExpression as clients of remoting state it: the expression, and its type."""
    return expression.expression or "*", "SQL92" if expression.type == FILTERS["SQL"] else "TAG"


def milliseconds(time: ProtoMessage) -> int:
    """Of a Timestamp or a Duration."""
    return time.seconds * 1000 + time.nanos // 1_000_000  # type: ignore[no-any-return]


def set_ms(time: ProtoMessage, ms: int) -> None:
    """Set a Timestamp or a Duration of at least 0."""
    time.seconds, rest = divmod(ms, 1000)
    time.nanos = rest * 1_000_000


def utc_text(ms: int) -> str:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat()
