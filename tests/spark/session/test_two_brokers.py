"""A topic on two live brokers of one name server: both are read, and the broker's name distinguishes queues."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

from firearrow.client import blocking
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools import register
from firearrow.spark_tools.base.provenance import Provenance
from firearrow.spark_tools.jobs.replay import cli
from tests.spark.replaying import Job, job, stored
from tests.spark.stores import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMES = ("broker-a", "broker-b")
QUEUES = 2
COUNTS = {("broker-a", 0): 40, ("broker-a", 1): 10, ("broker-b", 0): 25, ("broker-b", 1): 30}
ASKED_MAX = 3000


@dataclass(frozen=True)
class Cluster:
    brokers: dict[str, LocalBroker]
    name_server: str


def body(broker: str, queue_id: int, offset: int) -> bytes:
    return f"{broker} {queue_id} {offset}".encode()


def make_topic(name_server: str, topic: str) -> None:
    """Create it at both; return when both are registered at the name server."""
    with blocking.Admin(name_server=name_server) as admin:
        for _ in range(ASKED_MAX):
            if len(admin.create_topic(topic, QUEUES)) == len(NAMES):
                break
        for _ in range(ASKED_MAX):
            if len(admin.queues(topic)) == len(COUNTS):
                return
    raise AssertionError(f"{topic} is not at both brokers")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """COUNTS messages of the topic `Both` at two brokers that are registered at one name server."""
    folder = tmp_path_factory.mktemp("two")
    with LocalBroker(folder / NAMES[0], settings=SETTINGS | {"brokerName": NAMES[0]}) as first:
        outside = ("--namesrv", first.name_server, "--namesrv-listen", "off")
        settings = SETTINGS | {"brokerName": NAMES[1]}
        with LocalBroker(folder / NAMES[1], settings=settings, arguments=outside) as second:
            make_topic(first.name_server, "Both")
            with blocking.Producer("both", name_server=first.name_server) as producer:
                for (name, queue_id), count in COUNTS.items():
                    for offset in range(count):
                        message = Message("Both", body(name, queue_id, offset))
                        producer.send(message, queue=MessageQueue("Both", name, queue_id)).raise_for_status()
            yield Cluster(dict(zip(NAMES, (first, second), strict=True)), first.name_server)


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return job(cli, tmp_path, monkeypatch)


Positions = set[tuple[str, int, int]]


def positions() -> Positions:
    """Of all messages."""
    return {(*position, offset) for position, count in COUNTS.items() for offset in range(count)}


def load(spark: "SparkSession", cluster: Cluster, **options: str) -> "DataFrame":
    register(spark)
    return spark.read.format("rocketmq").options(nameServer=cluster.name_server, **options).load()


def found(frame: "DataFrame") -> Positions:
    """Each row once, with the body of its broker, queue and offset."""
    rows = frame.select("brokerName", "queueId", "queueOffset", "body").collect()
    found_positions = {(row.brokerName, row.queueId, row.queueOffset) for row in rows}
    assert len(found_positions) == len(rows)
    assert all(bytes(row.body) == body(row.brokerName, row.queueId, row.queueOffset) for row in rows)
    return found_positions


def test_a_table_is_of_both(spark: "SparkSession", cluster: Cluster) -> None:
    assert found(load(spark, cluster, topic="Both")) == positions()


def test_queues_and_offsets_of_a_table_go_by_the_broker_s_name(
    spark: "SparkSession", cluster: Cluster
) -> None:
    one = '{"Both": {"broker-b": [1]}}'
    assert found(load(spark, cluster, assign=one)) == {("broker-b", 1, offset) for offset in range(30)}
    starts = {"Both": {"broker-a": {"0": 35, "1": -1}, "broker-b": {"0": 5}}}
    wanted = {("broker-a", 0, offset) for offset in range(35, 40)}
    wanted |= {("broker-b", 0, offset) for offset in range(5, 25)}
    wanted |= {("broker-b", 1, offset) for offset in range(30)}
    assert found(load(spark, cluster, topic="Both", startingOffsets=orjson.dumps(starts).decode())) == wanted


def brought(store: Path, topic: str) -> Positions:
    """The origins of the topic's messages in that store."""
    records = [record for each in stored(store, topic).values() for record in each]
    provenances = [Provenance.of(record.properties) for record in records]
    from_where = {
        (each.queue.broker_name, each.queue.queue_id, each.queue_offset) for each in provenances if each
    }
    assert len(from_where) == len(records)
    bodies = {body(*position) for position in from_where}
    assert {record.body for record in records} == bodies
    return from_where


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("--topics", "Both"), positions()),
        (("--topics", "Both", "--queues", "broker-b:0"), {("broker-b", 0, offset) for offset in range(25)}),
        (("--offsets", '{"Both": {"broker-a": {"0": [3, 5]}, "broker-b": {"0": [4, 6], "1": 28}}}'),
         {("broker-a", 0, 3), ("broker-a", 0, 4), ("broker-b", 0, 4), ("broker-b", 0, 5), ("broker-b", 1, 28),
          ("broker-b", 1, 29)}),
    ],
    ids=["all", "queues", "offsets"],
)  # fmt: skip
def test_a_replay_from_both_names_the_broker_of_each_message(
    cluster: Cluster, fresh_broker: LocalBroker, replay: Job, arguments: tuple[str, ...], wanted: Positions
) -> None:
    source = ("--name-server", cluster.name_server, *arguments)
    ran = replay(*source, "--target", fresh_broker.name_server, "--create-topics", "--verify")
    assert ran.code == 0, ran.err + ran.out
    assert brought(fresh_broker.store, "Both") == wanted
    assert ran.report["verification"]["messages"] == len(wanted)


def test_a_replay_to_both_keeps_each_queue_at_the_broker_of_its_name(cluster: Cluster, replay: Job) -> None:
    make_topic(cluster.name_server, "Again")
    there = ("--target", cluster.name_server, "--to-topic", "Again", "--verify")
    ran = replay("--name-server", cluster.name_server, "--topics", "Both", *there)
    assert ran.code == 0, ran.err + ran.out
    assert ran.report["notes"] == []
    for name, broker in cluster.brokers.items():
        assert brought(broker.store, "Again") == {position for position in positions() if position[0] == name}
    assert ran.report["verification"]["missing"] == 0
