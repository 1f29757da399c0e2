"""`firearrow send`, `tail`, `message`, `dlq`, `timer` and `tx` with Apache 4.9, which has no timer messages."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.client.consume.consume_results import ConsumeResult
from tests.client.conftest import unique
from tests.interop.cli_messages import PARENT, Cli, consume, dead_letter, new_topic, open_transaction
from tests.interop.peers import BROKER, Apache4, Peer
from tests.interop.toolchain import java_class_path, need
from tests.support.eventually import eventually

pytestmark = pytest.mark.interop
SETTINGS = {
    "autoCreateTopicEnable": "true",
    "brokerName": BROKER,
    "messageDelayLevel": "1s 2s 1s 1s 1s 1h",
    "enablePropertyFilter": "true",
    "transactionTimeOut": "600000",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    need(lambda: java_class_path("broker4"))
    with Apache4(tmp_path_factory.mktemp("cli") / "store", SETTINGS) as apache:
        yield apache


@pytest.fixture
def cli(broker: Peer) -> Cli:
    return Cli(broker.name_server)


@pytest.fixture
def topic(broker: Peer) -> str:
    return new_topic(broker)


def test_what_is_sent_is_read_and_found(cli: Cli, topic: str) -> None:
    sent = cli("send", topic, "needle", "--tag", "new", "--key", "k", "--shard", "s").lines[0]
    assert cli("send", topic, "x", "--count", "100").lines[0]["sent"] == 100
    assert len(cli("tail", topic, "--from", "start", "-e").lines) == 101
    assert cli("tail", topic, "--from", "-1h", "-e", "--tag", "new").lines[0]["body"] == "needle"
    assert cli("tail", topic, "--from", "start", "-e", "--sql", "TAGS = 'new'").lines[0]["body"] == "needle"
    assert cli("message", "get", topic, sent["msgId"]).lines[0]["body"] == "needle"
    assert cli("message", "get", topic, sent["offsetMsgId"]).lines[0]["body"] == "needle"
    assert eventually(lambda: cli("message", "find", topic, "--key", "k", code=None).lines)[0]["keys"] == [
        "k"
    ]
    assert cli("message", "find", topic, "--from", "-1m", "--grep", "nee").lines[0]["body"] == "needle"


def test_a_delay_is_a_level_or_refused(cli: Cli, topic: str) -> None:
    assert "delay level 2" in cli("send", topic, "later", "--delay", "2s").err
    assert "choose of" in cli("send", topic, "never", "--delay", "7s", code=2).err
    assert "timer messages" in cli("send", topic, "never", "--at", "+7s", code=2).err
    assert eventually(lambda: cli("tail", topic, "--from", "start", "-e").lines)[0]["body"] == "later"


def test_dead_letters_and_the_path_to_them(broker: Peer, cli: Cli, topic: str) -> None:
    group = dead_letter(broker, cli, topic, "one", "two")
    letter = cli("dlq", "show", group).lines[0]
    assert letter["properties"]["traceparent"] == PARENT
    steps = {"stored", "traceparent", "delivered", "dead"}
    # the consumer's last commit is one-way: the broker may take it after the consumer has ended
    eventually(
        lambda: steps <= {row["step"] for row in cli("message", "path", topic, letter["msgId"], code=1).lines}
    )
    assert cli("dlq", "redrive", group, "--yes", "--limit", "1").lines[0]["sent"] == 1
    assert cli("dlq", "redrive", group, "--yes", "--retry-topic").lines[0]["sent"] == 1
    assert len(cli("tail", topic, "--from", "start", "-e").lines) == 3
    consume(broker, group, topic, ConsumeResult.SUCCESS, 2)


def test_a_topic_is_exported_imported_and_copied(cli: Cli, topic: str, tmp_path: Path) -> None:
    cli("send", topic, "bin\x00är", "--tag", "t", "--key", "k", "--property", "p=1")
    cli("send", topic, "x", "--count", "300")
    file, target, copied = tmp_path / "f.parquet", unique("import"), unique("copy")
    assert cli("topic", "export", topic, str(file)).rows[0]["messages"] == 301
    for words in (["import", target, str(file)], ["copy", topic, copied]):
        done = cli("topic", *words, "--create-topics").rows[0]
        assert (done["verified"], done["duplicates"], done["crc"]) == (301, 0, "ok")
    rows = [cli("topic", "export", name, "-", "--key", "k").rows[0] for name in (topic, target, copied)]
    assert len({(row["body"], row["tags"], row["msgId"], row["properties"]["p"]) for row in rows}) == 1


def test_an_operator_commits(broker: Peer, cli: Cli, topic: str) -> None:
    kept = open_transaction(broker, topic, unique("tx"))
    eventually(lambda: cli("message", "path", topic, kept, code=None).lines)
    assert cli("tx", "commit", kept, "--yes").lines[0]["state"] == "COMMIT"
    assert eventually(lambda: cli("tail", topic, "--from", "start", "-e").lines)[0]["body"] == "half"
    assert "has ended" in cli("tx", "commit", kept, "--yes", code=2).err
