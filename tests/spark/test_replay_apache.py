"""A store that Apache wrote is replayed into an Apache broker, and Java's client reads it back message for message."""

import hashlib
from pathlib import Path

import pytest

from firearrow.spark_tools.jobs.replay import cli
from firearrow.spark_tools.provenance import BROKER_OWN, Provenance
from tests.interop.driver import Driver, Event
from tests.interop.messages import pull_all
from tests.interop.peers import Apache
from tests.interop.workshop import java_class_path, need
from tests.spark.replaying import job
from tests.spark.stores import Golden

pytestmark = pytest.mark.interop
ADDED_BY_READER = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"}


@pytest.mark.timeout(280)
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
        compared = 0
        for topic, queue in golden_clean.queues():
            if topic.startswith("Golden") and queue["messages"]:
                there = pull_all(client, topic, queue["queueId"])
                assert len(there) == len(queue["messages"]), topic
                for event, message in zip(there, queue["messages"], strict=True):
                    compare(event, message, ran.report["id"])
                    compared += 1
    assert compared == ran.report["totals"]["messages"] > 500


def compare(event: Event, message: Event, job_id: str) -> None:
    body = bytes.fromhex(event["body"])
    assert hashlib.sha256(body).hexdigest() == message.get("bodySha256", message["storedBodySha256"])
    place = Provenance.of(event["properties"])
    assert place is not None
    assert (place.job, place.queue.topic, place.queue.queue_id, place.queue_offset) == (
        job_id, message["topicInRecord"], message["queueIdInRecord"], message["queueOffset"],
    )  # fmt: skip
    ours = {name: text for name, text in event["properties"].items() if not name.startswith("REPLAY_")}
    kept = {name: text for name, text in message["properties"].items() if name not in BROKER_OWN}
    assert {name: text for name, text in ours.items() if name not in ADDED_BY_READER | BROKER_OWN} == kept
    assert event["flag"] == message["flag"]
