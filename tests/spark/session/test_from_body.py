"""Bodies as columns: each format, other encodings, compressed bodies as they are stored, and other bodies."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from firearrow import spark_tools
from firearrow.client import blocking
from firearrow.client.base.message import Message
from firearrow.client.base.options import CompressionKind, ProducerOptions
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.base.errors import InvalidOption

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id bigint, name string, raw binary, parts array<int>"
ORDER = {"id": 1 << 40, "name": "größe", "raw": b"\xff\x00", "parts": [1, 2]}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "raw", "type": "bytes"},
        {"name": "parts", "type": {"type": "array", "items": "int"}},
    ],
}
AVRO_BODY = bytes.fromhex("808080808040") + b"\x0egr\xc3\xb6\xc3\x9fe" + b"\x04\xff\x00" + b"\x04\x02\x04\x00"


def decoded(spark: "SparkSession", bodies: list[bytes | None], *given: Any, **options: Any) -> list[Any]:  # noqa: ANN401
    frame = spark.createDataFrame([(body, 0) for body in bodies], "body binary, sysFlag int")
    return [row[0] for row in frame.select(spark_tools.from_body(*given, **options)).collect()]


def as_dict(row: Any) -> dict[str, Any]:  # noqa: ANN401 (a row)
    found = row.asDict()
    return {name: bytes(value) if isinstance(value, bytearray) else value for name, value in found.items()}


def protobuf_order(folder: Path) -> tuple[str, bytes]:
    """A format, and a body."""
    kinds = FieldDescriptorProto
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, (name, kind, label) in enumerate(
        [
            ("id", kinds.TYPE_INT64, kinds.LABEL_OPTIONAL),
            ("name", kinds.TYPE_STRING, kinds.LABEL_OPTIONAL),
            ("raw", kinds.TYPE_BYTES, kinds.LABEL_OPTIONAL),
            ("parts", kinds.TYPE_INT32, kinds.LABEL_REPEATED),
        ],
        1,
    ):
        message.field.add(name=name, number=number, type=kind, label=label)
    path = folder / "order.desc"
    path.write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    pool = DescriptorPool()
    pool.Add(file)
    made = GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    return f"protobuf:{path}:shop.Order", made(**ORDER).SerializeToString()


def test_each_format(spark: "SparkSession", tmp_path: Path) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(AVRO))
    formats = [
        ("msgpack", msgpack.packb(ORDER)),
        (f"avro:{schema}", AVRO_BODY),
        (f"avro:{schema}", b"\0\0\0\0\x07" + AVRO_BODY),
        protobuf_order(tmp_path),
    ]
    for name, body in formats:
        row, wrong, none = decoded(spark, [body, b"\xff" * 9, None], SCHEMA, name)
        assert as_dict(row) == ORDER, name
        assert wrong is None
        assert none is None
    text = json.dumps({"id": 1 << 40, "name": "größe"})
    for encoding in ("utf-8", "gbk", "utf-16"):
        source = text if encoding != "gbk" else text.replace("größe", "大小")
        [row] = decoded(spark, [source.encode(encoding)], "id bigint, name string", encoding=encoding)
        assert row.asDict() == json.loads(source)


def test_bodies_that_are_something_else_end_the_query_if_strict(
    spark: "SparkSession", tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match="a body cannot be decoded"):
        decoded(spark, [b"\xff"], SCHEMA, "msgpack", strict=True)
    with pytest.raises((PySparkException, Py4JJavaError), match=r"(?i)malformed"):
        decoded(spark, [b"{"], SCHEMA, strict=True)
    for wrong, why in (
        ("xml", "expected json"),
        ("avro:nothing", "cannot read nothing"),
        ("avro", "expected"),
    ):
        with pytest.raises(InvalidOption, match=why):
            spark_tools.from_body(SCHEMA, wrong)
    for encoding in ("klingon", "zip"):
        with pytest.raises(InvalidOption, match=f"knows no '{encoding}'"):
            spark_tools.from_body(SCHEMA, encoding=encoding)


@pytest.mark.parametrize("kind", list(CompressionKind))
def test_compressed_bodies_as_they_are_stored(
    spark: "SparkSession", broker: LocalBroker, topics: Callable[..., str], kind: CompressionKind
) -> None:
    topic = topics(1)
    options = ProducerOptions(compress_over_bytes=10, compression=kind)
    with blocking.Producer("bodies", name_server=broker.name_server, options=options) as producer:
        producer.send(Message(topic, json.dumps({"id": 7, "name": "x" * 5000}).encode()))
    frame = spark.read.format("rocketmq").options(nameServer=broker.name_server, topic=topic)
    wanted = "id bigint, name string"
    for opened in ("true", "false"):
        flag = None if opened == "true" else "sysFlag"
        order = spark_tools.from_body(wanted, sys_flag=flag).alias("order")
        [row] = frame.option("openBodies", opened).load().select(order, "body").collect()
        assert (row.order.id, len(row.order.name)) == (7, 5000)
        assert (len(row.body) < 1000) == (opened == "false")
