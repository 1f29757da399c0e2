"""Bodies in MessagePack, Avro and protobuf; hostile ones end with an error, soon."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from firearrow.client.base.errors import ConfigError
from firearrow.client.cli.messages.avro_body import AvroSchema
from firearrow.client.cli.messages.body_formats import BODY_BYTES_MAX, body_format

NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": ["null", "shop.State"]},
        {"name": "parts", "type": {"type": "array", "items": "int"}},
        {"name": "prices", "type": {"type": "map", "values": "double"}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "when", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
        {"name": "rate", "type": "float"},
        {"name": "sure", "type": "boolean"},
    ],
}
BODY = bytes.fromhex("36 06666f6f 02 0200 040636 00 0114 02610000000000000440 00 abcd 02 02ff 0000c03f 01")
VALUE = {
    "id": 27,
    "item": "foo",
    "state": "PAID",
    "before": "NEW",
    "parts": [3, 27],
    "prices": {"a": 2.5},
    "hash": "abcd",
    "when": 1,
    "raw": "ff",
    "rate": 1.5,
    "sure": True,
}


def test_avro(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    found = body_format(f"avro:{file}")
    assert found is not None
    for head in (b"", b"\0\0\0\0\x07", b"\xc3\x01" + bytes(8)):
        assert found.decoded(head + BODY) == VALUE
    for wrong in (b"", BODY[:-1], BODY + b"x", b"\xff" * 40):
        with pytest.raises(ValueError, match="is not Avro"):
            found.decoded(wrong)


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00"),
        (NODE, b"\x02" * 500_000 + b"\x00"),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"),
        ("long", b"\xff" * 100),
        ("bytes", b"\x01"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01"),
        (["null"], b"\x02"),
        ("absent", b""),
    ],
)
def test_hostile_avro(schema: Any, body: bytes) -> None:  # noqa: ANN401 (JSON)
    began_s = time.thread_time()
    with pytest.raises(ValueError, match="not of this schema"):
        AvroSchema(schema).decoded(body)
    assert time.thread_time() - began_s < 5


def test_message_pack() -> None:
    msgpack = pytest.importorskip("msgpack")
    found = body_format("msgpack")
    assert found is not None
    assert found.decoded(msgpack.packb({"a": [1, None, b"\xff"], 7: msgpack.ExtType(5, b"x")})) == {
        "a": [1, None, "ff"],
        "7": [5, "78"],
    }
    for wrong in (b"", b"\xc1", b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", msgpack.packb(1) + b"x"):
        with pytest.raises(ValueError, match="is not MessagePack"):
            found.decoded(wrong)
    with pytest.raises(ValueError, match="are not decoded"):
        found.decoded(msgpack.packb("x" * BODY_BYTES_MAX))


def test_protobuf(tmp_path: Path) -> None:
    descriptors = pytest.importorskip("google.protobuf.descriptor_pb2")
    file = tmp_path / "schema.desc"
    known = descriptors.FileDescriptorProto()
    descriptors.DESCRIPTOR.CopyToProto(known)
    file.write_bytes(descriptors.FileDescriptorSet(file=[known]).SerializeToString())
    found = body_format(f"protobuf:{file}:google.protobuf.FileDescriptorProto")
    assert found is not None
    body = descriptors.FileDescriptorProto(name="a", dependency=["b"]).SerializeToString()
    assert found.decoded(body) == {"name": "a", "dependency": ["b"]}
    with pytest.raises(ValueError, match="is not protobuf"):
        found.decoded(b"\xff" * 9)
    with pytest.raises(ConfigError, match="has no message shop"):
        body_format(f"protobuf:{file}:shop.Order")


def test_what_is_no_format(tmp_path: Path) -> None:
    for name in ("", "xml", "avro", "msgpack:x", "protobuf:file"):
        assert body_format(name) is None
    (tmp_path / "wrong.avsc").write_text("{")
    for name in (
        f"avro:{tmp_path}/absent",
        f"avro:{tmp_path}/wrong.avsc",
        f"protobuf:{tmp_path}/wrong.avsc:A",
    ):
        with pytest.raises(ConfigError):
            body_format(name)
