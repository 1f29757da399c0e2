"""Jobs that are resumed after their topic was recreated: what was planned is lost by number, nothing else is read."""

from collections.abc import Callable
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest

from firearrow.client import blocking
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.base.errors import WriteFailed
from firearrow.spark_tools.jobs import export as exporting
from firearrow.spark_tools.jobs import replay as replaying
from firearrow.spark_tools.jobs.export_task import ExportTask
from tests.spark.replaying import Job, bodies, job
from tests.spark.stores import BROKER


@pytest.fixture(params=["files", "brokers"])
def source(request: pytest.FixtureRequest, broker: LocalBroker) -> tuple[str, ...]:
    if request.param == "files":
        return "--path", f"{BROKER}={broker.store}"
    return "--name-server", broker.name_server


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return job(replaying.cli, tmp_path, monkeypatch)


def send(broker: LocalBroker, topic: str, first: int, end: int) -> None:
    with blocking.Producer("again", name_server=broker.name_server) as producer:
        for number in range(first, end):
            producer.send(Message(topic, b"%d" % number), queue=MessageQueue(topic, BROKER, 0))


def make_again(broker: LocalBroker, topic: str) -> None:
    with blocking.Admin(name_server=broker.name_server) as admin:
        admin.delete_topic(topic)
        admin.create_topic(topic, 1)
    send(broker, topic, 100, 120)


def test_a_replay_that_is_resumed_sends_no_other_messages(
    broker: LocalBroker, topics: Callable[..., str], source: tuple[str, ...], replay: Job
) -> None:
    topic, kept = topics(1), topics(1)
    send(broker, topic, 0, 10)
    send(broker, kept, 0, 5)
    arguments = (
        *source, "--topics", f"{topic},{kept}", "--target", broker.name_server,
        "--to-topic", f"{topic}={topic}-to", "--to-topic", f"{kept}={kept}-to", "--timeout", "20",
    )  # fmt: skip
    planned = replay(*arguments)
    assert planned.code == 1  # the target has no such topics
    make_again(broker, topic)
    again = replay(*arguments, "--create-topics")
    assert again.code == 1
    assert f"{topic}@{BROKER}:0[0..10): not read before the topic was deleted and recreated" in again.err
    went_on = replay(*arguments, "--create-topics", "--no-fail-on-data-loss")
    assert went_on.code == 0, went_on.err
    assert went_on.report["totals"]["lost"] == 10
    assert [f"{topic}@{BROKER}:0[0..10)" in name for name in went_on.report["lost"]] == [True]
    assert bodies(broker.store, f"{kept}-to") == {0: [b"%d" % number for number in range(5)]}
    assert bodies(broker.store, f"{topic}-to") == {}
    assert replay(*arguments, "--create-topics").code == 0


def test_an_export_that_is_resumed_writes_no_other_messages(
    broker: LocalBroker, topics: Callable[..., str], source: tuple[str, ...], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    topic, kept = topics(1), topics(1)
    send(broker, topic, 0, 10)
    send(broker, kept, 0, 5)
    export = job(exporting.cli, tmp_path, monkeypatch)
    arguments = (*source, "--topics", f"{topic},{kept}", "--to", str(tmp_path / "out"))

    def fail(*_: object) -> None:
        raise WriteFailed("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(ExportTask, "__call__", fail)
        assert export(*arguments, checkpoint="out/_checkpoint").code == 1
    make_again(broker, topic)
    again = export(*arguments, checkpoint="out/_checkpoint")
    assert again.code == 1
    assert f"{topic}@{BROKER}:0[0..10): not read before the topic was deleted and recreated" in again.err
    went_on = export(*arguments, "--no-fail-on-data-loss", checkpoint="out/_checkpoint")
    assert went_on.code == 0, went_on.err
    rows = [
        row
        for path in (tmp_path / "out").rglob("*.parquet")
        for row in pq.ParquetFile(path).read().to_pylist()
    ]
    assert [(row["topic"], row["body"]) for row in rows] == [(kept, b"%d" % number) for number in range(5)]
    manifest = orjson.loads((tmp_path / "out" / "_manifest.json").read_bytes())
    assert (manifest["lost_messages"], manifest["rows"]) == (10, 5)
