"""Tables without Spark, and lake tables, of FireArrow's broker and of Apache's 5.5.0: through the name server, and of
the files of the running broker."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import duckdb
import polars as pl
import pyarrow.compute as pc
import pytest

import firearrow
from firearrow.client import blocking
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import CompressionKind, ProducerOptions
from firearrow.spark_tools.base.errors import DataLoss, TopicNotFound
from tests.interop.peers import BROKER, LIFE, Apache, FireArrow
from tests.interop.toolchain import java_class_path, need
from tests.spark.lakes import lake_of

TOPIC = "Orders"
QUEUES, EACH = 2, 30
Row = tuple[int, int, bytes, str | None, str | None]


class Site(NamedTuple):
    name_server: str
    store: Path
    rows: list[Row]
    """What was sent: queue, offset, body, tags, keys."""


@pytest.fixture(scope="module", params=["firearrow", pytest.param("apache", marks=pytest.mark.interop)])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if request.param == "apache":
        need(lambda: java_class_path("client5"))
    kind = Apache if request.param == "apache" else FireArrow
    store = tmp_path_factory.mktemp(request.param) / BROKER
    settings = LIFE | {"brokerName": BROKER, "autoCreateTopicEnable": "true"}
    with kind(store, settings) as peer:
        with blocking.Admin(name_server=peer.name_server) as admin:
            for topic in (TOPIC, "Tailed"):
                admin.create_topic(topic, QUEUES)
        yield Site(peer.name_server, store, filled(peer.name_server))


def filled(name_server: str) -> list[Row]:
    rows = []
    for packed in (False, True):
        options = ProducerOptions(
            compress_over_bytes=64 if packed else 4 << 20, compression=CompressionKind.ZLIB
        )
        with blocking.Producer("tables", name_server=name_server, options=options) as producer:
            for number in range(EACH):
                body = b"%d " % number * (50 if packed else 1)
                tags, keys = ("paid", "new", None)[number % 3], f"k{number}"
                message = Message(TOPIC, body, tags=tags, keys=(keys,), properties={"price": str(number)})
                queue = MessageQueue(TOPIC, BROKER, number % QUEUES)
                sent = producer.send(message, queue=queue).raise_for_status()
                rows.append((queue.queue_id, sent.queue_offset, body, tags, keys))
    return sorted(rows)


COLUMNS = ("queueId", "queueOffset", "body", "tags", "keys")


def rows(site: Site, *, files: bool = False, **options: str | list[str] | datetime) -> list[Row]:
    source = site.store if files else site.name_server
    found = firearrow.read(source, TOPIC, columns=COLUMNS, **options).read_all().to_pylist()
    return sorted(tuple(row[name] for name in COLUMNS) for row in found)


@pytest.mark.parametrize("files", [False, True])
def test_each_message_once(site: Site, files: bool) -> None:
    assert rows(site, files=files) == site.rows
    assert rows(site, files=files, tags="paid") == [row for row in site.rows if row[3] == "paid"]
    assert rows(site, files=files, keys=["k3", "k4"]) == [row for row in site.rows if row[4] in ("k3", "k4")]
    dear = [row for row in site.rows if int((row[4] or "")[1:]) >= 20]
    assert rows(site, files=files, sql="price >= 20") == dear


def test_times(site: Site) -> None:
    now = datetime.now(UTC)
    assert rows(site, since=now - timedelta(hours=1)) == site.rows
    assert rows(site, until=now - timedelta(hours=1)) == []


def test_engines(site: Site) -> None:
    orders = firearrow.dataset(site.name_server, TOPIC)
    assert orders.count_rows() == len(site.rows)
    first = [row for row in site.rows if row[0] == 0 and row[1] < 5]
    condition = (pc.field("queueId") == 0) & (pc.field("queueOffset") < 5)
    assert orders.to_table(columns=["body"], filter=condition).num_rows == len(first)
    paid = [row for row in site.rows if row[3] == "paid"]
    assert duckdb.sql("select count(*) from orders where tags = 'paid'").fetchall() == [(len(paid),)]
    frame = firearrow.scan_polars(site.name_server, TOPIC).filter(pl.col("tags") == "paid").select("body")
    assert sorted(frame.collect()["body"].to_list()) == sorted(row[2] for row in paid)
    assert len(firearrow.to_pandas(site.name_server, TOPIC, columns=("queueId",))) == len(site.rows)
    [total] = firearrow.query(f"select count(*) as n from {TOPIC}", site.name_server).read_all().to_pylist()
    assert total == {"n": len(site.rows)}


def test_a_tail(site: Site) -> None:
    def send(*bodies: bytes) -> None:
        with blocking.Producer("tables", name_server=site.name_server) as producer:
            for body in bodies:
                producer.send(Message("Tailed", body)).raise_for_status()

    async def follow() -> list[bytes]:
        found: list[bytes] = []
        batches = firearrow.tail(
            site.name_server, "Tailed", poll_s=0.05, columns=("body",), startingOffsets="earliest"
        )
        async with asyncio.timeout(30):
            async for batch in batches:
                found += batch["body"].to_pylist()
                if len(found) == 2:
                    await asyncio.to_thread(send, b"3", b"4")
                if len(found) == 4:
                    break
        await batches.aclose()
        return found

    send(b"1", b"2")
    assert sorted(asyncio.run(follow())) == [b"1", b"2", b"3", b"4"]


def test_what_is_missing(site: Site) -> None:
    with pytest.raises(TopicNotFound, match="Nothing"):
        firearrow.read(site.name_server, "Nothing")
    after = json.dumps({TOPIC: {BROKER: {"0": 10_000}}})
    with pytest.raises(DataLoss, match="beyond the end of the queue"):
        firearrow.read(site.name_server, TOPIC, startingOffsets=after).read_all()


@pytest.mark.parametrize("kind", ["delta", "iceberg", "paimon"])
def test_a_lake_table(site: Site, tmp_path: Path, kind: str) -> None:
    lake = lake_of(kind, tmp_path)
    assert lake.export(site.name_server, TOPIC, maxOffsetsPerTrigger=20).rows == len(site.rows)
    assert lake.export(site.name_server, TOPIC).commits == 0
    assert lake.bodies() == sorted(row[2] for row in site.rows)
