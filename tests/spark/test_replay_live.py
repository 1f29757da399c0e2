"""replay from live brokers: silent ones end in a timeout, and a group without permission to pull in an error."""

from collections.abc import Callable
from pathlib import Path

import pytest

from firearrow.client import blocking
from firearrow.client.admin_api.records import GroupConfig
from firearrow.client.base.message import Message
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.jobs.replay import cli
from tests.spark.replaying import Job, job


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return job(cli, tmp_path, monkeypatch)


def test_a_silent_source_or_target_is_waited_for_until_the_timeout(
    broker: LocalBroker, fresh_broker: LocalBroker, topics: Callable[..., str], replay: Job
) -> None:
    topic = topics(1)
    with blocking.Producer("silence", name_server=broker.name_server) as producer:
        producer.send(Message(topic, b"one"))
    there = ("--target", fresh_broker.name_server, "--timeout", "0.25")
    command = ("--name-server", broker.name_server, "--topics", topic, "--create-topics", *there)
    assert replay(*command).code == 0
    fresh_broker.kill()
    verified = replay(*command, "--verify-only")
    assert verified.code == 1
    assert "given up after 0.25 s" in verified.report["failures"][0]
    silent = replay("--name-server", fresh_broker.name_server, "--topics", topic, *there, checkpoint="other")
    assert silent.code == 1
    assert f"{fresh_broker.name_server}: no answer within 0.25 s" in silent.err


def test_a_group_without_the_right_to_pull_is_refused(
    broker: LocalBroker, fresh_broker: LocalBroker, topics: Callable[..., str], replay: Job
) -> None:
    topic = topics(1)
    with blocking.Producer("barred", name_server=broker.name_server) as producer:
        producer.send(Message(topic, b"one"))
    with blocking.Admin(name_server=broker.name_server) as admin:
        admin.create_group(GroupConfig(group=f"barred-{topic}", consume_enabled=False))
    there = ("--target", fresh_broker.name_server, "--create-topics")
    command = ("--name-server", broker.name_server, "--topics", topic, *there)
    ran = replay(*command, "--source-group", f"barred-{topic}")
    assert ran.code == 1
    assert f"barred-{topic}" in ran.err
    assert replay(*command).code == 0
