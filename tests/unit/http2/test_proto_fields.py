"""The fields of a request are counted before it is parsed, since each may take fifty times its bytes of memory."""

import pytest

from firearrow._native.http2.proto_fields import ProtoFields
from firearrow.broker.grpc import messages

SEND, _ = messages.method_classes("SendMessage")
MOST = 1 << 20


def kind() -> ProtoFields:
    """A message with messages in field 1, which have such in field 2."""
    outer, inner = ProtoFields(), ProtoFields()
    inner.add(2, ProtoFields())
    outer.add(1, inner)
    return outer


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 0),
        (b"\x0a\x00", 1),
        (b"\x0a\x00" * 10, 10),
        (b"\x0a\x02\x12\x00", 2),  # the inner one is counted as well
        (b"\x0a\x04\x12\x02\x08\x01", 3),
        (b"\x12\x02\x0a\x00", 1),  # what is in bytes is not
        (b"\x08\x01\x11" + bytes(8) + b"\x1d" + bytes(4), 3),
        (b"\x0b\x08\x01\x0c", 3),  # a group
        (b"\x0a\xff\xff\xff\xff\x0f", 1),  # a length that lies
        (b"\x0a\x00\xff", 1),
        (b"\x08", 1),
        (b"\x0f", 1),
        (b"\x11\x00", 1),
        (b"\xff" * 11, 0),
    ],
)
def test_they_are_counted(data: bytes, count: int) -> None:
    assert kind().count(data, MOST) == count


def test_counting_ends_above_the_limit() -> None:
    assert kind().count(b"\x0a\x00" * 100_000, 10) == 11


def properties(count: int) -> bytes:
    """A message of so many fields: itself, its tag, and keys of it."""
    found = SEND()
    own = found.messages.add().system_properties
    own.keys.extend([""] * (count - 3))
    own.tag = "x" * messages.COUNTED_BYTES
    return found.SerializeToString()  # type: ignore[no-any-return]


def test_a_request_has_a_bounded_number_of_fields() -> None:
    assert messages.parse(SEND, properties(messages.FIELDS_MAX)).messages[0].system_properties.keys
    with pytest.raises(messages.DecodeError):
        messages.parse(SEND, properties(messages.FIELDS_MAX + 1))


def test_a_body_may_look_like_fields() -> None:
    found = SEND()
    found.messages.add().body = b"\x0a\x00" * (4 << 20)
    assert messages.parse(SEND, found.SerializeToString()) == found
