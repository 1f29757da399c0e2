"""A store that Apache wrote is replayed into an Apache broker, and read back message for message: by Java's client, and
by the table, from the broker and from its files while it runs.
"""

import hashlib
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, MapType, StringType, StructField, StructType

from firearrow._native.protocol.name_rules import BROKER_OWN
from firearrow.spark_tools.base.provenance import Provenance
from firearrow.spark_tools.datasource.source import RocketMQSource
from firearrow.spark_tools.jobs.replay import cli
from tests.interop.driver import Driver, Event
from tests.interop.messages import pull_all
from tests.interop.peers import Apache
from tests.interop.toolchain import java_class_path, need
from tests.spark.replaying import job
from tests.spark.stores import Golden

pytestmark = pytest.mark.interop
SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("queueId", IntegerType()),
        StructField("queueOffset", LongType()),
        StructField("body", BinaryType()),
        StructField("properties", MapType(StringType(), StringType())),
        StructField("flag", IntegerType()),
    ]
)
ADDED_BY_READER = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"}


@pytest.mark.timeout(400)
def test_apaches_store_into_apaches_broker(
    golden_clean: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(lambda: java_class_path("client5"))
    replay = job(cli, tmp_path, monkeypatch)
    settings = {"autoCreateTopicEnable": "true", "brokerName": "broker-a"}
    with (
        Apache(tmp_path / "apache", settings) as target,
        Driver("java5", target.name_server, tmp_path / "java") as client,
    ):
        source = ("--path", f"broker-a={golden_clean.root}", "--pattern", "Golden.*")
        ran = replay(
            *source, "--target", target.name_server, "--create-topics", "--verify", "--timeout", "20"
        )
        assert ran.code == 0, ran.err + ran.out
        tables = [
            table(topicPattern="Golden.*", nameServer=target.name_server),
            table(topicPattern="Golden.*", path=f"broker-a={target.store}"),
        ]
        compared = 0
        for topic, queue in golden_clean.queues():
            if topic.startswith("Golden") and queue["messages"]:
                name = topic, queue["queueId"]
                for there in (pull_all(client, *name), *(each.pop(name) for each in tables)):
                    assert len(there) == len(queue["messages"]), topic
                    for event, message in zip(there, queue["messages"], strict=True):
                        compare(event, message, ran.report["id"])
                compared += len(queue["messages"])
    assert compared == ran.report["totals"]["messages"] > 500
    assert tables == [{}, {}]


def table(**options: str) -> dict[tuple[str, int], list[Event]]:
    """The rows of each queue, in order, as Java's client would report them."""
    reader = RocketMQSource(options).reader(SCHEMA)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    found: dict[tuple[str, int], list[Event]] = {}
    for row in sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"])):
        event = {"body": row["body"].hex(), "properties": dict(row["properties"]), "flag": row["flag"]}
        found.setdefault((row["topic"], row["queueId"]), []).append(event)
    return found


def compare(event: Event, message: Event, job_id: str) -> None:
    body = bytes.fromhex(event["body"])
    assert hashlib.sha256(body).hexdigest() == message.get("bodySha256", message["storedBodySha256"])
    provenance = Provenance.of(event["properties"])
    assert provenance is not None
    assert (provenance.job, provenance.queue.topic, provenance.queue.queue_id, provenance.queue_offset) == (
        job_id,
        message["topicInRecord"],
        message["queueIdInRecord"],
        message["queueOffset"],
    )
    ours = {name: text for name, text in event["properties"].items() if not name.startswith("REPLAY_")}
    kept = {name: text for name, text in message["properties"].items() if name not in BROKER_OWN}
    assert {name: text for name, text in ours.items() if name not in ADDED_BY_READER | BROKER_OWN} == kept
    assert event["flag"] == message["flag"]
